"""Knows how an attempt is told in plain words: who went down with whom, what was done, what it cost.

Every sentence is made here once, and shown by APIs and the command line as it is. Refuses to know time zones:
no sentence here says when.
"""

import math
from collections.abc import Iterable, Sequence

from trackside.domain.fault import RecoverLevel, RecoverResult, Recovery
from trackside.domain.job import Job, Record, Task
from trackside.domain.lost import Lost, Unit
from trackside.domain.reason import ReasonCode
from trackside.domain.wording import counted, soon_text

NAMES_MAX = 4
_WHAT: dict[RecoverLevel, str] = {
    RecoverLevel.TASK_RESTART: "starting {task} again in its place",
    RecoverLevel.NPU_PROC_RESTART: "starting all tasks again in their places, because of an NPU",
    RecoverLevel.GPU_PROC_RESTART: "starting all tasks again in their places, because of a GPU",
    RecoverLevel.PROC_RESTART: "starting all tasks again in their places",
    RecoverLevel.POD_RESCHEDULE: "starting {task} alone, wherever there is room",
    RecoverLevel.JOB_RESCHEDULE: "queueing the whole job again",
    RecoverLevel.JOB_RESCHEDULE_WITH_TAINT: "queueing the whole job again, away from {isolated}",
}
_HOW: dict[RecoverResult, str] = {
    RecoverResult.RECOVERING: "under way",
    RecoverResult.SUCCESS: "running again after {took}",
    RecoverResult.FAILED: "failed",
    RecoverResult.DOWNGRADE: "not possible",
    RecoverResult.TERMINATED: "cut short: the job was stopped",
    RecoverResult.QUOTA_EXCEEDED: "not allowed",
}
_UNIT_WORD = {Unit.GPU: "GPU", Unit.NPU: "NPU", Unit.CORE: "core"}
_SCALES = ((3_600_000, 24, "hour"), (60_000, 2, "minute"), (1_000, 1, "second"))  # used from so many on


def others_text(tasks: Sequence[Task], culprit: str | None) -> str | None:
    """Say what became of the others when one task had failed; None: there are no others, or no such task."""
    first = next((task for task in tasks if task.name == culprit), None)
    others = [task for task in tasks if task.name != culprit]
    if first is None or not others:
        return None
    failed = [task for task in others if _failed(task)]
    stopped = [task for task in others if task.stopped_by_us]
    done = [task for task in others if task.exit_code == 0 and not task.stopped_by_us]
    parts = [
        _part(failed, others, "failed", _offset(failed, first)),
        _part(stopped, others, "stopped" if failed else "were stopped", _offset(stopped, first)),
        f"{counted(len(done), 'task')} had finished" if done else None,
    ]
    told = "; ".join(part for part in parts if part)
    return told or None


def pattern_text(records: Sequence[Record], number: int) -> str | None:
    """Say which earlier attempts ended the same way; None: none did."""
    record = next(one for one in records if one.number == number)
    same = same_cause(records, number)
    if not same or record.reason is None:
        return None
    culprits = {one.culprit for one in records if one.number in same}
    elsewhere = sorted(str(name) for name in culprits - {record.culprit} if name)
    where = f", in {_listed(elsewhere)}" if elsewhere else ""
    noun = "attempt" if len(same) == 1 else "attempts"
    return f"{noun} {_listed([str(one) for one in same])} had the same cause{where}"


def same_cause(records: Sequence[Record], number: int) -> tuple[int, ...]:
    """Return the earlier attempts that ended for the same cause."""
    record = next(one for one in records if one.number == number)
    if record.reason is None or record.reason.code is ReasonCode.COMPLETED:
        return ()
    code = record.reason.code
    return tuple(
        one.number for one in records if one.number < number and one.reason and one.reason.code is code
    )


def recovery_text(one: Recovery) -> str:
    """Say what was tried after a fault, and how that turned out."""
    isolated = "what was faulty"
    if one.isolated is not None:
        cards = one.isolated.cards
        isolated = (
            f"{counted(len(cards), 'card')} of {one.isolated.node_id}" if cards else one.isolated.node_id
        )
    what = _WHAT[one.level].format(task=one.task or "it", isolated=isolated)
    took = soon_text(max(0, (one.ended_at_ms or one.started_at_ms) - one.started_at_ms))
    how = _HOW[one.result].format(took=took)
    return f"{what}: {how}" + (f": {one.note}" if one.note else "")


def lost_text(lost: Lost) -> str | None:
    """Say what was lost, at most; None: nothing."""
    if not lost.losses or lost.total_ms <= 0:
        return None
    return f"at most {amount_text(lost.total_ms, lost.unit)}"


def amount_text(amount_ms: float, unit: Unit) -> str:
    """Return units times a time as people say it: 41 GPU-minutes."""
    word = _UNIT_WORD[unit]
    scale_ms, _, noun = next((one for one in _SCALES if amount_ms >= one[0] * one[1]), _SCALES[-1])
    amount = amount_ms / scale_ms
    # Rounded up, so that what is said to be the most is the most.
    text = f"{math.ceil(amount * 10) / 10:,.1f}" if amount < 10 else f"{math.ceil(amount):,}"
    text = text.removesuffix(".0")
    return f"{text} {word}-{noun}" + ("" if text == "1" else "s")


def ended_text(job: Job, record: Record) -> str:
    """Say why an attempt is over, or that it is not."""
    if record.ended_at_ms is None:
        return "it goes on" if record.running_at_ms is not None else f"it is {job.phase.value}"
    return record.reason.text if record.reason else "no reason is recorded"


def _failed(task: Task) -> bool:
    return task.exit_code not in (0, None) and not task.stopped_by_us


def _part(tasks: Sequence[Task], others: Sequence[Task], did: str, after_ms: int | None) -> str | None:
    if not tasks:
        return None
    who = (
        f"the other {counted(len(tasks), 'task')}"
        if len(tasks) == len(others)
        else counted(len(tasks), "task")
    )
    if len(tasks) == len(others) == 1:
        who = "the other task"
        did = did.replace("were", "was")
    later = f" {soon_text(after_ms)} later" if after_ms is not None else ""
    return f"{who} {did}{later} because of it"


def _offset(tasks: Iterable[Task], first: Task) -> int | None:
    """Return how long after the first the next of them ended."""
    if first.ended_order_ms is None:
        return None
    moments = [task.ended_order_ms for task in tasks if task.ended_order_ms is not None]
    return max(0, min(moments) - first.ended_order_ms) if moments else None


def _listed(names: Sequence[str]) -> str:
    shown = [*names[:NAMES_MAX], *(["more"] if len(names) > NAMES_MAX else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
