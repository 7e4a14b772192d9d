"""Small pools, machines and jobs for tests of the core, and a world that does what the core says."""

from collections.abc import Iterable
from typing import Any

from trackside.domain.affinity import Affinity, all_labels, area_of
from trackside.domain.job import JobId, NodeId, ProjectId, Slot
from trackside.domain.pool import Pool, QueuePolicy
from trackside.domain.resources import GIB, Accelerator, Capacity, Resources
from trackside.schedule.core import Scheduler
from trackside.schedule.values import (
    Decision,
    JobEnded,
    JobQueued,
    JobRemoved,
    NodeChanged,
    NodeSpec,
    PoolChanged,
    Preempt,
    Request,
    SchedulingEvent,
    Start,
    TaskEnded,
    Tick,
)

POOL = "default"


def machine(
    name: str = "node-a",
    cores: float = 8,
    gpus: int = 0,
    gib: int = 64,
    labels: dict[str, str] | None = None,
    **more: Any,
) -> NodeSpec:
    """Return a machine."""
    capacity = Capacity(cpu_cores=cores, memory_bytes=gib * GIB, gpus=gpus, **more)
    return NodeSpec(id=NodeId(name), capacity=capacity, labels=labels or {})


def size(cores: float = 1, gpus: int = 0, gib: int = 1, **more: Any) -> Resources:
    """Return what one task needs."""
    family = Accelerator.GPU if gpus else Accelerator.NONE
    return Resources(cpu_cores=cores, memory_bytes=gib * GIB, cards=gpus, accelerator=family, **more)


def request(
    name: str,
    cores: float = 1,
    tasks: int = 1,
    *,
    gpus: int = 0,
    at: int = 0,
    project: str = "p",
    user: str = "ana",
    **more: Any,
) -> Request:
    """Return a job's wish."""
    values: dict[str, Any] = {
        "job_id": JobId(name),
        "name": name,
        "pool_id": POOL,
        "project_id": ProjectId(project),
        "user": user,
        "roles": ((size(cores, gpus), tasks),),
        "created_at_ms": at,
    }
    return Request(**(values | more))


class World:
    """Applies decisions at once and checks after every event that nothing is promised twice."""

    def __init__(self, *nodes: NodeSpec, policy: QueuePolicy = QueuePolicy.FIFO, **pool: Any) -> None:
        self.core = Scheduler()
        self.nodes: dict[NodeId, NodeSpec] = {}
        self.requests: dict[JobId, Request] = {}
        self.running: dict[JobId, dict[int, Slot]] = {}
        self.started: list[str] = []  # in order
        self.preempted: list[tuple[str, str]] = []  # who, for whom
        self.draining: set[JobId] = set()
        for node in nodes:
            self.tell(NodeChanged(node))
        self.tell(PoolChanged(Pool(id=POOL, policy=policy, **pool)))

    def tell(self, *events: SchedulingEvent) -> list[Decision]:
        """Tell the core what happened, do what it says, check."""
        for event in events:
            self._note(event)
        decisions = self.core.handle_all(events) if len(events) != 1 else self.core.handle(events[0])
        for decision in decisions:
            self._do(decision)
        self.check()
        return decisions

    def queue(self, *requests: Request) -> list[str]:
        """Queue jobs one by one; return those that started."""
        before = len(self.started)
        for one in requests:
            self.tell(JobQueued(one))
        return self.started[before:]

    def end(self, *names: str) -> list[str]:
        """End running jobs; return those that started."""
        before = len(self.started)
        for name in names:
            self.tell(JobEnded(JobId(name)))
        return self.started[before:]

    def drained(self, name: str) -> list[str]:
        """Let a preempted job's tasks be gone and queue it again; return those that started."""
        before = len(self.started)
        old = self.requests[JobId(name)]
        values = {field: getattr(old, field) for field in Request.__dataclass_fields__}
        self.tell(JobQueued(Request(**(values | {"front": True}))))
        return self.started[before:]

    def tick(self, now_ms: int) -> list[str]:
        """Say how late it is; return those that started."""
        before = len(self.started)
        self.tell(Tick(now_ms))
        return self.started[before:]

    def remove(self, *names: str) -> list[str]:
        """Take jobs away; return those that started."""
        before = len(self.started)
        for name in names:
            self.tell(JobRemoved(JobId(name)))
        return self.started[before:]

    def _note(self, event: SchedulingEvent) -> None:
        if isinstance(event, JobQueued):
            self.draining.discard(event.job.job_id)
        if isinstance(event, NodeChanged):
            self.nodes[event.node.id] = event.node
        elif isinstance(event, JobQueued):
            self.requests[event.job.job_id] = event.job
            self.running.pop(event.job.job_id, None)
        elif isinstance(event, JobEnded | JobRemoved):
            self.running.pop(event.job_id, None)
        elif isinstance(event, TaskEnded):
            self.running[event.job_id].pop(event.rank, None)

    def _do(self, decision: Decision) -> None:
        if isinstance(decision, Start):
            asked = self.requests[decision.job_id]
            assert len(decision.slots) == sum(count for _, count in asked.roles), "a gang starts whole"
            assert decision.job_id not in self.running
            assert all(self.nodes[slot.node_id].open for slot in decision.slots), (
                "closed machines take nothing"
            )
            assert not asked.avoid & {slot.node_id for slot in decision.slots}
            self._check_affinity(asked.affinity, [slot.node_id for slot in decision.slots])
            self.running[decision.job_id] = dict(enumerate(decision.slots))
            self.started.append(decision.job_id)
        elif isinstance(decision, Preempt):
            victim, winner = self.requests[decision.job_id], self.requests[decision.for_job]
            assert victim.preemptible
            assert victim.priority < winner.priority, "equals are never swapped"
            assert decision.job_id in self.running
            assert decision.job_id not in self.draining, "nobody is told to end twice"
            self.draining.add(decision.job_id)
            self.preempted.append((decision.job_id, decision.for_job))

    def _check_affinity(self, affinity: Affinity | None, nodes: list[NodeId]) -> None:
        if affinity is None:
            return
        labels = {node_id: self.nodes[node_id].labels for node_id in nodes}
        assert all(affinity.allows(all_labels(node_id, labels[node_id])) for node_id in nodes)
        if affinity.within:
            assert len({area_of(node_id, labels[node_id], affinity.within) for node_id in nodes}) == 1
        size, level = affinity.group_size, affinity.group_level
        for first in range(0, len(nodes), size if level else len(nodes)):
            group = nodes[first : first + size] if level else []
            assert len({area_of(node_id, labels[node_id], str(level)) for node_id in group}) <= 1

    def check(self) -> None:
        """Check that no core, byte or card is given twice."""
        for node_id, spec in self.nodes.items():
            held = list(self._held_on(node_id))
            cards = [card for slot, _ in held for card in slot.cards]
            assert len(cards) == len(set(cards)), f"a card of {node_id} was given twice"
            assert all(card < spec.capacity.gpus for card in cards)
            assert sum(need.cpu_cores for _, need in held) <= spec.capacity.cpu_cores + 1e-6
            assert sum(need.memory_bytes for _, need in held) <= spec.capacity.memory_bytes
            assert all(len(slot.cards) == need.cards for slot, need in held)

    def _held_on(self, node_id: NodeId) -> Iterable[tuple[Slot, Resources]]:
        for job_id, slots in self.running.items():
            needs = [need for need, count in self.requests[job_id].roles for _ in range(count)]
            yield from ((slot, needs[rank]) for rank, slot in slots.items() if slot.node_id == node_id)
