"""Knows how what became of a job reads in ModelArts v2: phases, times, tasks, places."""

from collections.abc import Iterator

from trackside.api.modelarts_v2.phases import PHASE_OF
from trackside.api.modelarts_v2.records import running_records
from trackside.api.modelarts_v2.wire_response import JobStatus, TaskPlace, TaskStatus
from trackside.domain.attempts import Start, starts
from trackside.domain.job import Job, TaskState, task_names
from trackside.domain.timing import running_ms


def job_status(job: Job, *, now_ms: int) -> JobStatus:
    """Return the job's status block."""
    phase, secondary = PHASE_OF[job.phase]
    return JobStatus(
        phase=phase,
        secondary_phase=secondary,
        duration=running_ms(job, now_ms=now_ms),
        start_time=job.started_at_ms or 0,
        node_count_metrics=[(at_ms, nodes) for at_ms, nodes in job.node_counts],
        tasks=list(task_names(job.spec)),
        task_statuses=list(_task_statuses(job)),
        running_records=list(running_records(job)),
        task_ips=_present_places(job),
    )


def task_places(job: Job, *, schedule_count: int | None = None) -> list[TaskPlace]:
    """Return where tasks run or ran, of one scheduling or of all; a restart in place is the same place."""
    latest = {(start.scheduled, start.task.rank): start for start in _placed(job)}
    in_order = sorted(latest.items(), key=lambda item: item[0])
    return [_place(start) for _, start in in_order if schedule_count in (None, start.scheduled)]


def _present_places(job: Job) -> list[TaskPlace]:
    present = {(task.name, task.attempt) for task in job.tasks}
    return [_place(start) for start in _placed(job) if (start.task.name, start.task.attempt) in present]


def _placed(job: Job) -> list[Start]:
    return [start for start in starts(job) if start.task.state is not TaskState.WAITING]


def _place(start: Start) -> TaskPlace:
    task = start.task
    return TaskPlace(task=task.name, ip=task.ip, host_ip=task.ip, schedule_count=start.scheduled)


def _task_statuses(job: Job) -> Iterator[TaskStatus]:
    """Yield how tasks ended, and which of the others seem to hang: the vendor has no other place for it."""
    for task in job.tasks:
        if task.state is TaskState.ENDED:
            message = task.reason.text if task.reason else None
            yield TaskStatus(task=task.name, exit_code=task.exit_code, message=message)
        elif job.suspicion is not None and job.suspicion.task in (None, task.name):
            yield TaskStatus(task=task.name, message=job.suspicion.text)
