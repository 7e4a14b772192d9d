"""Knows how much time faults and preemptions cost a job.

Trackside does not know what a job has saved, so everything since an attempt's start counts as lost: what is
told here is the most it can be. It counts in milliseconds of cards, or of cores for a job without cards;
while a job waits in the queue it holds neither.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trackside.domain.attempts import Start, starts, tasks_by_attempt
from trackside.domain.job import Job, Record, Task
from trackside.domain.reason import ReasonCode
from trackside.domain.resources import Accelerator
from trackside.domain.timing import attempt_ms, first_starts, task_ms

# Ends that somebody wanted: nothing is lost to them.
WANTED = frozenset(
    {ReasonCode.COMPLETED, ReasonCode.STOPPED_BY_USER, ReasonCode.MAX_DURATION, ReasonCode.DELETED}
)


class Unit(StrEnum):
    """What is lost, for a time."""

    GPU = "gpu"
    NPU = "npu"
    CORE = "core"


_UNIT_OF = {Accelerator.GPU: Unit.GPU, Accelerator.NPU: Unit.NPU}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one end cost: of a whole attempt, or of one task that was started again within it."""

    attempt: int
    cause: ReasonCode
    task: str | None = None  # set: this task alone was started again, and the attempt went on
    ran_ms: int  # how long it had run
    until_running_ms: int | None  # from its end until the job ran again; None: it did not, so far
    worked_ms: float  # units times how long each task had run: lost at most
    held_ms: float  # units times how long they were held meanwhile without running

    @property
    def total_ms(self) -> float:
        """Return all of it, in units times milliseconds."""
        return self.worked_ms + self.held_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """What a job lost, at most."""

    unit: Unit
    losses: tuple[Loss, ...] = ()

    @property
    def total_ms(self) -> float:
        """Return all of it, in units times milliseconds."""
        return sum(one.total_ms for one in self.losses)

    @property
    def by_cause(self) -> dict[ReasonCode, float]:
        """Return how much was lost to each cause, the costliest first."""
        found: dict[ReasonCode, float] = {}
        for one in self.losses:
            found[one.cause] = found.get(one.cause, 0) + one.total_ms
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def of(self, attempt: int) -> "Lost":
        """Return what one attempt lost."""
        return Lost(unit=self.unit, losses=tuple(one for one in self.losses if one.attempt == attempt))


def lost(job: Job) -> Lost:
    """Return what the job lost to faults and preemptions, in order."""
    unit = _unit(job)
    again = [start for start in starts(job) if start.former is not None]
    begun, tasks = first_starts(job), tasks_by_attempt(job)
    following: tuple[Record | None, ...] = (*job.records[1:], None)
    losses: list[Loss] = []
    for record, after in zip(job.records, following, strict=True):
        here = tasks[record.number]
        losses += _of_tasks(record.number, here, again, unit)
        if record.ended_at_ms is None or record.reason is None or not here:
            continue
        if record.reason.code not in WANTED:
            ran_ms = max(0, attempt_ms(record, begun.get(record.number)))
            losses.append(_of_attempt(record, after, here, ran_ms=ran_ms, unit=unit))
    return Lost(unit=unit, losses=tuple(losses))


def _of_attempt(
    record: Record, after: Record | None, tasks: Sequence[Task], *, ran_ms: int, unit: Unit
) -> Loss:
    assert record.reason is not None
    up_ms = after.running_at_ms if after else None
    held_ms = 0
    if after is not None and up_ms is not None and after.placed_at_ms is not None:
        held_ms = max(0, up_ms - after.placed_at_ms)
    return Loss(
        attempt=record.number,
        cause=record.reason.code,
        ran_ms=ran_ms,
        until_running_ms=None if up_ms is None else max(0, up_ms - (record.ended_at_ms or up_ms)),
        worked_ms=sum(_units(task, unit) * task_ms(task) for task in tasks),
        held_ms=_all_units(tasks, unit) * held_ms,
    )


def _of_tasks(attempt: int, tasks: Iterable[Task], again: Iterable[Start], unit: Unit) -> Iterator[Loss]:
    """Yield what was lost with tasks that were started again while the attempt went on.

    All tasks count as held until that one was back: those that went on meanwhile lost less.
    """
    everyone = _all_units(tasks, unit)
    for start in again:
        former = start.former
        if former is None or start.task.record != attempt:
            continue
        cause = former.reason.code if former.reason else ReasonCode.SHIM_LOST
        if cause in WANTED:
            continue
        up_ms, down_ms = start.task.started_at_ms, former.ended_at_ms
        gap_ms = None if up_ms is None or down_ms is None else max(0, up_ms - down_ms)
        yield Loss(
            attempt=attempt,
            cause=cause,
            task=former.name,
            ran_ms=task_ms(former),
            until_running_ms=gap_ms,
            worked_ms=_units(former, unit) * task_ms(former),
            held_ms=everyone * (gap_ms or 0),
        )


def _unit(job: Job) -> Unit:
    held = [role.resources.accelerator for role in job.spec.roles if role.resources.cards]
    return _UNIT_OF.get(held[0], Unit.CORE) if held else Unit.CORE


def _units(task: Task, unit: Unit) -> float:
    return task.resources.cpu_cores if unit is Unit.CORE else task.resources.cards


def _all_units(tasks: Iterable[Task], unit: Unit) -> float:
    return sum(_units(task, unit) for task in tasks)
