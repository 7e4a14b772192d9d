"""Knows what a node's news of a task makes of the job: pure, and nothing if they are old or fenced."""

from dataclasses import replace

from trackside.domain.answering import answer_fault, start_again
from trackside.domain.closing import Change, all_ended, resolve, tell, with_record, with_task
from trackside.domain.endings import end_reason, exit_code
from trackside.domain.event import Event, EventKind, Level
from trackside.domain.exchange import Answered, EndCause, Ended, ErrandKind, Noted, Started
from trackside.domain.fault import RecoverResult
from trackside.domain.job import Ending, Job, Task, TaskState
from trackside.domain.phase import Phase, advance
from trackside.domain.policies import done_reason, wants_restart
from trackside.domain.reason import ReasonCode
from trackside.domain.wording import counted

ALIVE = (TaskState.PLACED, TaskState.STARTING, TaskState.RUNNING)


def started(job: Job, news: Started) -> Change | None:
    """Return the job with a task that runs; None: that is known, or of a start that does not count."""
    task = _current(job, news.key.attempt, news.key.task)
    if task is None or task.state not in (TaskState.PLACED, TaskState.STARTING):
        return None
    up = replace(task, state=TaskState.RUNNING, started_at_ms=news.at_ms, ip=news.ip)
    job = with_task(job, up, news.at_ms)
    job = resolve(job, RecoverResult.SUCCESS, news.at_ms, tasks=frozenset({up.name}))
    events = [tell(job, news.at_ms, f"{task.name} started", task=task.name, attempt=task.attempt)]
    if job.phase in (Phase.STARTING, Phase.RESTARTING) and all_up(job):
        kind = EventKind.STARTED if job.started_at_ms is None else EventKind.RESTARTED
        job = _running(job, news.at_ms)
        events.append(tell(job, news.at_ms, f"running: {counted(len(job.tasks), 'task')} up", kind=kind))
    return job, tuple(events)


def ended(job: Job, news: Ended) -> Change | None:
    """Return the job with a task that is over, and what follows from it; None as above."""
    task = _current(job, news.key.attempt, news.key.task)
    if task is None or task.state not in ALIVE:
        return None
    over = _over(job, task, news)
    assert over.reason is not None
    if wants_restart(job, task, news):
        return start_again(job, over, news.at_ms)
    bad = over.reason.code is not ReasonCode.COMPLETED and job.ending is None
    level = Level.ERROR if bad else Level.INFO
    told: tuple[Event, ...]
    told = (tell(job, news.at_ms, over.reason.text, level, task=task.name, attempt=task.attempt),)
    job = with_task(job, over, news.at_ms)
    if bad:  # the first task that ends badly decides what becomes of the others
        job, more = answer_fault(job, over, news.at_ms)
        told = (*told, *more)
    if all(one.state is TaskState.ENDED for one in job.tasks):
        return all_ended(job, news.at_ms, told)
    done = done_reason(job) if job.ending is None else None
    if done is not None:  # what still runs only served the tasks that are done
        job = replace(job, ending=Ending(phase=Phase.SUCCEEDED, reason=done, decided_at_ms=news.at_ms))
    return job, told


def noted(job: Job, news: Noted) -> Event:
    """Return the event of what the node has to say about a task."""
    return tell(job, news.at_ms, news.message, news.level, task=news.key.task, attempt=news.key.attempt)


def answered(job: Job, news: Answered) -> Event:
    """Return the event of an errand that was done, or could not be."""
    found = "done" if news.kind == ErrandKind.STACKS or not news.text else news.text  # stacks are long
    outcome = found if news.done else f"could not be done: {news.text}"
    message = f"{news.kind.replace('_', ' ')} of {news.key.task}: {outcome}"
    level = Level.INFO if news.done else Level.WARNING
    return tell(job, news.at_ms, message, level, task=news.key.task, attempt=news.key.attempt)


def all_up(job: Job) -> bool:
    """Say whether no task is still to start."""
    return all(task.state in (TaskState.RUNNING, TaskState.ENDED) for task in job.tasks)


def _current(job: Job, attempt: int, name: str) -> Task | None:
    task = job.task(name)
    return task if task is not None and task.attempt == attempt and not job.final else None


def _running(job: Job, at_ms: int) -> Job:
    record = job.records[-1]
    job = with_record(job, replace(record, running_at_ms=record.running_at_ms or at_ms))
    job = resolve(job, RecoverResult.SUCCESS, at_ms)
    phase = advance(job.phase, Phase.RUNNING)
    return replace(job, phase=phase, started_at_ms=job.started_at_ms or at_ms, reason=None)


def _over(job: Job, task: Task, news: Ended) -> Task:
    started_at_ms = task.started_at_ms
    if started_at_ms is None and news.cause in (EndCause.EXITED, EndCause.SHIM_LOST):
        started_at_ms = news.at_ms - (news.duration_ms or 0)
    return replace(
        task,
        state=TaskState.ENDED,
        started_at_ms=started_at_ms,
        # Wall clocks jump: an end before its start would be a lie, so the node's monotonic duration wins.
        ended_at_ms=max(news.at_ms, (started_at_ms or 0) + (news.duration_ms or 0)),
        duration_ms=news.duration_ms,
        exit_code=exit_code(news),
        signal=news.signal,
        reason=end_reason(job, task, news),
        ended_order_ms=news.at_ms if news.ended_boot_ms is None else news.ended_boot_ms,
        stopped_by_us=news.stopped_by_us,
        memory_peak_bytes=news.memory_peak_bytes,
        evidence=news.evidence,
    )
