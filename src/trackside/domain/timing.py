"""Knows how long jobs and attempts have run."""

from trackside.domain.job import Job, Record


def first_start(job: Job, record: Record) -> int | None:
    """Return when the first task of an attempt started; None if none did."""
    starts = [
        task.started_at_ms
        for task in (*job.past_tasks, *job.tasks)
        if task.started_at_ms is not None
        and task.started_at_ms >= record.queued_at_ms
        and (record.ended_at_ms is None or task.started_at_ms <= record.ended_at_ms)
    ]
    return min(starts, default=record.running_at_ms)


def running_time(job: Job) -> tuple[int, int | None]:
    """Return how long the attempts that are over ran, and since when the present one runs, if it does."""
    done = sum(_over_ms(job, record) for record in job.records if record.ended_at_ms is not None)
    open_record = next((record for record in job.records[-1:] if record.ended_at_ms is None), None)
    return done, first_start(job, open_record) if open_record else None


def running_ms(job: Job, *, now_ms: int) -> int:
    """Return how long the job has run, over all its attempts; 0 before it ran."""
    done, since = running_time(job)
    return done if since is None else done + max(0, now_ms - since)


def _over_ms(job: Job, record: Record) -> int:
    """Return how long an attempt ran that is over: by the node's monotonic clock, if one start was all."""
    if record.duration_ms is not None and not record.recoveries:
        return record.duration_ms
    started, ended = first_start(job, record), record.ended_at_ms
    spanned = 0 if started is None or ended is None else max(0, ended - started)
    return max(spanned, record.duration_ms or 0)
