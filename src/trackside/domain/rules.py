"""Knows how a job moves: pure functions from a job and something that happened to the next job.

Nothing here reads a clock or starts anything: times come in, decisions go out. A crash between any two of
these steps is healed by taking them again, because each leaves alone what has happened already.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from trackside.domain.endings import end_reason, exit_code
from trackside.domain.event import Event, Level
from trackside.domain.exchange import EndCause, Ended, Noted, Report, Started
from trackside.domain.job import (
    Ending,
    Job,
    NodeId,
    Record,
    Restart,
    Slot,
    Task,
    TaskName,
    TaskState,
    task_name,
)
from trackside.domain.phase import FINAL, Phase, advance
from trackside.domain.policies import done_reason, wants_restart
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.wording import counted, duration_text

Change = tuple[Job, tuple[Event, ...]]
ALIVE = (TaskState.PLACED, TaskState.STARTING, TaskState.RUNNING)
_OUTCOME = {
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
    Phase.CREATE_FAILED: "could not be started",
    Phase.STOPPED: "stopped",
}


def place(job: Job, slots: Sequence[Slot], *, master_port: int, at_ms: int) -> Change:
    """Give every task of a queued job its node: the durable intent to start this attempt."""
    record = replace(job.records[-1], placed_at_ms=at_ms, master_port=master_port)
    tasks = _tasks(job, slots)
    moved = replace(
        job,
        phase=advance(job.phase, Phase.STARTING),
        records=(*job.records[:-1], record),
        tasks=tasks,
        reason=None,
    )
    where = ", ".join(sorted({slot.node_id for slot in slots}))
    return moved, (_event(job, at_ms, f"starting {counted(len(tasks), 'task')} on {where}"),)


def apply_report(job: Job, report: Report) -> Change | None:
    """Return what a node's report makes of the job; None if it is old news or of a fenced attempt."""
    if report.started:
        return _started(job, report.started)
    if report.ended:
        return _ended(job, report.ended)
    if report.noted:
        return job, (_noted(job, report.noted),)
    return None


def ask_stop(job: Job, *, by: str, at_ms: int) -> Change:
    """Return the job as somebody's wish to stop it leaves it."""
    reason = Reason(text=f"stopped by {by}", code=ReasonCode.STOPPED_BY_USER)
    return end_early(job, reason, at_ms=at_ms)


def end_early(job: Job, reason: Reason, *, at_ms: int) -> Change:
    """Stop a job that is not over: at once if nothing of it runs, else when its tasks have drained."""
    if all(task.state is TaskState.ENDED for task in job.tasks):
        return _finish(job, Phase.STOPPED, reason, at_ms)
    phase = job.phase if job.phase is Phase.STOPPING else advance(job.phase, Phase.STOPPING)
    if job.ending is not None and job.ending.phase is not Phase.QUEUED:
        # Its fate is sealed already; the wish to stop does not change why.
        return replace(job, phase=phase), ()
    ending = Ending(phase=Phase.STOPPED, reason=reason, decided_at_ms=at_ms)
    return replace(job, phase=phase, ending=ending), (_event(job, at_ms, f"stopping: {reason.text}"),)


def overdue_reason(job: Job) -> Reason:
    """Say that the job ran for as long as it may."""
    limit = duration_text((job.spec.max_seconds or 0) * 1000)
    return Reason(
        text=f"stopped after {limit}, the longest it may run",
        code=ReasonCode.MAX_DURATION,
        hint="raise spec.auto_stop, or leave it out to have no limit",
    )


def preempt(job: Job, for_job: Job, *, at_ms: int) -> Change | None:
    """Let a running job make room: its tasks drain, then it is queued again. None: it cannot, or not now."""
    running = job.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)
    if not running or job.ending is not None or not any(task.state in ALIVE for task in job.tasks):
        return None
    # The name is for those who could see the job anyway.
    who = for_job.spec.name if for_job.project_id == job.project_id else "a job of another project"
    reason = Reason(
        text=f"preempted by {who} (priority {for_job.spec.priority})",
        code=ReasonCode.PREEMPTED,
        hint="it is queued again by itself; save checkpoints, or submit it with a higher priority",
    )
    ending = Ending(phase=Phase.QUEUED, reason=reason, decided_at_ms=at_ms)
    return replace(job, ending=ending), (_event(job, at_ms, reason.text, Level.WARNING),)


def lose_node(job: Job, node_id: NodeId, *, at_ms: int) -> Change | None:
    """Mark a job whose node has gone silent; it may come back."""
    if job.phase not in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING) or not _lives_on(job, node_id):
        return None
    reason = Reason(text=f"the node {node_id} does not answer", code=ReasonCode.NODE_LOST)
    event = _event(job, at_ms, reason.text, Level.WARNING)
    return replace(job, phase=advance(job.phase, Phase.LOST), reason=reason), (event,)


def regain_node(job: Job, node_id: NodeId, *, at_ms: int) -> Change | None:
    """Bring a lost job back when its node answers again."""
    if job.phase is not Phase.LOST or not _lives_on(job, node_id):
        return None
    phase = advance(job.phase, Phase.RUNNING if _all_up(job) else Phase.STARTING)
    return replace(job, phase=phase, reason=None), (_event(job, at_ms, f"the node {node_id} answers again"),)


def _tasks(job: Job, slots: Sequence[Slot]) -> tuple[Task, ...]:
    wanted = [(role, index) for role in job.spec.roles for index in range(role.count)]
    starts = Counter(task.name for task in job.past_tasks)
    return tuple(
        Task(
            name=task_name(role.name, index),
            role=role.name,
            index=index,
            rank=rank,
            attempt=1 + starts[task_name(role.name, index)],  # a key is never started twice
            node_id=slot.node_id,
            resources=role.resources,
            cards=slot.cards,
        )
        for rank, ((role, index), slot) in enumerate(zip(wanted, slots, strict=True))
    )


def _lives_on(job: Job, node_id: NodeId) -> bool:
    return any(task.node_id == node_id and task.state in ALIVE for task in job.tasks)


def _all_up(job: Job) -> bool:
    return all(task.state in (TaskState.RUNNING, TaskState.ENDED) for task in job.tasks)


def _current(job: Job, attempt: int, name: str) -> Task | None:
    task = job.task(name)
    return task if task is not None and task.attempt == attempt and not job.final else None


def _with_task(job: Job, task: Task, at_ms: int) -> Job:
    tasks = tuple(task if one.name == task.name else one for one in job.tasks)
    running = sum(one.state is TaskState.RUNNING for one in tasks)
    counts = job.node_counts
    if not counts or counts[-1][1] != running:
        last_ms = counts[-1][0] if counts else at_ms
        counts = (*counts, (max(at_ms, last_ms), running))
    return replace(job, tasks=tasks, node_counts=counts)


def _started(job: Job, news: Started) -> Change | None:
    task = _current(job, news.key.attempt, news.key.task)
    if task is None or task.state not in (TaskState.PLACED, TaskState.STARTING):
        return None
    up = replace(task, state=TaskState.RUNNING, started_at_ms=news.at_ms, ip=news.ip)
    job = _restarted(_with_task(job, up, news.at_ms), up)
    events = [_event(job, news.at_ms, f"{task.name} started", task=task.name, attempt=task.attempt)]
    if job.phase in (Phase.STARTING, Phase.RESTARTING) and _all_up(job):
        job = _running(job, news.at_ms)
        events.append(_event(job, news.at_ms, f"running: {counted(len(job.tasks), 'task')} up"))
    return job, tuple(events)


def _restarted(job: Job, up: Task) -> Job:
    """Note when a task that was started again came up."""
    record = job.records[-1]
    waiting = [i for i, one in enumerate(record.restarts) if one.task == up.name and one.up_at_ms is None]
    if not waiting:
        return job
    restarts = list(record.restarts)
    restarts[waiting[0]] = replace(restarts[waiting[0]], up_at_ms=up.started_at_ms)
    return replace(job, records=(*job.records[:-1], replace(record, restarts=tuple(restarts))))


def _running(job: Job, at_ms: int) -> Job:
    record = job.records[-1]
    record = replace(record, running_at_ms=record.running_at_ms or at_ms)
    return replace(
        job,
        phase=advance(job.phase, Phase.RUNNING),
        started_at_ms=job.started_at_ms or at_ms,
        records=(*job.records[:-1], record),
    )


def _ended(job: Job, news: Ended) -> Change | None:
    task = _current(job, news.key.attempt, news.key.task)
    if task is None or task.state is TaskState.ENDED:
        return None
    over = _over(job, task, news)
    assert over.reason is not None
    if wants_restart(job, task, news):
        return _start_again(job, over, news.at_ms)
    bad = over.reason.code is not ReasonCode.COMPLETED and job.ending is None
    level = Level.ERROR if bad else Level.INFO
    told = (_event(job, news.at_ms, over.reason.text, level, task=task.name, attempt=task.attempt),)
    job = _with_task(job, over, news.at_ms)
    if bad:  # the first task that ends badly decides the job's fate; the others are then told to stop
        ending = Ending(phase=Phase.FAILED, reason=over.reason, decided_at_ms=news.at_ms)
        job = replace(job, ending=ending)
    if all(one.state is TaskState.ENDED for one in job.tasks):
        return _all_ended(job, news.at_ms, told)
    done = done_reason(job) if job.ending is None else None
    if done is not None:  # what still runs only served the tasks that are done
        job = replace(job, ending=Ending(phase=Phase.SUCCEEDED, reason=done, decided_at_ms=news.at_ms))
    return job, told


def _start_again(job: Job, over: Task, at_ms: int) -> Change:
    """Put a task that has ended back into its place; the attempt goes on."""
    assert over.reason is not None
    again = Task(
        name=over.name,
        role=over.role,
        index=over.index,
        rank=over.rank,
        attempt=over.attempt + 1,
        node_id=over.node_id,
        resources=over.resources,
        cards=over.cards,
    )
    record = job.records[-1]
    restart = Restart(task=over.name, at_ms=at_ms, reason=over.reason)
    job = replace(
        _with_task(job, again, at_ms),
        records=(*job.records[:-1], replace(record, restarts=(*record.restarts, restart))),
        past_tasks=(*job.past_tasks, over),
        phase=advance(job.phase, Phase.RESTARTING) if job.phase is not Phase.RESTARTING else job.phase,
    )
    told = f"{over.reason.text}; starting it again ({len(job.records[-1].restarts)})"
    return job, (_event(job, at_ms, told, Level.WARNING, task=over.name, attempt=over.attempt),)


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
    )


def _all_ended(job: Job, at_ms: int, told: tuple[Event, ...]) -> Change:
    if job.ending is None:
        reason = Reason(text="every task exited 0", code=ReasonCode.COMPLETED)
        return _finish(job, Phase.SUCCEEDED, reason, at_ms, told)
    phase = job.ending.phase
    if phase is Phase.QUEUED:
        if all(task.reason is not None and task.reason.code is ReasonCode.COMPLETED for task in job.tasks):
            done = Reason(text="every task exited 0", code=ReasonCode.COMPLETED)
            return _finish(job, Phase.SUCCEEDED, done, at_ms, told)
        return _queue_again(job, job.ending.reason, at_ms, told)
    if phase is Phase.FAILED and all(task.started_at_ms is None for task in job.tasks):
        phase = Phase.CREATE_FAILED
    return _finish(job, phase, job.ending.reason, at_ms, told)


def _finish(job: Job, phase: Phase, reason: Reason, at_ms: int, told: tuple[Event, ...] = ()) -> Change:
    assert phase in FINAL
    ended_at_ms = _ended_at_ms(job, at_ms)
    culprit = TaskName(reason.task) if reason.task and phase is not Phase.SUCCEEDED else None
    record = replace(_closed(job, reason, ended_at_ms), culprit=culprit)
    done = replace(
        job,
        phase=advance(job.phase, phase),
        started_at_ms=_first_ran_ms(job),
        ended_at_ms=ended_at_ms,
        records=(*job.records[:-1], record),
        ending=None,
        reason=reason,
    )
    level = Level.INFO if phase in (Phase.SUCCEEDED, Phase.STOPPED) else Level.ERROR
    return done, (*told, _event(job, ended_at_ms, f"{_OUTCOME[phase]}: {reason.text}", level))


def _queue_again(job: Job, reason: Reason, at_ms: int, told: tuple[Event, ...]) -> Change:
    """Close the attempt and let the job wait for the next one; what it left behind stays."""
    ended_at_ms = _ended_at_ms(job, at_ms)
    closed = _closed(job, reason, ended_at_ms)
    fresh = Record(number=closed.number + 1, queued_at_ms=closed.ended_at_ms or ended_at_ms)
    waiting = replace(
        job,
        phase=advance(job.phase, Phase.QUEUED),
        started_at_ms=_first_ran_ms(job),
        records=(*job.records[:-1], closed, fresh),
        past_tasks=(*job.past_tasks, *job.tasks),
        tasks=(),
        ending=None,
        reason=reason,
    )
    return waiting, (*told, _event(job, ended_at_ms, f"queued again: {reason.text}", Level.WARNING))


def _closed(job: Job, reason: Reason, ended_at_ms: int) -> Record:
    return replace(
        job.records[-1],
        ended_at_ms=max(ended_at_ms, job.records[-1].queued_at_ms),
        duration_ms=max((task.duration_ms or 0 for task in job.tasks if task.started_at_ms), default=None),
        reason=reason,
    )


def _ended_at_ms(job: Job, at_ms: int) -> int:
    return max([at_ms, *(task.ended_at_ms or 0 for task in job.tasks)])


def _first_ran_ms(job: Job) -> int | None:
    """Return when the job first ran: it can be over before all its tasks were up, and ran all the same."""
    starts = [task.started_at_ms for task in job.tasks if task.started_at_ms is not None]
    return job.started_at_ms or min(starts, default=None)


def _event(
    job: Job,
    at_ms: int,
    message: str,
    level: Level = Level.INFO,
    *,
    task: str | None = None,
    attempt: int | None = None,
) -> Event:
    return Event(job_id=job.id, at_ms=at_ms, message=message, level=level, task=task, attempt=attempt)


def _noted(job: Job, news: Noted) -> Event:
    return _event(job, news.at_ms, news.message, news.level, task=news.key.task, attempt=news.key.attempt)
