"""Knows what each operation on jobs and versions asks of the services and how the answer is written."""

import asyncio
import time
from weakref import WeakValueDictionary

import msgspec

from trackside.api.modelarts_v1.checks import query_int
from trackside.api.modelarts_v1.listing import (
    DEFAULT_WORKSPACE,
    PAGE_MAX,
    PER_PAGE_DEFAULT,
    PER_PAGE_MAX,
    all_versions,
    newest_of_jobs,
)
from trackside.api.modelarts_v1.locate import version, versions
from trackside.api.modelarts_v1.metrics import TASK_MINUTES_MAX, job_steps, system_metrics
from trackside.api.modelarts_v1.translate_job import created, detail, listed, overview, summary, whole
from trackside.api.modelarts_v1.translate_spec import to_spec
from trackside.api.modelarts_v1.wire_request import ChangeJobBody, CreateJobBody, CreateVersionBody
from trackside.api.modelarts_v1.wire_response import (
    Answer,
    Created,
    JobList,
    Overview,
    SystemMetrics,
    VersionDetail,
    VersionList,
)
from trackside.api.operation import Call
from trackside.domain.errors import Invalid, NameTaken
from trackside.domain.job import Job
from trackside.domain.metric import MINUTE_MS
from trackside.service.jobs import JobChange

NO_QUOTA = 2**31 - 1  # jobs are not counted against anything: the largest number every client can hold

# Checking a name and taking it are two steps; nobody else may be between them with the same name.
_naming: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()


async def create_job(call: Call) -> Created:
    """Submit a job under a name that is not taken."""
    assert isinstance(call.body, CreateJobBody)
    name, workspace_id = call.body.job_name, call.body.workspace_id or DEFAULT_WORKSPACE
    spec = to_spec(
        call.body.config,
        call.services.catalog,
        name=name,
        description=call.body.job_desc or "",
        workspace_id=workspace_id,
    )
    async with _lock("name", call.caller.project_id, workspace_id, name):
        if await call.services.jobs.name_exists(call.caller, workspace_id, name):
            raise NameTaken(f"Job name:{name} is existed")  # the vendor's words
        return created(await call.services.jobs.submit(call.caller, spec))


async def create_version(call: Call) -> Created:
    """Submit the next version of a job."""
    assert isinstance(call.body, CreateVersionBody)
    async with _lock("family", call.caller.project_id, call.path["job_id"]):
        existing = await versions(call)
        newest = max(existing, key=lambda job: job.version)
        former = whole(call.body.config.pre_version_id) or newest.number
        if former not in {job.number for job in existing}:
            known = ", ".join(str(job.number) for job in existing[:8])
            raise Invalid(
                f"pre_version_id {former} is not a version of job {newest.family}; there are {known}"
            )
        spec = to_spec(
            msgspec.structs.replace(call.body.config, pre_version_id=former),
            call.services.catalog,
            name=newest.spec.name,
            description=newest.spec.description if call.body.job_desc is None else call.body.job_desc,
            workspace_id=newest.spec.workspace_id,
        )
        return created(await call.services.jobs.submit(call.caller, spec, version_of=newest))


async def list_jobs(call: Call) -> JobList:
    """List the jobs that match, each by its newest version."""
    jobs, matching, counts = await newest_of_jobs(call)
    now_ms = _now_ms()
    return JobList(
        job_total_count=matching,
        job_count_limit=NO_QUOTA - matching,
        quotas=NO_QUOTA,
        jobs=[summary(job, version_count=counts[job.family], now_ms=now_ms) for job in jobs],
    )


async def list_versions(call: Call) -> VersionList:
    """List the versions of a job, newest first."""
    found = await versions(call)
    newest, page = found[0], query_int(call, "page", 0, least=0, most=PAGE_MAX)
    shown = found
    if page:  # the vendor pages only where a page is asked for
        limit = query_int(call, "per_page", PER_PAGE_DEFAULT, least=1, most=PER_PAGE_MAX)
        shown = found[limit * (page - 1) : limit * page]
    now_ms, catalog = _now_ms(), call.services.catalog
    most = TASK_MINUTES_MAX // max(1, len(shown))
    return VersionList(
        job_id=newest.family,
        job_name=newest.spec.name,
        job_desc=newest.spec.description,
        version_count=len(found),
        versions=[
            listed(job, catalog, metrics=await _system_metrics(call, job, now_ms, most), now_ms=now_ms)
            for job in shown
        ],
    )


async def list_all_versions(call: Call) -> Overview:
    """List the versions of all jobs."""
    jobs, matching, offset, limit = await all_versions(call)
    now_ms = _now_ms()
    return Overview(
        total_count=matching,
        offset=offset,
        limit=limit,
        versions=[overview(job, now_ms=now_ms) for job in jobs],
    )


async def show_version(call: Call) -> VersionDetail:
    """Tell everything of a version."""
    job, now_ms = version(call), _now_ms()
    metrics = await _system_metrics(call, job, now_ms, TASK_MINUTES_MAX)
    return detail(job, call.services.catalog, metrics=metrics, now_ms=now_ms)


async def change_job(call: Call) -> Answer:
    """Describe a job anew: all its versions, which share the description."""
    assert isinstance(call.body, ChangeJobBody)
    for job in await versions(call):
        await call.services.jobs.change(call.caller, job.id, JobChange(description=call.body.job_desc))
    return Answer()


async def stop_version(call: Call) -> Answer:
    """Ask a version to stop."""
    await call.services.jobs.stop(call.caller, version(call).id)
    return Answer()


async def delete_version(call: Call) -> Answer:
    """Delete a version."""
    await call.services.jobs.delete(call.caller, version(call).id)
    return Answer()


async def delete_job(call: Call) -> Answer:
    """Delete a job with all its versions."""
    for job in await versions(call):
        await call.services.jobs.delete(call.caller, job.id)
    return Answer()


async def _system_metrics(call: Call, job: Job, now_ms: int, task_minutes_max: int) -> SystemMetrics:
    steps, interval = job_steps(job, now_ms, task_minutes_max=task_minutes_max)
    if not steps:
        return system_metrics({}, steps, interval)
    found = await call.services.metrics.series(
        call.caller,
        job.id,
        task=None,
        start_ms=steps.start,
        end_ms=steps[-1] + steps.step,
        step_ms=interval * MINUTE_MS,
    )
    return system_metrics(found, steps, interval)


def _lock(*key: str) -> asyncio.Lock:
    lock = _naming.get(key)
    if lock is None:
        lock = _naming[key] = asyncio.Lock()
    return lock


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
