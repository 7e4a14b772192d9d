"""Knows how long a job has run, as ModelArts v1 counts it: in milliseconds, over all its attempts."""

from trackside.domain.job import Job, Record


def running_ms(job: Job, *, now_ms: int) -> int:
    """Return how long the job has run; 0 before it ran."""
    return sum(_record_ms(job, record, now_ms) for record in job.records)


def _record_ms(job: Job, record: Record, now_ms: int) -> int:
    """Return how long an attempt ran: by the node's monotonic clock once it is over and said so."""
    if record.ended_at_ms is not None and record.duration_ms is not None:
        return record.duration_ms
    started = _first_start(job, record)
    if started is None:
        return 0
    return max(0, (now_ms if record.ended_at_ms is None else record.ended_at_ms) - started)


def _first_start(job: Job, record: Record) -> int | None:
    starts = [
        task.started_at_ms
        for task in (*job.past_tasks, *job.tasks)
        if task.started_at_ms is not None
        and task.started_at_ms >= record.queued_at_ms
        and (record.ended_at_ms is None or task.started_at_ms <= record.ended_at_ms)
    ]
    return min(starts, default=record.running_at_ms)
