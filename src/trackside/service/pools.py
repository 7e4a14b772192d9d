"""Knows the pools there are: answers from memory and writes changes through.

Pools belong to the installation, not to a project: they divide its machines. `default` always is there, has
every machine, and cannot be removed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from trackside.domain.errors import Invalid, NameTaken, NotFound, PoolNotFound
from trackside.domain.fault import Isolation
from trackside.domain.identity import Caller
from trackside.domain.job import DEFAULT_POOL, Job, JobId, JobSpec, NodeId
from trackside.domain.phase import Phase
from trackside.domain.pool import Pool, QueuePolicy
from trackside.domain.resources import Capacity
from trackside.ports import Clock, JobStore, Node, PoolStore
from trackside.service.catalog import Catalog
from trackside.service.node_disks import Disk, NodeDisks
from trackside.service.pool_fit import check_fits_pool
from trackside.service.pool_nodes import NodeDecision, NodeState, decision_document, read_decision
from trackside.service.pool_record import (
    PoolChange,
    PoolKind,
    PoolRecord,
    changed,
    decode,
    default_record,
    encode,
    share_capacity,
    with_policy_setting,
)
from trackside.service.pool_size import NAMES_SHOWN, Wanted, id_and_name, picked, sized
from trackside.service.pool_use import PoolUse, queue_order, total_capacity

log = logging.getLogger(__name__)
POOLS_MAX = 1000
ISOLATED_BY = "trackside"

Nodes = Callable[[], Sequence[Node]]


class Pools:
    """Keep the pools and what was decided about machines."""

    def __init__(
        self,
        *,
        store: PoolStore,
        jobs: JobStore,
        catalog: Catalog,
        nodes: Nodes,
        clock: Clock,
        changed: Callable[[], None],
        line: Callable[[str], Sequence[JobId]] = lambda _: (),
        default_policy: QueuePolicy = QueuePolicy.FIFO,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._catalog = catalog
        self._nodes = nodes
        self._clock = clock
        self._told = changed
        self._line = line  # who waits in a pool, in order, as scheduling sees it
        self._default_policy = default_policy
        self._records = {DEFAULT_POOL: default_record(clock.now_ms(), default_policy)}
        self._decisions: dict[str, NodeDecision] = {}  # by machine
        self._disks = NodeDisks()
        self._changing = asyncio.Lock()  # memory changes in the order of the database

    async def load(self) -> None:
        """Read what is stored; before that there is `default` alone."""
        stored = dict(await self._store.pools())
        self._records |= {name: decode(document) for name, document in stored.items()}
        self._decisions = {
            node_id: read_decision(document) for node_id, document in await self._store.nodes()
        }
        default = with_policy_setting(self._records[DEFAULT_POOL], self._default_policy)
        if DEFAULT_POOL not in stored or default != self._records[DEFAULT_POOL]:  # or it has its birthday
            await self._store.put(DEFAULT_POOL, encode(default))
            self._records[DEFAULT_POOL] = default
        if default.pool.policy is not self._default_policy:
            told = "the pool %s keeps the queue policy %s that it was given; the setting says %s"
            log.info(told, DEFAULT_POOL, default.pool.policy, self._default_policy)

    def all(self) -> tuple[Pool, ...]:
        """Return every pool as scheduling sees it."""
        return tuple(record.pool for record in self._records.values())

    def closed_nodes(self) -> frozenset[NodeId]:
        """Return the machines that take nothing new."""
        return frozenset(
            NodeId(node) for node, one in self._decisions.items() if one.state is not NodeState.OPEN
        )

    def emptied_nodes(self) -> dict[NodeId, str]:
        """Return the machines whose jobs are to leave them, and who wants it."""
        return {NodeId(node): one.emptied_by for node, one in self._decisions.items() if one.emptied_by}

    def labels(self) -> dict[NodeId, Mapping[str, str]]:
        """Return the labels that machines were given."""
        return {NodeId(node): one.labels for node, one in self._decisions.items() if one.labels}

    def isolated_cards(self) -> Mapping[NodeId, frozenset[int]]:
        """Return the cards that take nothing new although their machine does."""
        return {
            NodeId(node): one.isolated_cards for node, one in self._decisions.items() if one.isolated_cards
        }

    def list(self) -> list[PoolRecord]:
        """Return every pool, the default one first, the others by name."""
        return sorted(self._records.values(), key=lambda one: (one.id != DEFAULT_POOL, one.name, one.id))

    def show(self, pool_id: str) -> PoolRecord:
        """Return a pool."""
        found = self._records.get(pool_id)
        if found is None:
            raise PoolNotFound(f"Pool {pool_id} not found.")
        return found

    def check(self, caller: Caller, spec: JobSpec) -> None:
        """Refuse a job that names no pool there is, or that could never run in its pool."""
        record = self.show(spec.pool_id)
        check_fits_pool(caller, spec, record.pool, self.nodes(record))

    def check_open(self, spec: JobSpec) -> None:
        """Refuse a job whose pool went away since it was checked. May be asked from any thread."""
        self.show(spec.pool_id)

    async def create(
        self,
        caller: Caller,
        wanted: PoolChange,
        *,
        pool_id: str | None = None,
        workspace_id: str = "0",
        labels: dict[str, str] | None = None,
    ) -> PoolRecord:
        """Make a pool, of whole machines if it names some, else of a share of them."""
        pool_id, name = id_and_name(wanted, pool_id)
        async with self._changing:
            self._check_new(pool_id, name)
            record = PoolRecord(
                pool=Pool(id=pool_id),
                name=name,
                workspace_id=workspace_id,
                project_id=caller.project_id,
                created_by=caller.user,
                created_at_ms=self._clock.now_ms(),
                labels=labels or {},
            )
            return await self._keep(self._sized(record, wanted))

    async def change(self, pool_id: str, wanted: PoolChange) -> PoolRecord:
        """Change a pool; its jobs go on as they are."""
        async with self._changing:
            record = self.show(pool_id)
            if pool_id == DEFAULT_POOL and (wanted.shares is not None or wanted.node_ids is not None):
                raise Invalid(f"the pool {DEFAULT_POOL} always has all machines: make another pool")
            return await self._keep(self._sized(record, wanted))

    async def delete(self, pool_id: str) -> PoolRecord:
        """Remove a pool in which every job is over; raise PoolInUse otherwise."""
        if pool_id == DEFAULT_POOL:
            raise Invalid(f"the pool {DEFAULT_POOL} cannot be deleted")
        async with self._changing:
            record = self.show(pool_id)
            # First from memory: a job that comes now is refused, one that came before is seen by the store.
            del self._records[pool_id]
            try:
                await self._store.delete(pool_id)
            except BaseException:
                self._records[pool_id] = record
                raise
        self._told()
        return record

    def nodes(self, record: PoolRecord) -> Sequence[Node]:
        """Return the machines of a pool, by name, with the labels they were given."""
        wanted, labels = record.pool.node_ids, self.labels()
        found = (node for node in self._nodes() if wanted is None or node.id in wanted)
        labelled = (
            replace(node, labels={**node.labels, **labels[node.id]}) if node.id in labels else node
            for node in found
        )
        return sorted(labelled, key=lambda node: node.id)

    def node(self, record: PoolRecord, node_id: str) -> Node:
        """Return one machine of a pool."""
        nodes = self.nodes(record)
        found = next((node for node in nodes if node.id == node_id), None)
        if found is None:
            names = ", ".join(node.id for node in nodes[:NAMES_SHOWN]) or "none"
            raise NotFound(f"pool {record.id} has no node {node_id!r}; there are: {names}")
        return found

    def pick_nodes(self, shares: Wanted) -> tuple[str, ...]:
        """Return so many machines that each hold a flavor, those in no other pool first."""
        taken = {node for pool in self.all() for node in pool.node_ids or ()}
        free_first = sorted(self._nodes(), key=lambda node: (node.id in taken, node.id))
        return picked(shares, self._catalog, free_first)

    def node_state(self, node_id: str) -> NodeState:
        """Return what was decided about a machine."""
        return self._decisions.get(node_id, NodeDecision()).state

    async def set_node(self, caller: Caller, node_id: str, state: NodeState, *, evict: bool = False) -> None:
        """Lock a machine, drain it (with evict: its jobs are ended and queued again), or open it again."""
        emptied_by = caller.user if evict else None
        await self._decide(caller.user, node_id, lambda old: old.turned(state, emptied_by=emptied_by))

    async def isolate(self, faulty: Isolation, why: str) -> None:
        """Let a faulty machine, or some of its cards, take nothing new until somebody opens it again."""
        await self._decide(ISOLATED_BY, faulty.node_id, lambda old: old.isolated(faulty.cards, why))

    async def label_node(
        self, caller: Caller, node_id: str, changes: Mapping[str, str | None]
    ) -> Mapping[str, str]:
        """Give a machine labels, or (None) take some away; return those it was given."""
        return (await self._decide(caller.user, node_id, lambda old: old.labelled(changes))).labels

    async def _decide(
        self, by: str, node_id: str, change: Callable[[NodeDecision], NodeDecision]
    ) -> NodeDecision:
        if node_id not in self._decisions and all(node.id != node_id for node in self._nodes()):
            raise NotFound(f"there is no node {node_id!r}")
        async with self._changing:
            decision = change(self._decisions.get(node_id, NodeDecision()))
            document = decision_document(decision, by=by, at_ms=self._clock.now_ms())
            await self._store.put_node(node_id, document)
            self._decisions[node_id] = decision
        self._told()
        return decision

    def capacity(self, record: PoolRecord) -> Capacity:
        """Return what the pool's jobs can hold together."""
        nodes = total_capacity([node.capacity for node in self.nodes(record)])
        if record.kind is not PoolKind.SHARE:
            return nodes
        share = share_capacity(record.shares)
        return replace(share, gpu_model=nodes.gpu_model, npu_model=nodes.npu_model)

    async def use(self, record: PoolRecord) -> PoolUse:
        """Return what is held in a pool, and on each machine, now."""
        return PoolUse.of(record.id, await self._jobs.active())

    async def waiting(self, pool_id: str) -> Sequence[Job]:
        """Return the jobs that wait in a pool, of all projects, next to start first."""
        queued = queue_order(job for job in await self._jobs.active() if job.spec.pool_id == pool_id)
        places = {job_id: place for place, job_id in enumerate(self._line(pool_id))}
        # Those that scheduling has not heard of yet come last, by priority and age.
        return sorted(queued, key=lambda job: places.get(job.id, len(places)))

    async def running_on(self, caller: Caller, pool_id: str, ips: Sequence[str]) -> Sequence[Job]:
        """Return the caller's jobs of a pool that are not over and have a task on one of the machines."""
        ids = {node.id for node in self._nodes() if node.ip in ips}
        return [
            job
            for job in await self._jobs.active()
            if job.project_id == caller.project_id
            and job.spec.pool_id == pool_id
            and not job.deleting
            and any(task.node_id in ids for task in job.tasks)
        ]

    async def counts(self, caller: Caller, pool_id: str) -> dict[tuple[str, Phase], int]:
        """Return how many of the caller's jobs of each kind are in each phase in a pool."""
        self.show(pool_id)
        return await self._jobs.counts(caller.project_id, pool_id=pool_id)

    def note_disk(self, node_id: NodeId, total_bytes: int, free_bytes: int) -> None:
        """Take note of how full the disk of a machine is now."""
        if any(node.id == node_id for node in self._nodes()):
            self._disks.note(node_id, Disk(total_bytes, free_bytes), self._clock.now_ms())

    def disks(self, record: PoolRecord, minutes: Iterable[int]) -> dict[int, Disk]:
        """Return the disks of a pool's machines together, in the minutes in which all of them were told."""
        return self._disks.together([node.id for node in self.nodes(record)], minutes)

    def addresses(self) -> dict[NodeId, str]:
        """Return where each machine is."""
        return {node.id: node.ip for node in self._nodes()}

    def _check_new(self, pool_id: str, name: str) -> None:
        if pool_id in self._records or any(record.name == name for record in self._records.values()):
            raise NameTaken(f"a pool called {name!r} exists already")
        if len(self._records) >= POOLS_MAX:
            raise Invalid(f"there are {POOLS_MAX:,} pools already: delete some first")

    def _sized(self, record: PoolRecord, wanted: PoolChange) -> PoolRecord:
        return sized(changed(record, wanted), wanted, self._catalog, self._nodes())

    async def _keep(self, record: PoolRecord) -> PoolRecord:
        await self._store.put(record.id, encode(record))
        self._records[record.id] = record
        self._told()
        return record
