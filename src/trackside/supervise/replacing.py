"""Knows how a single task of a running job gets a new place: at once, or not at all.

To the scheduling core the task is a small job of its own, first of all, for one round: once the place is
stored, the core hears of it as the running job's.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from trackside.domain import rules
from trackside.domain.job import Job, JobId, Slot, Task, TaskState
from trackside.ports import Update
from trackside.schedule.core import Scheduler
from trackside.schedule.values import PRIORITY_MAX, Decision, JobQueued, JobRemoved, Request, Start

NO_ROOM = "there is no room for it now"
JobUpdate = tuple[JobId, Callable[[Job], Update | None]]


class Replacing:
    """Finds places for tasks that are to be replaced."""

    def __init__(self) -> None:
        self._standing_in: list[JobId] = []

    def forget(self) -> None:
        """Start anew with a new core."""
        self._standing_in.clear()

    def done(self) -> Iterator[JobRemoved]:
        """Yield the small jobs of the last round: what they held is the running jobs' now."""
        yield from (JobRemoved(job_id) for job_id in self._standing_in)
        self._standing_in.clear()

    def replacements(
        self, core: Scheduler, jobs: Iterable[Job], request_of: Callable[[Job], Request], at_ms: int
    ) -> tuple[list[JobUpdate], list[Decision]]:
        """Return what becomes of the tasks that wait to be replaced, and what else the core decided."""
        updates: list[JobUpdate] = []
        others: list[Decision] = []
        for job, task in waiting_tasks(jobs):
            stand_in = JobId(f"{job.id}/{task.name}")
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
            slot = None
            for decision in core.handle(JobQueued(request)):
                if isinstance(decision, Start) and decision.job_id == stand_in:
                    slot = decision.slots[0]
                else:
                    others.append(decision)
            if slot is None:
                others += core.handle(JobRemoved(stand_in))
            else:
                self._standing_in.append(stand_in)
            updates.append((job.id, _change(task.rank, slot, at_ms)))
        return updates, others


def waiting_tasks(jobs: Iterable[Job]) -> Iterator[tuple[Job, Task]]:
    """Yield every task that is to be replaced."""
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
