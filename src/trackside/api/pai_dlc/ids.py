"""Knows how jobs and pods are called in PAI-DLC, and finds them by those names."""

import re

from trackside.api.operation import Call
from trackside.domain.errors import JobNotFound, TaskNotFound
from trackside.domain.job import Job, Task, task_names

PREFIX = "dlc"
PODS_SHOWN = 8
_JOB_ID = re.compile(r"dlc[a-z0-9]{1,64}")


def job_id(job: Job) -> str:
    """Return the id of a job."""
    return f"{PREFIX}{job.short_id}"


def pod_id(job: Job, task: str) -> str:
    """Return the id of a task's pod."""
    return f"{job_id(job)}-{task}"


def pod_uid(job: Job, task: Task) -> str:
    """Return the id of one start of a pod."""
    return f"{job.id}-{task.name}-{task.attempt}"


def short_id(given: str) -> str | None:
    """Return the short id within a job's id; None if it can be no job's."""
    lowered = given.lower()
    return lowered.removeprefix(PREFIX) if _JOB_ID.fullmatch(lowered) else None


def find_job(call: Call, given: str) -> Job:
    """Return the job of that id."""
    found = short_id(given)
    try:
        if found is not None:
            return call.services.jobs.find(call.caller, short_id=found)
    except JobNotFound:
        pass
    raise JobNotFound(f"there is no job {given[:80]!r} in this project")


def path_job(call: Call) -> Job:
    """Return the job the path names."""
    return find_job(call, call.path["JobId"])


def path_task(call: Call, job: Job) -> str:
    """Return the name of the task whose pod the path names."""
    given = call.path["PodId"]
    names = task_names(job.spec)
    task = given.removeprefix(f"{job_id(job)}-")
    if task == given or task not in names:
        known = ", ".join(pod_id(job, name) for name in names[:PODS_SHOWN])
        raise TaskNotFound(f"the job has no pod {given[:80]!r}; it has {known}")
    return task


def check_uid(call: Call, job: Job, task: str) -> str | None:
    """Return the PodUid of the query if it is one of the pod's, and refuse any other."""
    given = call.query_one("PodUid")
    uids = [pod_uid(job, one) for one in (*job.past_tasks, *job.tasks) if one.name == task]
    if given is not None and given not in uids:
        raise TaskNotFound(f"the pod {call.path['PodId']} never had the uid {given[:80]!r}")
    return given or next(reversed(uids), None)
