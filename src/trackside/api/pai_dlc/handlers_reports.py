"""Knows how to tell what a job did: metrics, logs, events; and what can be asked for."""

import json
from collections.abc import Sequence

import orjson

from trackside.api.encoded import EncodedCache
from trackside.api.operation import Call, Raw
from trackside.api.pai_dlc.checks import (
    DAY_MS,
    chosen,
    commas,
    flag,
    now_ms,
    number,
    one_of,
    page,
    time_text,
    window,
)
from trackside.api.pai_dlc.ids import check_uid, find_job, job_id, path_job, path_task, pod_id
from trackside.api.pai_dlc.measured import (
    CMS_METRICS,
    METRIC_TYPES,
    NAMESPACE,
    PERIODS,
    cms_points,
    dimensions,
    metric_type,
    pod_metrics,
    step_ms,
    steps,
)
from trackside.api.pai_dlc.search import ORDERS
from trackside.api.pai_dlc.sizes import ACCELERATOR_TYPES, RESOURCE_TYPE, ecs_spec
from trackside.api.pai_dlc.wire_reports import (
    CmsMetrics,
    ContainerInfo,
    Dashboard,
    EcsSpecList,
    JobEvents,
    PodEvents,
    PodLogs,
    SanityCheckResult,
    SanityCheckResults,
    TokenAnswer,
)
from trackside.domain.errors import Invalid
from trackside.domain.event import Event
from trackside.domain.job import Job, task_names
from trackside.ports import EventQuery

KEPT_MS = 7 * DAY_MS  # how far logs and events are looked back at by default
LINES_DEFAULT, LINES_MAX = 2000, 100_000
EVENTS_DEFAULT, EVENTS_MAX = 2000, 10_000
POINTS_DEFAULT, POINTS_MAX = 1000, 10_000
OFFSET_MAX = 2**53
PERIOD_DEFAULT = "60"
TOKEN_SECONDS_DEFAULT, TOKEN_SECONDS_MAX = 604_800, 10**9
TARGET_TYPES = ("job", "tensorboard")
MAIN_CONTAINER = "main"
RESOURCE_TYPES = ("ECS", "Lingjun")
SPEC_SORT_KEYS = ("CPU", "GPU", "Memory", "GmtCreateTime")
SANITY_PHASES = ("CheckInit", "DeviceCheck", "SingleNodeCommCheck", "TwoNodeCommCheck", "AllNodeCommCheck")

_pods_told: EncodedCache[bytes] = EncodedCache()


async def get_job_metrics(call: Call) -> Raw:
    """Tell how much every pod used, step by step."""
    job, wanted, step = path_job(call), metric_type(call), step_ms(call)
    start, end = steps(call, step, now=now_ms())
    key, version = (job.id, wanted, start, end, step), call.services.metrics.version(job)
    pods = _pods_told.get(key, version)
    if pods is None:
        found = await call.services.metrics.columns(
            call.caller, job.id, metric=METRIC_TYPES[wanted][0], start_ms=start, end_ms=end, step_ms=step
        )
        pods = b"".join(pod_metrics(job, found, wanted))
        _pods_told.put(key, version, pods, size_bytes=len(pods))
    told = orjson.dumps({"JobId": job_id(job), "RequestId": call.request_id})
    return Raw(content=b"".join([told[:-1], b',"PodMetrics":[', pods, b"]}"]))


async def get_metrics(call: Call) -> CmsMetrics:
    """Tell how much a job used in the words of the monitoring service."""
    chosen(call, "Namespace", (NAMESPACE,))
    wanted = CMS_METRICS[one_of("MetricName", call.query_one("MetricName") or "", CMS_METRICS)]
    about = dimensions(call)
    named = {one for one in (call.query_one("JobId"), about.get("jobId")) if one}
    if len(named) != 1:
        raise Invalid(
            "give one JobId, or one jobId in Dimensions" if not named else "JobId and Dimensions differ"
        )
    job = find_job(call, named.pop())
    period = chosen(call, "Period", PERIODS, PERIOD_DEFAULT)
    start, end = steps(call, int(period) * 1000, now=now_ms())
    task = _task_of(job, about.get("pod"))
    found = await call.services.metrics.series(
        call.caller,
        job.id,
        task=task,
        metric=wanted.metric,
        start_ms=start,
        end_ms=end,
        step_ms=int(period) * 1000,
    )
    points = cms_points(job, found, wanted, task)
    offset = number(call, "NextToken", 0, least=0, most=OFFSET_MAX)
    length = number(call, "Length", POINTS_DEFAULT, least=1, most=POINTS_MAX)
    return CmsMetrics(
        code="200",
        success=True,
        message="",
        data_points=json.dumps(points[offset : offset + length]),
        period=period,
        next_token=str(offset + length) if offset + length < len(points) else None,
        request_id=call.request_id,
    )


async def get_pod_logs(call: Call) -> PodLogs:
    """Return the newest lines of a pod's log."""
    job = path_job(call)
    task, now = path_task(call, job), now_ms()
    uid = check_uid(call, job, task)
    start, end = window(call, now=now, before_ms=KEPT_MS)
    flag(call, "DownloadToFile")
    containers = commas(call.query_one("Containers"))
    count = number(call, "MaxLines", LINES_DEFAULT, least=1, most=LINES_MAX)
    lines: list[str] = []
    if _ran_within(job, task, start, end, now) and (not containers or MAIN_CONTAINER in containers):
        found = await call.services.logs.lines(
            call.caller, job.id, task, base_line=None, count=count, descending=True
        )
        # Not splitlines: a carriage return ends no line, as progress bars know.
        lines = found.text.removesuffix("\n").split("\n") if found.lines else []
    return PodLogs(
        job_id=job_id(job),
        pod_id=pod_id(job, task),
        pod_uid=uid,
        logs=lines,
        containers=",".join(containers),
        container_info=ContainerInfo(main_container=MAIN_CONTAINER, sidecar_containers=[]),
        request_id=call.request_id,
    )


async def get_pod_events(call: Call) -> PodEvents:
    """Return what happened to a pod."""
    job = path_job(call)
    task = path_task(call, job)
    return PodEvents(
        job_id=job_id(job),
        pod_id=pod_id(job, task),
        pod_uid=check_uid(call, job, task),
        events=await _events(call, job, task),
        request_id=call.request_id,
    )


async def get_job_events(call: Call) -> JobEvents:
    """Return what happened to a job."""
    job = path_job(call)
    return JobEvents(job_id=job_id(job), events=await _events(call, job, None), request_id=call.request_id)


async def list_ecs_specs(call: Call) -> EcsSpecList:
    """Return the sizes on offer."""
    offset, limit = page(call, size=100)
    wanted, named = (
        chosen(call, "AcceleratorType", ACCELERATOR_TYPES),
        commas(call.query_one("InstanceTypes")),
    )
    resource_type = chosen(call, "ResourceType", RESOURCE_TYPES)
    specs = [
        spec
        for spec in map(ecs_spec, call.services.catalog.flavors())
        if wanted in ("", spec.accelerator_type)
        and (not named or spec.instance_type in named)
        and resource_type in ("", RESOURCE_TYPE)
    ]
    key = chosen(call, "SortBy", SPEC_SORT_KEYS, "GmtCreateTime")
    if key != "GmtCreateTime":  # flavors have no age: they come in the order they are offered
        specs.sort(key=lambda spec: getattr(spec, key.lower()))
    if chosen(call, "Order", ORDERS, "asc") == "desc":
        specs.reverse()
    return EcsSpecList(
        ecs_specs=specs[offset : offset + limit], total_count=len(specs), request_id=call.request_id
    )


async def get_dashboard(call: Call) -> Dashboard:
    """Return the address of a job's page."""
    job, token = path_job(call), call.query_one("token")
    address = f"{call.services.logs.endpoint}/jobs/{job.id}"
    if not flag(call, "isShared"):
        return Dashboard(url=address)
    if token is None:
        raise Invalid("token is missing: a shared link needs one of GetToken")
    return Dashboard(url=f"{address}?token={token}")


async def get_token(call: Call) -> TokenAnswer:
    """Return a token that reads one job for a while."""
    if one_of("TargetType", call.query_one("TargetType") or "job", TARGET_TYPES) != "job":
        raise Invalid("TargetType tensorboard: tensorboards are not offered here")
    target = call.query_one("TargetId")
    if target is None:
        raise Invalid("TargetId is missing: name the job that may be read")
    job = find_job(call, target)
    seconds = number(call, "ExpireTime", TOKEN_SECONDS_DEFAULT, least=0, most=TOKEN_SECONDS_MAX)
    return TokenAnswer(
        token=call.services.tokens.issue(call.caller, job, seconds), request_id=call.request_id
    )


async def get_sanity_check(call: Call) -> SanityCheckResult:
    """Return the steps of a health check: none, because none are run here."""
    number(call, "SanityCheckNumber", 1, least=1, most=OFFSET_MAX)
    chosen(call, "SanityCheckPhase", SANITY_PHASES)
    return SanityCheckResult(
        job_id=job_id(path_job(call)), sanity_check_result=[], request_id=call.request_id
    )


async def list_sanity_checks(call: Call) -> SanityCheckResults:
    """Return all health checks of a job: none, because none are run here."""
    chosen(call, "Order", ORDERS)
    path_job(call)
    return SanityCheckResults(sanity_check_results=[], total_count=0, request_id=call.request_id)


async def _events(call: Call, job: Job, task: str | None) -> list[str]:
    """Return the newest events of the window as lines, the oldest first."""
    start, end = window(call, now=now_ms(), before_ms=KEPT_MS)
    query = EventQuery(
        job_id=job.id,
        task=task,
        from_ms=start,
        to_ms=end,
        descending=True,
        limit=number(call, "MaxEventsNum", EVENTS_DEFAULT, least=1, most=EVENTS_MAX),
    )
    found = await call.services.jobs.events(call.caller, query)
    return _lines(found.events)


def _lines(events: Sequence[Event]) -> list[str]:
    return [f"{time_text(event.at_ms)} {event.level.value} {event.message}" for event in reversed(events)]


def _ran_within(job: Job, task: str, start: int, end: int, now: int) -> bool:
    """Say whether the task ran at some time of the window; lines carry no time of their own."""
    starts = [one for one in (*job.past_tasks, *job.tasks) if one.name == task and one.started_at_ms]
    return any((one.started_at_ms or 0) <= end and (one.ended_at_ms or now) >= start for one in starts)


def _task_of(job: Job, pod: str | None) -> str | None:
    if pod is None:
        return None
    pods = {pod_id(job, name): name for name in task_names(job.spec)}
    return pods[one_of("Dimensions: pod", pod, pods)]
