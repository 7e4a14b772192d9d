"""Knows how a single task of a running job gets a new place: at once, or not at all.

To the scheduling core the task is a small job of its own, before all others, for one round: once the place is
stored, the core hears of it as the running job's.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from trackside.domain import rules
from trackside.domain.job import Job, JobId, Slot, Task, TaskState
from trackside.ports import Update
from trackside.schedule.values import PRIORITY_MAX, Decision, JobQueued, JobRemoved, Request, Start

NO_ROOM = "there is no room for it now"
JobUpdate = tuple[JobId, Callable[[Job], Update | None]]


class Replacing:
    """Finds places for tasks that are to be replaced."""

    def __init__(self) -> None:
        self._standing_in: dict[JobId, tuple[JobId, int]] = {}  # (job, rank) of each stand-in

    def forget(self) -> None:
        """Start anew with a new core."""
        self._standing_in.clear()

    def done(self) -> Iterator[JobRemoved]:
        """Yield the stand-ins of the last round: what they held is the running jobs' now, or nobody's."""
        yield from (JobRemoved(stand_in) for stand_in in self._standing_in)
        self._standing_in.clear()

    def asked(self, jobs: Iterable[Job], request_of: Callable[[Job], Request]) -> Iterator[JobQueued]:
        """Yield a stand-in for every task that is to be replaced."""
        for job, task in _waiting(jobs):
            stand_in = JobId(f"{job.id}/{task.name}")
            self._standing_in[stand_in] = job.id, task.rank
            request = replace(
                request_of(job),
                job_id=stand_in,
                priority=PRIORITY_MAX,
                roles=((task.resources, 1),),
                front=True,
                evicts=False,
                affinity=None,
                preemptible=False,
            )
            yield JobQueued(request)

    def answered(self, decisions: Iterable[Decision], at_ms: int) -> tuple[list[Decision], list[JobUpdate]]:
        """Return what was decided for jobs of their own, and what becomes of the tasks to be replaced."""
        others: list[Decision] = []
        found: dict[JobId, Slot] = {}
        for decision in decisions:
            if isinstance(decision, Start) and decision.job_id in self._standing_in:
                found[decision.job_id] = decision.slots[0]
            else:
                others.append(decision)
        updates = [
            (job_id, _change(rank, found.get(stand_in), at_ms))
            for stand_in, (job_id, rank) in self._standing_in.items()
        ]
        return others, updates


def _waiting(jobs: Iterable[Job]) -> Iterator[tuple[Job, Task]]:
    for job in jobs:
        if job.ending is None:
            yield from ((job, task) for task in job.tasks if task.state is TaskState.WAITING)


def _change(rank: int, slot: Slot | None, at_ms: int) -> Callable[[Job], Update | None]:
    def change(job: Job) -> Update | None:
        moved = (
            rules.cannot_replace(job, NO_ROOM, at_ms=at_ms)
            if slot is None
            else rules.replace_task(job, rank, slot, at_ms=at_ms)
        )
        return Update(job=moved[0], events=moved[1]) if moved else None

    return change
