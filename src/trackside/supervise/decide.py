"""Knows which queued job starts next and where. Pure: the same jobs and nodes give the same answer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trackside.domain.job import Job, JobId, NodeId, Slot, TaskState
from trackside.domain.phase import Phase
from trackside.domain.resources import Accelerator, Capacity, Resources
from trackside.ports import Node


@dataclass(frozen=True, slots=True)
class Placement:
    """Start this job in these places, one per task, by rank."""

    job_id: JobId
    slots: tuple[Slot, ...]


class Room:
    """What is free on the nodes, counted down as tasks are placed."""

    def __init__(self, nodes: Sequence[Node], jobs: Iterable[Job]) -> None:
        self._free = {node.id: node.capacity for node in nodes}
        self._cards = {
            (node.id, family): set(range(node.capacity.cards(family)))
            for node in nodes
            for family in (Accelerator.GPU, Accelerator.NPU)
        }
        for job in jobs:
            for task in job.tasks:
                if task.state is not TaskState.ENDED and task.node_id in self._free:
                    self._take(task.node_id, task.resources, task.cards)

    def slots_for(self, job: Job) -> tuple[Slot, ...] | None:
        """Reserve room for all tasks of a job, or for none of them."""
        before = dict(self._free), {key: set(cards) for key, cards in self._cards.items()}
        slots = []
        for role in job.spec.roles:
            for _ in range(role.count):
                slot = self._slot(role.resources)
                if slot is None:
                    self._free, self._cards = before
                    return None
                slots.append(slot)
        return tuple(slots)

    def free(self) -> dict[NodeId, Capacity]:
        """Return what is left on each node."""
        return dict(self._free)

    def _slot(self, need: Resources) -> Slot | None:
        for node_id, free in self._free.items():
            if free.fits(need):
                cards = tuple(sorted(self._cards.get((node_id, need.accelerator), ()))[: need.cards])
                self._take(node_id, need, cards)
                return Slot(node_id, cards)
        return None

    def _take(self, node_id: NodeId, used: Resources, cards: Iterable[int]) -> None:
        self._free[node_id] = self._free[node_id].less(used)
        self._cards.get((node_id, used.accelerator), set()).difference_update(cards)


def queue_order(jobs: Iterable[Job]) -> list[Job]:
    """Return the queued jobs, first to start first: by priority, then by age."""
    queued = [job for job in jobs if job.phase is Phase.QUEUED and not job.ending]
    return sorted(queued, key=lambda job: (-job.spec.priority, job.created_at_ms, job.number, job.id))


def decide_placements(jobs: Sequence[Job], nodes: Sequence[Node]) -> list[Placement]:
    """Say which jobs start now. First in, first out: one that does not fit yet blocks those behind it."""
    queue = queue_order(jobs)
    if not queue or not nodes:
        return []
    room = Room(nodes, jobs)
    placements = []
    for job in queue:
        slots = room.slots_for(job)
        if slots is None:
            break
        placements.append(Placement(job.id, slots))
    return placements
