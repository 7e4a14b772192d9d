"""Knows how a job moves: pure functions from a job and something that happened to the next job.

Nothing here reads a clock or starts anything: times come in, decisions go out. A crash between any two of
these steps is healed by taking them again, because each leaves alone what has happened already.
"""

from collections.abc import Sequence
from dataclasses import replace

from trackside.domain import recovery
from trackside.domain.closing import (
    Change,
    all_ended,
    finish,
    resolve,
    start_place,
    tell,
    with_record,
    with_task,
)
from trackside.domain.endings import end_reason, exit_code
from trackside.domain.event import Event, EventKind, Level
from trackside.domain.exchange import Answered, EndCause, Ended, ErrandKind, Noted, Report, Started
from trackside.domain.fault import BY_QUEUE, IN_PLACE, RecoverLevel, RecoverResult, Recovery, Scenario
from trackside.domain.job import (
    Ending,
    Job,
    NodeId,
    Slot,
    Task,
    TaskState,
    task_name,
)
from trackside.domain.phase import Phase, advance
from trackside.domain.policies import done_reason, wants_restart
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.wording import counted, duration_text

ALIVE = (TaskState.PLACED, TaskState.STARTING, TaskState.RUNNING)
_IN_WORDS = {
    RecoverLevel.NPU_PROC_RESTART: "starting all tasks again where they were",
    RecoverLevel.GPU_PROC_RESTART: "starting all tasks again where they were",
    RecoverLevel.PROC_RESTART: "starting all tasks again where they were",
    RecoverLevel.POD_RESCHEDULE: "replacing it",
    RecoverLevel.JOB_RESCHEDULE: "queueing the job again",
    RecoverLevel.JOB_RESCHEDULE_WITH_TAINT: "isolating what is faulty and queueing the job again",
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
    return moved, (tell(job, at_ms, f"starting {counted(len(tasks), 'task')} on {where}"),)


def apply_report(job: Job, report: Report) -> Change | None:
    """Return what a node's report makes of the job; None if it is old news or of a fenced attempt."""
    if report.started:
        return _started(job, report.started)
    if report.ended:
        return _ended(job, report.ended)
    if report.noted:
        return job, (_noted(job, report.noted),)
    if report.answered:
        return job, (_answered(job, report.answered),)
    return None


def ask_stop(job: Job, *, by: str, at_ms: int) -> Change:
    """Return the job as somebody's wish to stop it leaves it."""
    reason = Reason(text=f"stopped by {by}", code=ReasonCode.STOPPED_BY_USER)
    return end_early(job, reason, at_ms=at_ms)


def end_early(job: Job, reason: Reason, *, at_ms: int) -> Change:
    """Stop a job that is not over: at once if nothing of it runs, else when its tasks have drained."""
    job = _without_waiting(job)
    if all(task.state is TaskState.ENDED for task in job.tasks):
        return finish(job, Phase.STOPPED, reason, at_ms)
    phase = job.phase if job.phase is Phase.STOPPING else advance(job.phase, Phase.STOPPING)
    if job.ending is not None and job.ending.phase not in (Phase.QUEUED, Phase.RESTARTING):
        # Its fate is sealed already; the wish to stop does not change why.
        return replace(job, phase=phase, ending=replace(job.ending, scenario=None)), ()
    ending = Ending(phase=Phase.STOPPED, reason=reason, decided_at_ms=at_ms)
    return replace(job, phase=phase, ending=ending), (tell(job, at_ms, f"stopping: {reason.text}"),)


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
    # The name is for those who could see the job anyway.
    who = for_job.spec.name if for_job.project_id == job.project_id else "a job of another project"
    reason = Reason(
        text=f"preempted by {who} (priority {for_job.spec.priority})",
        code=ReasonCode.PREEMPTED,
        hint="it is queued again by itself; save checkpoints, or submit it with a higher priority",
    )
    return _give_way(job, reason, at_ms=at_ms, kind=EventKind.PREEMPTED)


def evict(job: Job, node_id: NodeId, *, by: str, at_ms: int) -> Change | None:
    """Let a job leave a node that is to be empty: its tasks drain, then it is queued again."""
    if not _lives_on(job, node_id):
        return None
    reason = Reason(
        text=f"{by} emptied the node {node_id}",
        code=ReasonCode.EVICTED,
        hint="it is queued again by itself and goes to another node; save checkpoints",
    )
    return _give_way(job, reason, at_ms=at_ms)


def _give_way(job: Job, reason: Reason, *, at_ms: int, kind: EventKind | None = None) -> Change | None:
    running = job.phase in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)
    if not running or job.ending is not None or not any(task.state in ALIVE for task in job.tasks):
        return None
    ending = Ending(phase=Phase.QUEUED, reason=reason, decided_at_ms=at_ms)
    told = tell(job, at_ms, reason.text, Level.WARNING, kind=kind)
    return replace(_without_waiting(job), ending=ending), (told,)


def suspect(job: Job, reason: Reason, *, at_ms: int, restart: bool = True) -> Change | None:
    """Take note that a job seems to hang; start it again in place if it asked for that, and may."""
    if job.phase is not Phase.RUNNING or job.ending is not None or job.suspicion is not None:
        return None
    told = tell(job, at_ms, reason.text, Level.WARNING, task=reason.task, kind=EventKind.HANGED)
    job = replace(job, suspicion=reason)
    if not restart:
        return job, (told,)
    fault = recovery.Fault(scenario=Scenario.HANGED, reason=reason, at_ms=at_ms)
    answer = recovery.choose(job, fault)
    if answer.level is None:
        return _with_recoveries(job, answer.steps), (told,)
    ending = Ending(phase=Phase.RESTARTING, reason=reason, decided_at_ms=at_ms, scenario=Scenario.HANGED)
    return replace(job, ending=ending), (told, tell(job, at_ms, _IN_WORDS[answer.level]))


def clear(job: Job, *, at_ms: int) -> Change | None:
    """Take a suspicion back: the job moves again."""
    if job.suspicion is None or job.ending is not None:
        return None
    return replace(job, suspicion=None), (tell(job, at_ms, "it moves again"),)


def replace_task(job: Job, rank: int, slot: Slot, *, at_ms: int) -> Change | None:
    """Give a task that is to be replaced its new place; the attempt goes on."""
    task = next((one for one in job.tasks if one.rank == rank and one.state is TaskState.WAITING), None)
    if task is None or job.ending is not None:
        return None
    placed = replace(task, state=TaskState.PLACED, node_id=slot.node_id, cards=slot.cards)
    told = tell(job, at_ms, f"starting {task.name} again on {slot.node_id}", task=task.name)
    return with_task(job, placed, at_ms), (told,)


def cannot_replace(job: Job, why: str, *, at_ms: int) -> Change | None:
    """Fall back to the next coarser level: there is no place for a task that was to be replaced."""
    waiting = [task.name for task in job.tasks if task.state is TaskState.WAITING]
    if not waiting or job.ending is not None:
        return None
    job = _without_waiting(resolve(job, RecoverResult.DOWNGRADE, at_ms, note=why, tasks=frozenset(waiting)))
    task = next(one for one in job.tasks if one.name == waiting[0])
    fault = recovery.task_fault(task, at_ms=task.ended_at_ms or at_ms)
    answer = recovery.choose(job, fault)
    told = tell(job, at_ms, f"{task.name} cannot be replaced: {why}", Level.WARNING, task=task.name)
    job = replace(job, ending=_ending(answer, fault, at_ms))
    if all(one.state is TaskState.ENDED for one in job.tasks):
        return all_ended(job, at_ms, (told,))
    return job, (told,)


def give_up_waiting(job: Job, *, at_ms: int) -> Change | None:
    """Fail a job that was queued again to recover and got no room for too long."""
    trying = recovery.open_recovery(job)
    if job.phase is not Phase.QUEUED or trying is None or trying.level not in BY_QUEUE:
        return None
    limit = duration_text((job.spec.recovery.wait_seconds_max or 0) * 1000)
    reason = Reason(
        text=f"no room to restart for {limit}, after this: {trying.reason.text}",
        code=ReasonCode.RECOVERY_TIMEOUT,
        task=trying.task,
        hint="trackside explain says what it waited for; submit it again when there is room",
    )
    return finish(job, Phase.FAILED, reason, at_ms)


def lose_node(job: Job, node_id: NodeId, *, at_ms: int) -> Change | None:
    """Mark a job whose node has gone silent; it may come back."""
    if job.phase not in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING) or not _lives_on(job, node_id):
        return None
    reason = Reason(text=f"the node {node_id} does not answer", code=ReasonCode.NODE_LOST)
    event = tell(job, at_ms, reason.text, Level.WARNING)
    return replace(job, phase=advance(job.phase, Phase.LOST), reason=reason), (event,)


def regain_node(job: Job, node_id: NodeId, *, at_ms: int) -> Change | None:
    """Bring a lost job back when its node answers again."""
    if job.phase is not Phase.LOST or not _lives_on(job, node_id):
        return None
    phase = advance(job.phase, Phase.RUNNING if _all_up(job) else Phase.STARTING)
    return replace(job, phase=phase, reason=None), (tell(job, at_ms, f"the node {node_id} answers again"),)


def _tasks(job: Job, slots: Sequence[Slot]) -> tuple[Task, ...]:
    wanted = [(role, index) for role in job.spec.roles for index in range(role.count)]
    fresh = start_place(job)
    return tuple(
        fresh(task_name(role.name, index), role, index, rank, slot)
        for rank, ((role, index), slot) in enumerate(zip(wanted, slots, strict=True))
    )


def _lives_on(job: Job, node_id: NodeId) -> bool:
    return any(task.node_id == node_id and task.state in ALIVE for task in job.tasks)


def _all_up(job: Job) -> bool:
    return all(task.state in (TaskState.RUNNING, TaskState.ENDED) for task in job.tasks)


def _current(job: Job, attempt: int, name: str) -> Task | None:
    task = job.task(name)
    return task if task is not None and task.attempt == attempt and not job.final else None


def _started(job: Job, news: Started) -> Change | None:
    task = _current(job, news.key.attempt, news.key.task)
    if task is None or task.state not in (TaskState.PLACED, TaskState.STARTING):
        return None
    up = replace(task, state=TaskState.RUNNING, started_at_ms=news.at_ms, ip=news.ip)
    job = with_task(job, up, news.at_ms)
    job = resolve(job, RecoverResult.SUCCESS, news.at_ms, tasks=frozenset({up.name}))
    events = [tell(job, news.at_ms, f"{task.name} started", task=task.name, attempt=task.attempt)]
    if job.phase in (Phase.STARTING, Phase.RESTARTING) and _all_up(job):
        kind = EventKind.STARTED if job.started_at_ms is None else EventKind.RESTARTED
        job = _running(job, news.at_ms)
        events.append(tell(job, news.at_ms, f"running: {counted(len(job.tasks), 'task')} up", kind=kind))
    return job, tuple(events)


def _running(job: Job, at_ms: int) -> Job:
    record = job.records[-1]
    job = with_record(job, replace(record, running_at_ms=record.running_at_ms or at_ms))
    job = resolve(job, RecoverResult.SUCCESS, at_ms)
    phase = advance(job.phase, Phase.RUNNING)
    return replace(job, phase=phase, started_at_ms=job.started_at_ms or at_ms, reason=None)


def _ended(job: Job, news: Ended) -> Change | None:
    task = _current(job, news.key.attempt, news.key.task)
    if task is None or task.state not in ALIVE:
        return None
    over = _over(job, task, news)
    assert over.reason is not None
    if wants_restart(job, task, news):
        return _start_again(job, over, news.at_ms)
    bad = over.reason.code is not ReasonCode.COMPLETED and job.ending is None
    level = Level.ERROR if bad else Level.INFO
    told: tuple[Event, ...]
    told = (tell(job, news.at_ms, over.reason.text, level, task=task.name, attempt=task.attempt),)
    job = with_task(job, over, news.at_ms)
    if bad:  # the first task that ends badly decides what becomes of the others
        job, more = _fault(job, over, news.at_ms)
        told = (*told, *more)
    if all(one.state is TaskState.ENDED for one in job.tasks):
        return all_ended(job, news.at_ms, told)
    done = done_reason(job) if job.ending is None else None
    if done is not None:  # what still runs only served the tasks that are done
        job = replace(job, ending=Ending(phase=Phase.SUCCEEDED, reason=done, decided_at_ms=news.at_ms))
    return job, told


def _fault(job: Job, over: Task, at_ms: int) -> Change:
    """Answer a task that ended badly: replace it alone, or let the others drain towards what comes next.

    Which task was first is certain only when all have ended, so what is decided here for the whole job is
    decided again then.
    """
    fault = recovery.task_fault(over, at_ms=over.ended_at_ms or at_ms)
    answer = recovery.choose(job, fault)
    words = (tell(job, at_ms, _IN_WORDS[answer.level], task=over.name),) if answer.level else ()
    if answer.level is not RecoverLevel.POD_RESCHEDULE:
        return replace(_without_waiting(job), ending=_ending(answer, fault, at_ms)), words
    return _put_back(job, over, answer.steps, at_ms, state=TaskState.WAITING), words


def _ending(answer: recovery.Answer, fault: recovery.Fault, at_ms: int) -> Ending:
    phase = Phase.FAILED
    if answer.level is not None:
        phase = Phase.RESTARTING if answer.level in IN_PLACE else Phase.QUEUED
    return Ending(phase=phase, reason=fault.reason, decided_at_ms=at_ms, scenario=fault.scenario)


def _start_again(job: Job, over: Task, at_ms: int) -> Change:
    """Put a task that has ended back into its place, by its role's own policy; the attempt goes on."""
    assert over.reason is not None
    step = Recovery(
        level=RecoverLevel.TASK_RESTART,
        scenario=Scenario.FAILED,
        reason=over.reason,
        task=over.name,
        started_at_ms=at_ms,
        charged=False,
    )
    job = _put_back(with_task(job, over, at_ms), over, (step,), at_ms, state=TaskState.PLACED)
    again = sum(one.level is RecoverLevel.TASK_RESTART for one in job.records[-1].recoveries)
    told = f"{over.reason.text}; starting it again ({again})"
    return job, (tell(job, at_ms, told, Level.WARNING, task=over.name, attempt=over.attempt),)


def _put_back(job: Job, over: Task, steps: Sequence[Recovery], at_ms: int, *, state: TaskState) -> Job:
    """Put a fresh task where one has ended."""
    again = Task(
        name=over.name,
        role=over.role,
        index=over.index,
        rank=over.rank,
        attempt=over.attempt + 1,
        record=over.record,
        node_id=over.node_id,
        resources=over.resources,
        cards=over.cards,
        state=state,
    )
    job = _with_recoveries(with_task(job, again, at_ms), steps)
    phase = job.phase if job.phase is Phase.RESTARTING else advance(job.phase, Phase.RESTARTING)
    return replace(job, past_tasks=(*job.past_tasks, over), phase=phase)


def _without_waiting(job: Job) -> Job:
    """Take back what was to replace a task: it ended, and nothing will follow it in this attempt."""
    waiting = {task.name for task in job.tasks if task.state is TaskState.WAITING}
    if not waiting:
        return job
    past = list(job.past_tasks)
    ended = {}
    for task in reversed(job.past_tasks):
        if task.name in waiting and task.name not in ended:
            ended[task.name] = task
            past.remove(task)
    tasks = tuple(ended.get(task.name, task) for task in job.tasks)
    return replace(job, tasks=tasks, past_tasks=tuple(past))


def _with_recoveries(job: Job, steps: Sequence[Recovery]) -> Job:
    record = job.records[-1]
    return with_record(job, replace(record, recoveries=(*record.recoveries, *steps)))


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


def _noted(job: Job, news: Noted) -> Event:
    return tell(job, news.at_ms, news.message, news.level, task=news.key.task, attempt=news.key.attempt)


def _answered(job: Job, news: Answered) -> Event:
    found = "done" if news.kind is ErrandKind.STACKS or not news.text else news.text  # stacks are long
    outcome = found if news.done else f"could not be done: {news.text}"
    message = f"{news.kind.value.replace('_', ' ')} of {news.key.task}: {outcome}"
    level = Level.INFO if news.done else Level.WARNING
    return tell(job, news.at_ms, message, level, task=news.key.task, attempt=news.key.attempt)
