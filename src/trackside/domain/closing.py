"""Knows how an attempt is closed once all its tasks have ended, and what comes after it."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from trackside.domain import recovery
from trackside.domain.blame import culprit_of, exits_of, folded
from trackside.domain.event import Event, EventKind, Level
from trackside.domain.fault import IN_PLACE, RecoverLevel, RecoverResult, Scenario
from trackside.domain.job import (
    Job,
    Record,
    Role,
    Slot,
    StartType,
    Task,
    TaskName,
    TaskState,
)
from trackside.domain.phase import FINAL, Phase, advance
from trackside.domain.policies import role_of
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.wording import counted

Change = tuple[Job, tuple[Event, ...]]
_OUTCOME = {
    Phase.SUCCEEDED: ("succeeded", Level.INFO, EventKind.COMPLETED, RecoverResult.SUCCESS),
    Phase.FAILED: ("failed", Level.ERROR, EventKind.FAILED, RecoverResult.FAILED),
    Phase.CREATE_FAILED: ("could not be started", Level.ERROR, EventKind.FAILED, RecoverResult.FAILED),
    Phase.STOPPED: ("stopped", Level.INFO, EventKind.STOPPED, RecoverResult.TERMINATED),
}


def all_ended(job: Job, at_ms: int, told: tuple[Event, ...]) -> Change:
    """Close the attempt whose last task has ended, and begin what follows."""
    ending = job.ending
    if ending is None or (ending.phase in (Phase.QUEUED, Phase.RESTARTING) and _all_completed(job)):
        reason = Reason(text="every task exited 0", code=ReasonCode.COMPLETED)
        return finish(job, Phase.SUCCEEDED, reason, at_ms, told)
    if ending.scenario is not None:
        return _after_fault(job, at_ms, told)
    if ending.phase is Phase.QUEUED:
        return _queue_again(_given_up(job, RecoverResult.TERMINATED, at_ms), ending.reason, at_ms, told)
    return finish(job, ending.phase, ending.reason, at_ms, told)


def finish(job: Job, phase: Phase, reason: Reason, at_ms: int, told: tuple[Event, ...] = ()) -> Change:
    """End a job for good."""
    assert phase in FINAL
    outcome, level, kind, result = _OUTCOME[phase]
    job = _given_up(resolve(job, result, at_ms), result, at_ms)
    ended_at_ms = _ended_at_ms(job, at_ms)
    blamed = TaskName(reason.task) if reason.task and phase is not Phase.SUCCEEDED else None
    done = replace(
        with_record(job, replace(_closed(job, reason, ended_at_ms), culprit=blamed)),
        phase=advance(job.phase, phase),
        started_at_ms=_first_ran_ms(job),
        ended_at_ms=ended_at_ms,
        ending=None,
        reason=reason,
        suspicion=None,
    )
    return done, (*told, tell(job, ended_at_ms, f"{outcome}: {reason.text}", level, kind=kind))


def resolve(
    job: Job,
    result: RecoverResult,
    at_ms: int,
    *,
    note: str | None = None,
    tasks: frozenset[TaskName] | None = None,
) -> Job:
    """Close the recoveries under way: those of these tasks alone, or else those of the whole job."""

    def closed(record: Record) -> Record:
        recoveries = tuple(
            replace(one, result=result, ended_at_ms=max(at_ms, one.started_at_ms), note=note or one.note)
            if one.result is RecoverResult.RECOVERING and _is_of(one.level, one.task, tasks)
            else one
            for one in record.recoveries
        )
        return record if recoveries == record.recoveries else replace(record, recoveries=recoveries)

    return replace(job, records=tuple(closed(record) for record in job.records))


def with_record(job: Job, record: Record) -> Job:
    """Return the job with its present record replaced."""
    return replace(job, records=(*job.records[:-1], record))


def with_task(job: Job, task: Task, at_ms: int) -> Job:
    """Return the job with one of its tasks replaced, and the change of running tasks counted."""
    tasks = tuple(task if one.name == task.name else one for one in job.tasks)
    return replace(job, tasks=tasks, node_counts=_counted(job, tasks, at_ms))


def start_place(job: Job) -> Callable[[TaskName, Role, int, int, Slot], Task]:
    """Return what makes the tasks of the present record."""
    starts = Counter(task.name for task in job.past_tasks)
    number = job.records[-1].number

    def fresh(name: TaskName, role: Role, index: int, rank: int, slot: Slot) -> Task:
        return Task(
            name=name,
            role=role.name,
            index=index,
            rank=rank,
            attempt=1 + starts[name],  # a key is never started twice
            record=number,
            node_id=slot.node_id,
            resources=role.resources,
            cards=slot.cards,
        )

    return fresh


def tell(
    job: Job,
    at_ms: int,
    message: str,
    level: Level = Level.INFO,
    *,
    task: str | None = None,
    attempt: int | None = None,
    kind: EventKind | None = None,
) -> Event:
    """Return an event of the job."""
    return Event(
        job_id=job.id, at_ms=at_ms, message=message, level=level, task=task, attempt=attempt, kind=kind
    )


def _after_fault(job: Job, at_ms: int, told: tuple[Event, ...]) -> Change:
    """Find out which task was the first to fail, and answer that."""
    assert job.ending is not None
    reason, scenario = job.ending.reason, job.ending.scenario
    fault = recovery.Fault(scenario=Scenario.HANGED, reason=reason, at_ms=job.ending.decided_at_ms)
    blamed = None if scenario is Scenario.HANGED else culprit_of(job.tasks)
    if blamed is not None:
        job = replace(job, tasks=folded(job.tasks, blamed))
        fault = recovery.task_fault(blamed, at_ms=blamed.ended_at_ms or at_ms)
    answer = recovery.choose(job, fault, drained=True)
    job = _given_up(resolve(job, RecoverResult.FAILED, at_ms), RecoverResult.FAILED, at_ms)
    record = replace(job.records[-1], culprit=blamed.name if blamed else None)
    job = with_record(job, replace(record, recoveries=(*record.recoveries, *answer.steps)))
    if answer.level is None:
        never_ran = all(task.started_at_ms is None for task in (*job.past_tasks, *job.tasks))
        phase = Phase.CREATE_FAILED if never_ran and job.phase is Phase.STARTING else Phase.FAILED
        return finish(job, phase, fault.reason, at_ms, told)
    if answer.level in IN_PLACE:
        return _restart_all(job, fault.reason, at_ms, told)
    return _queue_again(job, fault.reason, at_ms, told)


def _given_up(job: Job, result: RecoverResult, at_ms: int) -> Job:
    """Close what was being done for single tasks: their attempt is over."""
    return resolve(job, result, at_ms, tasks=frozenset(task.name for task in job.tasks))


def _restart_all(job: Job, reason: Reason, at_ms: int, told: tuple[Event, ...]) -> Change:
    """Close the attempt and start all its tasks again at once, where they were."""
    ended_at_ms = _ended_at_ms(job, at_ms)
    closed = _closed(job, reason, ended_at_ms)
    fresh_record = Record(
        number=closed.number + 1,
        start_type=StartType.RESTARTED,
        queued_at_ms=closed.ended_at_ms or ended_at_ms,
        placed_at_ms=closed.ended_at_ms or ended_at_ms,
        master_port=closed.master_port,
    )
    former = job.tasks
    job = replace(
        job,
        phase=job.phase if job.phase is Phase.RESTARTING else advance(job.phase, Phase.RESTARTING),
        started_at_ms=_first_ran_ms(job),
        records=(*job.records[:-1], closed, fresh_record),
        past_tasks=(*job.past_tasks, *former),
        ending=None,
        suspicion=None,
        reason=reason,
    )
    fresh = start_place(job)
    tasks = tuple(
        fresh(task.name, role_of(job, task), task.index, task.rank, Slot(task.node_id, task.cards))
        for task in former
    )
    event = tell(job, ended_at_ms, f"restarting {counted(len(tasks), 'task')}: {reason.text}", Level.WARNING)
    return replace(job, tasks=tasks), (*told, event)


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
        suspicion=None,
        reason=reason,
    )
    return waiting, (*told, tell(job, ended_at_ms, f"queued again: {reason.text}", Level.WARNING))


def _closed(job: Job, reason: Reason, ended_at_ms: int) -> Record:
    return replace(
        job.records[-1],
        ended_at_ms=max(ended_at_ms, job.records[-1].queued_at_ms),
        duration_ms=max((task.duration_ms or 0 for task in job.tasks if task.started_at_ms), default=None),
        reason=reason,
        exits=exits_of(job.tasks),
    )


def _is_of(level: RecoverLevel, task: str | None, tasks: frozenset[TaskName] | None) -> bool:
    single = level in (RecoverLevel.TASK_RESTART, RecoverLevel.POD_RESCHEDULE)
    return single and task in tasks if tasks is not None else not single


def _all_completed(job: Job) -> bool:
    return all(task.reason is not None and task.reason.code is ReasonCode.COMPLETED for task in job.tasks)


def _counted(job: Job, tasks: Iterable[Task], at_ms: int) -> tuple[tuple[int, int], ...]:
    running = sum(one.state is TaskState.RUNNING for one in tasks)
    counts = job.node_counts
    if not counts or counts[-1][1] != running:
        last_ms = counts[-1][0] if counts else at_ms
        counts = (*counts, (max(at_ms, last_ms), running))
    return counts


def _ended_at_ms(job: Job, at_ms: int) -> int:
    return max([at_ms, *(task.ended_at_ms or 0 for task in job.tasks)])


def _first_ran_ms(job: Job) -> int | None:
    """Return when the job first ran: it can be over before all its tasks were up, and ran all the same."""
    starts = [task.started_at_ms for task in job.tasks if task.started_at_ms is not None]
    return job.started_at_ms or min(starts, default=None)
