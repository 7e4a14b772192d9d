"""Knows how v1's ids lead to jobs and tasks: job_id to a family, version_id to one of it, pod to task."""

from dataclasses import replace

from trackside.api.modelarts_v1.checks import path_number
from trackside.api.operation import Call
from trackside.domain.errors import JobNotFound, TaskNotFound
from trackside.domain.job import Job, TaskName, task_names
from trackside.ports import JobQuery

CHUNK = 1000  # jobs read at once where all are wanted
NAMES_SHOWN = 8


def version(call: Call) -> Job:
    """Return the version that the path names."""
    family, number = path_number(call, "job_id"), path_number(call, "version_id")
    missing = JobNotFound(f"job {family} has no version {number} in this project")
    if not number:
        raise missing
    try:
        job = call.services.jobs.find(call.caller, number=number)
    except JobNotFound:
        raise missing from None
    if job.family != family:
        raise missing
    return job


async def versions(call: Call) -> list[Job]:
    """Return all versions of the job that the path names, newest first; there is at least one."""
    family = path_number(call, "job_id")
    found = await everything(call, family_query(call, family)) if family else []
    if not found:
        raise JobNotFound(f"there is no job {family} in this project")
    return found


def family_query(call: Call, *families: int) -> JobQuery:
    """Return the query for all versions of some jobs, newest first."""
    return JobQuery(
        project_id=call.caller.project_id, families=families, sort_by="number", descending=True, limit=CHUNK
    )


async def everything(call: Call, query: JobQuery) -> list[Job]:
    """Return all jobs that match, however many."""
    found: list[Job] = []
    while True:
        page = await call.services.jobs.search(call.caller, replace(query, offset=len(found), limit=CHUNK))
        found += page.jobs
        if len(page.jobs) < CHUNK:
            return found


def log_files(job: Job) -> list[str]:
    """Return the names of a version's log files, by rank: the name of the job and the rank."""
    return [f"{job.spec.name}.{rank}" for rank in range(len(task_names(job.spec)))]


def task_of(job: Job, pod_name: str) -> TaskName:
    """Return the task that a pod or log file name means; a task's own name is taken too."""
    names = task_names(job.spec)
    by_name = dict(zip(log_files(job), names, strict=True)) | {name: name for name in names}
    found = by_name.get(pod_name)
    if found is None:
        shown = ", ".join(log_files(job)[:NAMES_SHOWN])
        raise TaskNotFound(f"version {job.number} of job {job.family} has no {pod_name!r}; it has {shown}")
    return found
