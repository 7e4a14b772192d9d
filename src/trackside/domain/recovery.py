"""Knows the ladder of recovery: which level answers a fault, what forbids it, and what the budgets allow.

Levels go from fine to coarse. A level that cannot be carried out is passed over for the next coarser one and
noted as a downgrade. The environment's faults are answered whenever the job has a budget; the job's own only
when it asked for that.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trackside.domain.attempts import PASSED_OVER, taken
from trackside.domain.evidence import DeviceKind
from trackside.domain.fault import (
    BY_QUEUE,
    IN_PLACE,
    Isolation,
    RecoverLevel,
    RecoverResult,
    Recovery,
    Scenario,
)
from trackside.domain.job import Job, Record, Task, TaskState
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.wording import counted

STEADY_MS = 3_600_000  # an attempt that ran for so long ends a row of failures
HANG_ROW_MAX = 3

# Faults that are not the job's own doing.
ENVIRONMENT = frozenset(
    {
        ReasonCode.KILLED_FROM_OUTSIDE,
        ReasonCode.HOST_OUT_OF_MEMORY,
        ReasonCode.DISK_FULL,
        ReasonCode.DEVICE_FAULT,
        ReasonCode.SHIM_LOST,
        ReasonCode.NODE_LOST,
    }
)
_NODE_FAULTS = (
    ReasonCode.HOST_OUT_OF_MEMORY,
    ReasonCode.DISK_FULL,
    ReasonCode.SHIM_LOST,
    ReasonCode.NODE_LOST,
)
_PROC_RESTART_OF = {
    DeviceKind.GPU: RecoverLevel.GPU_PROC_RESTART,
    DeviceKind.NPU: RecoverLevel.NPU_PROC_RESTART,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What went wrong in an attempt, as far as recovery is concerned."""

    scenario: Scenario
    reason: Reason
    at_ms: int
    task: Task | None = None
    isolate: Isolation | None = None

    @property
    def environment(self) -> bool:
        """Say whether it is not the job's own doing."""
        return self.reason.code in ENVIRONMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is done about a fault. `level` None: nothing; the steps say what was passed over, and why."""

    level: RecoverLevel | None
    steps: tuple[Recovery, ...] = ()


def task_fault(task: Task, *, at_ms: int) -> Fault:
    """Return the fault that a task which ended badly makes."""
    assert task.reason is not None
    faulty = task.evidence.device_faults if task.evidence else ()
    scenario, isolate = Scenario.FAILED, None
    if task.reason.code is ReasonCode.DEVICE_FAULT and faulty:
        cards = tuple(sorted({one.card for one in faulty}))
        scenario, isolate = Scenario.CHIP, Isolation(node_id=task.node_id, cards=cards)
    elif task.reason.code in _NODE_FAULTS:
        scenario = Scenario.NODE
        if task.reason.code is ReasonCode.NODE_LOST:
            isolate = Isolation(node_id=task.node_id)
    return Fault(scenario=scenario, reason=task.reason, at_ms=at_ms, task=task, isolate=isolate)


def choose(job: Job, fault: Fault, *, drained: bool = False) -> Answer:
    """Return the finest level that may answer the fault, and what was passed over for it."""
    tried = _tried(job.records[-1], fault)
    ladder = [level for level in _ladder(job, fault) if level not in tried]
    if not ladder or not _wanted(job, fault):
        return Answer(level=None)
    if _row_is_full(job, fault):
        note = f"{counted(_row_max(job, fault) or 0, 'restart')} in a row, and no more than that"
        return Answer(level=None, steps=(_step(fault, ladder[0], RecoverResult.QUOTA_EXCEEDED, note),))
    steps: list[Recovery] = []
    for level in ladder:
        obstacle = _obstacle(job, fault, level)
        if drained and level is RecoverLevel.POD_RESCHEDULE:
            obstacle = obstacle or "the other tasks have ended too"
        if obstacle is not None:
            steps.append(_step(fault, level, RecoverResult.DOWNGRADE, obstacle))
        elif fault.scenario is not Scenario.HANGED and used(job, level) >= budget(job, level):
            note = f"its budget of {budget(job, level)} is used up"
            steps.append(_step(fault, level, RecoverResult.QUOTA_EXCEEDED, note))
        else:
            isolated = fault.isolate if level is RecoverLevel.JOB_RESCHEDULE_WITH_TAINT else None
            charged = fault.scenario is not Scenario.HANGED
            chosen = replace(_step(fault, level, RecoverResult.RECOVERING, None), isolated=isolated)
            steps.append(replace(chosen, charged=charged, ended_at_ms=None))
            return Answer(level=level, steps=tuple(steps))
    return Answer(level=None, steps=tuple(_refused(steps)))


def budget(job: Job, level: RecoverLevel) -> int:
    """Return how often a level may be used in the job's life."""
    policy = job.spec.recovery
    if level is RecoverLevel.PROC_RESTART:
        return policy.process_retries
    return policy.task_retries if level is RecoverLevel.POD_RESCHEDULE else policy.job_retries


def used(job: Job, level: RecoverLevel) -> int:
    """Return how much of a level's budget is used."""
    same = [level]
    if level not in (RecoverLevel.PROC_RESTART, RecoverLevel.POD_RESCHEDULE):
        same = [*BY_QUEUE, RecoverLevel.GPU_PROC_RESTART, RecoverLevel.NPU_PROC_RESTART]
    return sum(
        one.charged and one.level in same and one.result not in PASSED_OVER
        for record in job.records
        for one in record.recoveries
    )


def open_recovery(job: Job) -> Recovery | None:
    """Return the recovery that is under way, if the whole job is being brought back."""
    chosen = (taken(record) for record in job.records[-2:])
    return next((one for one in chosen if one is not None and one.result is RecoverResult.RECOVERING), None)


def _ladder(job: Job, fault: Fault) -> Iterator[RecoverLevel]:
    policy = job.spec.recovery
    if fault.scenario is Scenario.HANGED:
        if policy.hang_restart:
            yield RecoverLevel.PROC_RESTART
        return
    faulty = fault.task.evidence.device_faults if fault.task and fault.task.evidence else ()
    if policy.job_retries and fault.scenario is Scenario.CHIP and all(one.heals for one in faulty):
        yield _PROC_RESTART_OF[faulty[0].kind]
    if policy.process_retries:
        yield RecoverLevel.PROC_RESTART
    if policy.task_retries:
        yield RecoverLevel.POD_RESCHEDULE
    if policy.job_retries:
        tainted = fault.isolate is not None
        yield RecoverLevel.JOB_RESCHEDULE_WITH_TAINT if tainted else RecoverLevel.JOB_RESCHEDULE


def _tried(record: Record, fault: Fault) -> set[RecoverLevel]:
    """Return the levels that were passed over for this fault already."""
    name = fault.task.name if fault.task else None
    return {
        one.level
        for one in record.recoveries
        if one.result in PASSED_OVER and one.task == name and one.started_at_ms == fault.at_ms
    }


def _wanted(job: Job, fault: Fault) -> bool:
    return fault.environment or fault.scenario is Scenario.HANGED or job.spec.recovery.unconditional


def _obstacle(job: Job, fault: Fault, level: RecoverLevel) -> str | None:
    """Say why a level cannot be carried out; None: it can."""
    if level in BY_QUEUE:
        return None
    if fault.task is not None and fault.task.rank == 0 and job.spec.node_count > 1:
        return f"{fault.task.name} has rank 0, which only a restart of the whole job replaces"
    if level in IN_PLACE and fault.scenario is Scenario.NODE and fault.reason.code is ReasonCode.NODE_LOST:
        return "its node does not answer"
    if level is RecoverLevel.POD_RESCHEDULE:
        return _replacing_obstacle(job, fault)
    if level in IN_PLACE and len(job.records) > 1:
        return _in_place_obstacle(job, fault, level)
    return None


def _replacing_obstacle(job: Job, fault: Fault) -> str | None:
    for task in job.tasks:
        if fault.task is not None and task.name == fault.task.name:
            continue
        bad = task.state is TaskState.ENDED and task.exit_code != 0
        if task.state is TaskState.WAITING or bad:
            return f"{task.name} failed too"
    return None


def _in_place_obstacle(job: Job, fault: Fault, level: RecoverLevel) -> str | None:
    record, before = job.records[-1], taken(job.records[-2])
    if before is None or before.level not in IN_PLACE:
        return None
    if record.running_at_ms is None:
        return "the last restart in place did not come up"
    again = level is not RecoverLevel.PROC_RESTART and before.scenario is fault.scenario
    if again and fault.at_ms - record.running_at_ms < STEADY_MS:
        return "the card failed again after the last restart"
    return None


def _row_max(job: Job, fault: Fault) -> int | None:
    if fault.scenario is Scenario.HANGED:
        return HANG_ROW_MAX
    return None if fault.environment else job.spec.recovery.consecutive_max


def _row_is_full(job: Job, fault: Fault) -> bool:
    most = _row_max(job, fault)
    return most is not None and _row(job, fault) >= most


def _row(job: Job, fault: Fault) -> int:
    """Return how many restarts for the same kind of fault came right before this one."""
    hanged = fault.scenario is Scenario.HANGED
    row, attempts = 0, list(reversed(job.records))
    for after, record in itertools.pairwise(attempts):
        chosen = taken(record)
        if chosen is None or (chosen.scenario is Scenario.HANGED) != hanged:
            break
        if not hanged and (chosen.reason.code in ENVIRONMENT or _was_steady(after, fault.at_ms)):
            break
        row += 1
    return row + (0 if hanged else _task_row(job.records[-1]))


def _task_row(record: Record) -> int:
    """Return how many single tasks were replaced in an attempt for the job's own faults."""
    replaced = [one for one in record.recoveries if one.level is RecoverLevel.POD_RESCHEDULE]
    return sum(one.reason.code not in ENVIRONMENT and one.result not in PASSED_OVER for one in replaced)


def _was_steady(record: Record, now_ms: int) -> bool:
    if record.running_at_ms is None:
        return False
    ran_ms = (record.ended_at_ms or now_ms) - record.running_at_ms
    return (ran_ms if record.duration_ms is None else record.duration_ms) >= STEADY_MS


def _step(fault: Fault, level: RecoverLevel, result: RecoverResult, note: str | None) -> Recovery:
    return Recovery(
        level=level,
        scenario=fault.scenario,
        reason=fault.reason,
        task=fault.task.name if fault.task else None,
        started_at_ms=fault.at_ms,
        ended_at_ms=fault.at_ms,
        result=result,
        charged=False,
        note=note,
    )


def _refused(steps: list[Recovery]) -> Iterator[Recovery]:
    """Nothing coarser was left: what was passed over for it was not carried out at all."""
    last = steps[-1]
    yield from steps[:-1]
    yield replace(last, result=RecoverResult.FAILED) if last.result is RecoverResult.DOWNGRADE else last
