"""Knows how a job moves: pure functions from a job and something that happened to the next job.

Nothing here reads a clock or starts anything: times come in, decisions go out. A crash between any two of
these steps is healed by taking them again, because each leaves alone what has happened already.
"""

from collections.abc import Sequence
from dataclasses import replace

from trackside.domain import recovery, reported
from trackside.domain.answering import IN_WORDS, ending_of, with_recoveries, without_waiting
from trackside.domain.closing import Change, all_ended, finish, resolve, start_place, tell, with_task
from trackside.domain.event import EventKind, Level
from trackside.domain.exchange import Report
from trackside.domain.fault import BY_QUEUE, RecoverResult, Scenario
from trackside.domain.job import Ending, Job, NodeId, Slot, Task, TaskState, task_name
from trackside.domain.phase import Phase, advance
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.reported import ALIVE, all_up
from trackside.domain.wording import counted, duration_text


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
        return reported.started(job, report.started)
    if report.ended:
        return reported.ended(job, report.ended)
    if report.noted:
        return job, (reported.noted(job, report.noted),)
    if report.answered:
        return job, (reported.answered(job, report.answered),)
    return None


def ask_stop(job: Job, *, by: str, at_ms: int) -> Change:
    """Return the job as somebody's wish to stop it leaves it."""
    reason = Reason(text=f"stopped by {by}", code=ReasonCode.STOPPED_BY_USER)
    return end_early(job, reason, at_ms=at_ms)


def end_early(job: Job, reason: Reason, *, at_ms: int) -> Change:
    """Stop a job that is not over: at once if nothing of it runs, else when its tasks have drained."""
    job = without_waiting(job)
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
    return replace(without_waiting(job), ending=ending), (told,)


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
        return with_recoveries(job, answer.steps), (told,)
    ending = Ending(phase=Phase.RESTARTING, reason=reason, decided_at_ms=at_ms, scenario=Scenario.HANGED)
    return replace(job, ending=ending), (told, tell(job, at_ms, IN_WORDS[answer.level]))


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
    job = without_waiting(resolve(job, RecoverResult.DOWNGRADE, at_ms, note=why, tasks=frozenset(waiting)))
    task = next(one for one in job.tasks if one.name == waiting[0])
    fault = recovery.task_fault(task, at_ms=task.ended_at_ms or at_ms)
    answer = recovery.choose(job, fault)
    told = tell(job, at_ms, f"{task.name} cannot be replaced: {why}", Level.WARNING, task=task.name)
    job = replace(job, ending=ending_of(answer, fault, at_ms))
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
    phase = advance(job.phase, Phase.RUNNING if all_up(job) else Phase.STARTING)
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
