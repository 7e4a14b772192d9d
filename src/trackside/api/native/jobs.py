"""Knows the rows of Trackside's own API that tell of jobs."""

import msgspec

from trackside.api.native import PREFIX
from trackside.api.native.views import JobView, view_job
from trackside.api.native.views_pending import ExplainView, view_explanation
from trackside.api.operation import Call, Operation, Param
from trackside.domain.phase import Phase
from trackside.ports import JobQuery

JOBS_PER_PAGE_MAX = 500


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs."""

    jobs: tuple[JobView, ...]
    matching: int
    total: int


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


OPERATIONS = (
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
)
