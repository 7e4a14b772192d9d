"""Knows the rows of Trackside's own API."""

from collections.abc import Callable, Sequence

import msgspec
import orjson

from trackside.api.native import attempts
from trackside.api.native.views import JobView, view_job
from trackside.api.native.views_pending import ExplainView, view_explanation
from trackside.api.operation import Call, Operation, Param, Raw
from trackside.domain.errors import Invalid
from trackside.domain.phase import Phase
from trackside.ports import JobQuery, Node

PREFIX = "/api/trackside/v1"
JOBS_PER_PAGE_MAX = 500
POINTS_MAX = 11_000
LATEST_JOBS_MAX = 1_000
RAW_MS_MAX = 3_600_000  # of single samples at once: a series seldom has one every second


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs."""

    jobs: tuple[JobView, ...]
    matching: int
    total: int


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One series: means of each step that has samples."""

    task: str
    metric: str
    card: int | None
    labels: dict[str, str]
    points: list[tuple[int, float]]


class SeriesList(msgspec.Struct, frozen=True, kw_only=True):
    """The series of a job."""

    series: list[Series]


class LatestValue(msgspec.Struct, frozen=True, kw_only=True):
    """The newest sample of a series."""

    job_id: str
    task: str
    card: int | None
    labels: tuple[tuple[str, str], ...]
    at_ms: int
    value: float


class LatestList(msgspec.Struct, frozen=True, kw_only=True):
    """The newest samples of a metric."""

    metric: str
    values: list[LatestValue]


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with an agent."""

    id: str
    ip: str
    cpu_cores: float
    memory_bytes: int
    gpus: int
    npus: int
    last_seen_ms: int


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """All machines."""

    nodes: list[NodeView]


class UserRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who to add."""

    name: str
    role: str = "user"


class UserView(msgspec.Struct, frozen=True, kw_only=True):
    """A user without secrets."""

    name: str
    project_id: str
    role: str
    access_key: str


class UserKeys(msgspec.Struct, frozen=True, kw_only=True):
    """A new user's keys, shown this once."""

    name: str
    project_id: str
    role: str
    access_key: str
    secret_key: str
    token: str


class UserList(msgspec.Struct, frozen=True, kw_only=True):
    """All users."""

    users: list[UserView]


class ObjectView(msgspec.Struct, frozen=True, kw_only=True):
    """One object: its path below what was asked for."""

    path: str
    size_bytes: int
    modified_ms: int


class ObjectList(msgspec.Struct, frozen=True, kw_only=True):
    """The objects below a URL."""

    objects: list[ObjectView]


class ObjectPut(msgspec.Struct, frozen=True, kw_only=True):
    """Where an object was stored."""

    url: str
    size_bytes: int


async def list_jobs(call: Call) -> JobList:
    """List jobs, newest first."""
    query = JobQuery(
        project_id=call.caller.project_id,
        names_like=tuple(filter(None, [call.query_one("name")])),
        phases=frozenset(Phase(name) for name in call.query.get("state", [])),
        offset=int(call.query_one("offset") or 0),
        limit=int(call.query_one("limit") or 50),
    )
    page = await call.services.jobs.search(call.caller, query)
    jobs = tuple(view_job(job) for job in call.services.pending.with_reasons(page.jobs))
    return JobList(jobs=jobs, matching=page.matching, total=page.total)


async def show_job(call: Call) -> JobView:
    """Show a job with its attempts, tasks and reason."""
    (job,) = call.services.pending.with_reasons([call.services.jobs.show(call.caller, call.path["job_id"])])
    return view_job(job)


async def explain_job(call: Call) -> ExplainView:
    """Say why a job is where it is."""
    job, pending = call.services.pending.explain(call.caller, call.path["job_id"])
    return view_explanation(job, pending)


async def show_series(call: Call) -> SeriesList:
    """Return the job's series, averaged over steps."""
    start, end = _number(call, "start_ms"), _number(call, "end_ms")
    raw = call.query_one("raw") == "true"
    step = 1 if raw else int(call.query_one("step_ms") or 60_000)
    if end <= start or (end - start) // step > (RAW_MS_MAX if raw else POINTS_MAX):
        raise Invalid(
            f"end_ms must come after start_ms, and at most {POINTS_MAX:,} steps fit between them,"
            " or an hour of single samples"
        )
    found = await call.services.metrics.series(
        call.caller,
        call.path["job_id"],
        task=call.query_one("task"),
        start_ms=start,
        end_ms=end,
        step_ms=step,
    )
    series = [
        Series(
            task=key.task,
            metric=key.metric,
            card=key.card,
            labels=dict(key.labels),
            points=sorted(points.items()),
        )
        for key, points in found.items()
    ]
    return SeriesList(series=series)


async def list_latest(call: Call) -> Raw:
    """Return the newest value of a metric of every task of some jobs."""
    metric, jobs = call.query_one("metric") or "", call.query.get("job_id", [])
    if len(jobs) > LATEST_JOBS_MAX:
        raise Invalid(f"at most {LATEST_JOBS_MAX:,} jobs may be asked for at once, not {len(jobs):,}")
    found = await call.services.metrics.latest(
        call.caller, jobs, metric=metric, since_ms=_number(call, "since_ms")
    )
    # As plain values: there may be tens of thousands.
    values = [
        {
            "job_id": job_id,
            "task": key.task,
            "card": key.card,
            "labels": key.labels,
            "at_ms": at_ms,
            "value": value,
        }
        for job_id, newest in found.items()
        for key, at_ms, value in zip(newest.keys, newest.at_ms, newest.values, strict=True)
    ]
    return Raw(content=orjson.dumps({"metric": metric, "values": values}))


async def list_users(call: Call) -> UserList:
    """List users without their secrets."""
    users = await call.services.users.list()
    return UserList(
        users=[
            UserView(name=u.name, project_id=u.project_id, role=u.role, access_key=u.access_key)
            for u in users
        ]
    )


async def add_user(call: Call) -> UserKeys:
    """Add a user and show its keys this once."""
    made = await call.services.users.add(call.caller, call.body.name, call.body.role)
    return UserKeys(
        name=made.user.name,
        project_id=made.user.project_id,
        role=made.user.role,
        access_key=made.user.access_key,
        secret_key=made.user.secret_key,
        token=made.token,
    )


async def remove_user(call: Call) -> None:
    """Remove a user."""
    await call.services.users.remove(call.caller, call.path["name"])


async def put_object(call: Call) -> ObjectPut:
    """Store one object."""
    url = call.query_one("url") or ""
    await call.services.objects.put(call.caller, url, call.body)
    return ObjectPut(url=url, size_bytes=len(call.body))


async def list_objects(call: Call) -> ObjectList:
    """List the objects below a URL."""
    found = await call.services.objects.list(call.caller, call.query_one("url") or "")
    return ObjectList(
        objects=[
            ObjectView(path=one.path, size_bytes=one.size_bytes, modified_ms=one.modified_ms) for one in found
        ]
    )


def operations(nodes: Callable[[], Sequence[Node]]) -> tuple[Operation, ...]:
    """Return the rows; `nodes` tells which machines there are."""

    async def list_nodes(call: Call) -> NodeList:
        """List the machines."""
        del call
        return NodeList(nodes=[_node(node) for node in nodes()])

    return (
        *attempts.OPERATIONS,
        Operation(
            name="ListJobs",
            method="GET",
            path=f"{PREFIX}/jobs",
            action="trackside:job:list",
            handler=list_jobs,
            summary="List jobs, newest first",
            response=JobList,
            query=(
                Param(name="state", repeated=True, choices=tuple(Phase)),
                Param(name="name", max_length=256, description="a part of the name"),
                Param(name="offset", type=int, minimum=0, maximum=10_000_000),
                Param(name="limit", type=int, minimum=1, maximum=JOBS_PER_PAGE_MAX),
            ),
        ),
        Operation(
            name="ShowJob",
            method="GET",
            path=f"{PREFIX}/jobs/{{job_id}}",
            action="trackside:job:get",
            handler=show_job,
            summary="Show a job with its attempts, tasks and reason",
            response=JobView,
        ),
        Operation(
            name="ExplainJob",
            method="GET",
            path=f"{PREFIX}/jobs/{{job_id}}/explain",
            action="trackside:job:get",
            handler=explain_job,
            summary="Say why a job is where it is, and what one that waits is waiting for",
            response=ExplainView,
        ),
        Operation(
            name="ShowJobSeries",
            method="GET",
            path=f"{PREFIX}/jobs/{{job_id}}/metrics",
            action="trackside:job:get",
            handler=show_series,
            summary="Return a job's series, averaged over steps",
            response=SeriesList,
            query=(
                Param(name="task", max_length=128),
                Param(name="start_ms", type=int, required=True, minimum=0, maximum=2**53),
                Param(name="end_ms", type=int, required=True, minimum=0, maximum=2**53),
                Param(name="step_ms", type=int, minimum=1000, maximum=86_400_000),
                Param(name="raw", type=bool, description="every sample as it was measured"),
            ),
        ),
        Operation(
            name="ListLatest",
            method="GET",
            path=f"{PREFIX}/latest",
            action="trackside:job:get",
            handler=list_latest,
            summary="Return the newest value of a metric of every task of some jobs",
            response=LatestList,
            query=(
                Param(name="job_id", repeated=True, required=True, max_length=128),
                Param(name="metric", required=True, max_length=128),
                Param(name="since_ms", type=int, required=True, minimum=0, maximum=2**53),
            ),
        ),
        Operation(
            name="ListNodes",
            method="GET",
            path=f"{PREFIX}/nodes",
            action="trackside:node:list",
            handler=list_nodes,
            summary="List the machines",
            response=NodeList,
        ),
        Operation(
            name="PutObject",
            method="PUT",
            path=f"{PREFIX}/objects",
            action="trackside:object:create",
            handler=put_object,
            summary="Store one object whole; the body is its content",
            body=bytes,
            response=ObjectPut,
            query=(Param(name="url", required=True, max_length=1200, description="obs://bucket/key"),),
        ),
        Operation(
            name="ListObjects",
            method="GET",
            path=f"{PREFIX}/objects",
            action="trackside:object:list",
            handler=list_objects,
            summary="List the objects below a URL",
            response=ObjectList,
            query=(Param(name="url", required=True, max_length=1200, description="obs://bucket/prefix"),),
        ),
        Operation(
            name="ListUsers",
            method="GET",
            path=f"{PREFIX}/users",
            action="trackside:user:list",
            handler=list_users,
            summary="List users without their secrets",
            response=UserList,
        ),
        Operation(
            name="AddUser",
            method="POST",
            path=f"{PREFIX}/users",
            action="trackside:user:create",
            handler=add_user,
            summary="Add a user and show its keys this once",
            body=UserRequest,
            response=UserKeys,
            status=201,
        ),
        Operation(
            name="RemoveUser",
            method="DELETE",
            path=f"{PREFIX}/users/{{name}}",
            action="trackside:user:delete",
            handler=remove_user,
            summary="Remove a user; its keys stop working at once",
        ),
    )


def _number(call: Call, name: str) -> int:
    value = call.query_one(name)
    if value is None:
        raise Invalid(f"{name} is needed")
    return int(value)


def _node(node: Node) -> NodeView:
    return NodeView(
        id=node.id,
        ip=node.ip,
        cpu_cores=node.capacity.cpu_cores,
        memory_bytes=node.capacity.memory_bytes,
        gpus=node.capacity.gpus,
        npus=node.capacity.npus,
        last_seen_ms=node.last_seen_ms,
    )
