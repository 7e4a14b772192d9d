"""Knows who was first: which task's failure ended an attempt, and which failures only followed it."""

from collections.abc import Iterable
from dataclasses import replace

from trackside.domain.job import Exit, Task
from trackside.domain.reason import Certainty, Reason, ReasonCode
from trackside.domain.wording import counted, soon_text

_RAISED_BY_STOPS = ("KeyboardInterrupt", "SystemExit")


def culprit_of(tasks: Iterable[Task]) -> Task | None:
    """Return the task whose failure came first; one that only says that it lost a peer is not it."""
    tasks = tuple(tasks)
    failed = [task for task in tasks if _failed_by_itself(task)]
    if not failed:
        return None
    first = min(failed, key=_order)
    if _lost_a_peer(first):  # who it lost may have been stopped while it ended
        first = min((one for one in map(_failed_before_stop, tasks) if one), key=_order, default=first)
    assert first.reason is not None
    others = [task for task in failed if task.name != first.name]
    if not others:
        return first
    after_ms = min(_after_ms(task, first) for task in others)
    words = f"{counted(len(others), 'other task')} failed after it, the first {soon_text(after_ms)} later"
    return replace(first, reason=replace(first.reason, evidence=(*first.reason.evidence, words)))


def folded(tasks: Iterable[Task], culprit: Task) -> tuple[Task, ...]:
    """Return the tasks with the failures that followed the culprit's put down to it."""
    return tuple(_folded(task, culprit) for task in tasks)


def exits_of(tasks: Iterable[Task]) -> tuple[Exit, ...]:
    """Return how the tasks ended, the first to end first."""
    return tuple(
        Exit(
            task=task.name,
            exit_code=task.exit_code,
            signal=task.signal,
            order_ms=task.ended_order_ms,
            stopped_by_us=task.stopped_by_us,
        )
        for task in sorted(tasks, key=lambda one: (_moment(one), one.rank))
    )


def _failed_by_itself(task: Task) -> bool:
    reason = task.reason
    if reason is None or reason.code in (ReasonCode.COMPLETED, ReasonCode.PEER_FAILED):
        return False
    return not task.stopped_by_us


def _failed_before_stop(task: Task) -> Task | None:
    """Return a task that we stopped, but whose log says that it had failed before: it was slow to end."""
    seen = task.evidence
    if not task.stopped_by_us or seen is None or seen.traceback is None or seen.collective_error is not None:
        return None
    last = seen.traceback.strip().splitlines()[-1]
    if last.startswith(_RAISED_BY_STOPS):
        return None
    reason = Reason(
        text=f"{task.name} failed: {last}",
        code=ReasonCode.EXCEPTION,
        certainty=Certainty.LIKELY,
        task=task.name,
        evidence=(seen.traceback, "it was slow to end, and was stopped"),
        hint="the traceback is in its log",
    )
    return replace(task, reason=reason)


def _lost_a_peer(task: Task) -> bool:
    return task.evidence is not None and task.evidence.collective_error is not None


def _order(task: Task) -> tuple[bool, int, int]:
    return _lost_a_peer(task), _moment(task), task.rank


def _moment(task: Task) -> int:
    return task.ended_order_ms if task.ended_order_ms is not None else task.ended_at_ms or 0


def _after_ms(task: Task, first: Task) -> int:
    return max(0, _moment(task) - _moment(first))


def _folded(task: Task, culprit: Task) -> Task:
    if task.name == culprit.name:
        return culprit
    if not _failed_by_itself(task):
        return task
    assert task.reason is not None
    later = soon_text(_after_ms(task, culprit))
    reason = Reason(
        text=f"{task.reason.text}, {later} after {culprit.name} had failed",
        code=ReasonCode.PEER_FAILED,
        certainty=Certainty.LIKELY,
        task=task.name,
        evidence=task.reason.evidence,
    )
    return replace(task, reason=reason)
