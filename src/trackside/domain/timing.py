"""Knows how long jobs and attempts have run."""

from trackside.domain.attempts import SINGLE
from trackside.domain.job import Job, Record, Task


def first_starts(job: Job) -> dict[int, int]:
    """Return when the first task of each attempt started, by the attempt's number; none if none did."""
    found: dict[int, int] = {}
    for task in (*job.past_tasks, *job.tasks):
        if task.started_at_ms is not None:
            found[task.record] = min(task.started_at_ms, found.get(task.record, task.started_at_ms))
    running = {record.number: record.running_at_ms for record in job.records if record.running_at_ms}
    return running | found


def running_time(job: Job) -> tuple[int, int | None]:
    """Return how long the attempts that are over ran, and since when the present one runs, if it does."""
    starts = first_starts(job)
    over = [record for record in job.records if record.ended_at_ms is not None]
    done = sum(attempt_ms(record, starts.get(record.number)) for record in over)
    open_record = next((record for record in job.records[-1:] if record.ended_at_ms is None), None)
    return done, starts.get(open_record.number) if open_record else None


def running_ms(job: Job, *, now_ms: int) -> int:
    """Return how long the job has run, over all its attempts; 0 before it ran."""
    done, since = running_time(job)
    return done if since is None else done + max(0, now_ms - since)


def attempt_ms(record: Record, started_at_ms: int | None) -> int:
    """Return how long an attempt ran that is over: by the node's monotonic clock, if one start was all."""
    one_start = not any(one.level in SINGLE for one in record.recoveries)
    if record.duration_ms is not None and one_start:
        return record.duration_ms
    ended = record.ended_at_ms
    spanned = 0 if started_at_ms is None or ended is None else max(0, ended - started_at_ms)
    return max(spanned, record.duration_ms or 0)


def task_ms(task: Task, *, now_ms: int | None = None) -> int:
    """Return how long one start of a task ran, or has run by now; 0 if it never did."""
    if task.duration_ms is not None:
        return max(0, task.duration_ms)
    until = task.ended_at_ms if task.ended_at_ms is not None else now_ms
    return 0 if task.started_at_ms is None or until is None else max(0, until - task.started_at_ms)
