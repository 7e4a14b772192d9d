"""Knows how to keep the scheduling core up to date: compares the stored jobs with what the core was told.

The core can be built anew at any moment from what is stored: who waits, and which live tasks hold what.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from trackside.domain.fault import BY_QUEUE
from trackside.domain.job import Job, JobId, NodeId, Slot, Task, TaskState
from trackside.domain.phase import Phase
from trackside.domain.pool import Pool
from trackside.domain.reason import ReasonCode
from trackside.domain.recovery import open_recovery
from trackside.ports import Node
from trackside.schedule.core import Scheduler
from trackside.schedule.values import (
    PRIORITY_MAX,
    JobChanged,
    JobDraining,
    JobQueued,
    JobRemoved,
    JobRunning,
    NodeChanged,
    NodeRemoved,
    NodeSpec,
    PoolChanged,
    PoolRemoved,
    Request,
    SchedulingEvent,
    TaskEnded,
    Tick,
)
from trackside.supervise.replacing import Replacing

Labels = Callable[[], Mapping[NodeId, Mapping[str, str]]]
_EVICTABLE_IN = (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING)  # a lost job would not drain


class Watch:
    """Tells a core what changed since it was last told."""

    def __init__(
        self,
        pools: Callable[[], Sequence[Pool]],
        closed_nodes: Callable[[], frozenset[NodeId]],
        labels: Labels = dict,
        isolated_cards: Callable[[], Mapping[NodeId, frozenset[int]]] = dict,
    ) -> None:
        self._pools = pools
        self._closed_nodes = closed_nodes
        self._labels = labels
        self._isolated_cards = isolated_cards
        self.replacing = Replacing()
        self.core = Scheduler()
        self._revisions: dict[JobId, int] = {}
        self._nodes: dict[NodeId, NodeSpec] = {}
        self._known_pools: dict[str, Pool] = {}

    def forget(self) -> None:
        """Start anew: what was decided last may not have been done."""
        self.core = Scheduler()
        self.replacing.forget()
        self._revisions, self._nodes, self._known_pools = {}, {}, {}

    def changes(self, jobs: Sequence[Job], nodes: Sequence[Node], now_ms: int) -> list[SchedulingEvent]:
        """Return what happened since the last time, for the core to be told."""
        events: list[SchedulingEvent] = [Tick(now_ms), *self.replacing.done()]
        events += self._job_changes(jobs)
        events += self._node_changes(nodes)
        events += self._pool_changes()
        events += self.replacing.asked(jobs, request_of)
        return events

    def _job_changes(self, jobs: Sequence[Job]) -> Iterator[SchedulingEvent]:
        known, seen = self._revisions, {}
        for job in jobs:
            seen[job.id] = job.revision
            if known.get(job.id) != job.revision:
                yield from job_events(self.core, job)
        if len(known) > len(seen) or known.keys() - seen.keys():
            yield from (JobRemoved(job_id) for job_id in known if job_id not in seen)
        self._revisions = seen

    def _node_changes(self, nodes: Iterable[Node]) -> Iterator[SchedulingEvent]:
        closed, labels, isolated = self._closed_nodes(), self._labels(), self._isolated_cards()
        specs = {
            node.id: NodeSpec(
                id=node.id,
                capacity=node.capacity,
                open=node.id not in closed,
                labels={**node.labels, **labels.get(node.id, {})},
                isolated_cards=isolated.get(node.id, frozenset()),
            )
            for node in nodes
        }
        yield from (NodeChanged(spec) for spec in specs.values() if self._nodes.get(spec.id) != spec)
        yield from (NodeRemoved(node_id) for node_id in self._nodes if node_id not in specs)
        self._nodes = specs

    def _pool_changes(self) -> Iterator[SchedulingEvent]:
        pools = {pool.id: pool for pool in self._pools()}
        yield from (PoolChanged(pool) for pool in pools.values() if self._known_pools.get(pool.id) != pool)
        yield from (PoolRemoved(pool_id) for pool_id in self._known_pools if pool_id not in pools)
        self._known_pools = pools


def job_events(core: Scheduler, job: Job) -> Iterator[SchedulingEvent]:
    """Yield what the core must be told of one job to see it as it is stored."""
    request = request_of(job)
    live = {task.rank: Slot(task.node_id, task.cards) for task in job.tasks if _holds_room(job, task)}
    if job.phase is Phase.QUEUED and job.ending is None:
        yield JobChanged(request) if core.waits(job.id) else JobQueued(request)
    elif not live:
        yield JobRemoved(job.id)
    else:
        yield from _running(core, job, request, live)


def request_of(job: Job) -> Request:
    """Return what a job asks of its pool."""
    spec = job.spec
    return Request(
        job_id=job.id,
        pool_id=spec.pool_id,
        project_id=job.project_id,
        user=job.owner,
        name=spec.name,
        priority=PRIORITY_MAX if _recovers(job) else spec.priority,
        roles=tuple((role.resources, role.count) for role in spec.roles),
        created_at_ms=job.created_at_ms,
        number=job.number,
        max_seconds=spec.max_seconds,
        preemptible=spec.preemptible and (job.phase in _EVICTABLE_IN or job.phase is Phase.QUEUED),
        front=_was_preempted(job) or _recovers(job),
        affinity=spec.affinity,
    )


def _running(core: Scheduler, job: Job, request: Request, live: dict[int, Slot]) -> Iterator[SchedulingEvent]:
    held = core.holds(job.id)
    known = (
        {} if held is None else {rank: Slot(node.id, cards) for rank, (node, _, cards) in held.slots.items()}
    )
    if any(known.get(rank) != slot for rank, slot in live.items()):
        placed_at_ms = job.records[-1].placed_at_ms or job.created_at_ms
        yield JobRunning(request, tuple(live.items()), placed_at_ms)
    else:
        yield JobChanged(request)
        yield from (TaskEnded(job.id, rank) for rank in known if rank not in live)
    if job.ending is not None:
        yield JobDraining(job.id)


def _holds_room(job: Job, task: Task) -> bool:
    if task.state is TaskState.ENDED:  # started again in place: nobody else may have its room meanwhile
        return job.ending is not None and job.ending.phase is Phase.RESTARTING
    return task.state is not TaskState.WAITING


def _recovers(job: Job) -> bool:
    """Say whether a job waits to be brought back after a fault: such a job goes before all others."""
    trying = open_recovery(job) if job.phase is Phase.QUEUED else None
    return trying is not None and trying.level in BY_QUEUE


def _was_preempted(job: Job) -> bool:
    """Say whether the attempt before this one had to give way: such a job waits in front."""
    last = job.records[-2].reason if len(job.records) > 1 else None
    return last is not None and last.code in (ReasonCode.PREEMPTED, ReasonCode.EVICTED)
