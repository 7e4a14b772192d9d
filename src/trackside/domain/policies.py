"""Knows when a task is started again and when a job has done what it was asked to."""

import itertools

from trackside.domain.exchange import EndCause, Ended
from trackside.domain.fault import RecoverLevel, RecoverResult, Recovery
from trackside.domain.job import Job, RestartPolicy, Role, StartType, SuccessPolicy, Task, TaskState
from trackside.domain.reason import Reason, ReasonCode

# Ends that starting again in the same place would only repeat.
_HOPELESS = (EndCause.CANNOT_START, EndCause.STAGING_FAILED, EndCause.NOT_STARTED)
FAULT_CODE_MIN = 128  # what shells give for signals; RestartPolicy.EXIT_CODE retries these only


def role_of(job: Job, task: Task) -> Role:
    """Return the role a task has."""
    return next(role for role in job.spec.roles if role.name == task.role)


def restarts_used(job: Job, task: Task) -> int:
    """Return how often the task was restarted in the current attempt."""
    recoveries = job.records[-1].recoveries
    return sum(one.task == task.name and one.level is RecoverLevel.TASK_RESTART for one in recoveries)


def schedule_count(job: Job, task: Task) -> int:
    """Return how often the task was given a place: with the job, or to replace one that failed."""
    return sum(record.start_type is StartType.SCHEDULED for record in job.records) + sum(
        one.task == task.name and _replaced(one) for record in job.records for one in record.recoveries
    )


def restarts_in_place(job: Job, task: Task) -> int:
    """Return how often the task was started again in the place it has."""
    attempts = itertools.takewhile(lambda one: one.start_type is StartType.RESTARTED, reversed(job.records))
    return sum(1 for _ in attempts) + restarts_used(job, task)


def wants_restart(job: Job, task: Task, news: Ended) -> bool:
    """Say whether a task that has just ended is to be started again in its place."""
    role = role_of(job, task)
    if job.ending is not None or news.cause in _HOPELESS or restarts_used(job, task) >= role.restarts_max:
        return False
    code = 128 + news.signal if news.signal is not None else news.exit_code
    if role.restart is RestartPolicy.EXIT_CODE:
        return code is not None and code >= FAULT_CODE_MIN
    if role.restart is RestartPolicy.ON_FAILURE:
        return code != 0
    return role.restart is RestartPolicy.ALWAYS


def done_reason(job: Job) -> Reason | None:
    """Return why the job is done although some of its tasks still run; None: it is not."""
    if job.spec.success is SuccessPolicy.CHIEF:
        chief = _chief(job)
        if chief.state is TaskState.ENDED and chief.exit_code == 0:
            return Reason(text=f"{chief.name} exited 0", code=ReasonCode.COMPLETED, task=chief.name)
        return None
    working = [task for task in job.tasks if not role_of(job, task).service]
    if working and all(task.state is TaskState.ENDED and task.exit_code == 0 for task in working):
        return Reason(text="every task that works exited 0", code=ReasonCode.COMPLETED)
    return None


def _chief(job: Job) -> Task:
    chiefs = [task for task in job.tasks if role_of(job, task).chief]
    workers = [task for task in job.tasks if not role_of(job, task).service]
    return (chiefs or workers or job.tasks)[0]


def _replaced(one: Recovery) -> bool:
    return one.level is RecoverLevel.POD_RESCHEDULE and one.result in (
        RecoverResult.RECOVERING,
        RecoverResult.SUCCESS,
    )
