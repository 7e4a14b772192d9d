"""Knows who waits, who holds what, and what changes for the queues when room is taken or comes back."""

from collections.abc import Iterable, Sequence

from trackside.domain.job import JobId, NodeId, Slot
from trackside.schedule.pools import HISTORY_MAX, Claim, Held, PoolState
from trackside.schedule.queue import Entry, total_of
from trackside.schedule.room import Need, NodeRoom
from trackside.schedule.values import Request


class Books:
    """All state of the core, and the only code that changes it."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.nodes: dict[NodeId, NodeRoom] = {}
        self.pools: dict[str, PoolState] = {}
        self.waiting: dict[JobId, Entry] = {}
        self.held: dict[JobId, Held] = {}

    def pool(self, pool_id: str) -> PoolState:
        """Return a pool; one that does not exist has no machines and its jobs wait for it."""
        found = self.pools.get(pool_id)
        if found is None:
            found = self.pools[pool_id] = PoolState(pool_id)
        return found

    def node(self, node_id: NodeId) -> NodeRoom:
        """Return a machine; one that nobody told of yet has no room."""
        found = self.nodes.get(node_id)
        if found is None:
            found = self.nodes[node_id] = NodeRoom(node_id)
        return found

    def renew(self, pool: PoolState) -> None:
        """Take over the pool's machines, and forget what did and did not fit on them."""
        wanted = pool.pool.node_ids if pool.pool else ()
        known = self.nodes.values() if wanted is None else (self.node(node_id) for node_id in wanted)
        pool.set_nodes(known)
        for shape in list(pool.queue.shapes.values()):
            shape.too_large = pool.too_large(shape.ask)
            pool.queue.unblock(shape, None)
        for entry in pool.entries():
            entry.evict_seen = None
        pool.unpark("size")

    def enqueue(self, pool: PoolState, request: Request) -> Entry:
        """Let a job wait."""
        shape = pool.queue.shape_of(request)
        if shape.waiting == 0:
            shape.too_large = pool.too_large(shape.ask)
        entry = self.waiting[request.job_id] = Entry(request, shape)
        pool.queue.push(entry, pool.lane_key(request, entry.priority))
        return entry

    def adopt(self, request: Request, slots: Iterable[tuple[int, Slot]], since_ms: int) -> None:
        """Take down that a job holds room already."""
        pool = self.pool(request.pool_id)
        held = Held(request, pool.queue.shape_of(request), pool, since_ms)
        for rank, slot in slots:
            node, need = self.node(slot.node_id), held.shape.needs[rank]
            held.slots[rank] = (node, need, node.hold(need, request.job_id, slot.cards))
            self._changed(node)
            pool.book(request, need)
        self._keep(held)

    def start(self, pool: PoolState, entry: Entry, nodes: Sequence[NodeRoom]) -> tuple[Slot, ...]:
        """Give a waiting job its room, on machines where nothing is claimed for it any more."""
        request = entry.request
        held = Held(request, entry.shape, pool, self.now_ms)
        slots = []
        for rank, (node, need) in enumerate(zip(nodes, entry.shape.needs, strict=True)):
            cards = node.hold(need, request.job_id)
            held.slots[rank] = (node, need, cards)
            self._changed(node)
            slots.append(Slot(node.id, cards))
        pool.book(request, entry.shape.total)
        del self.waiting[request.job_id]
        if entry.lane is not None:
            pool.queue.drop(entry)
        self._keep(held)
        return tuple(slots)

    def release(self, held: Held, ranks: Sequence[int]) -> list[PoolState]:
        """Take the room of some tasks back; return the pools that may use it."""
        job_id, pool = held.request.job_id, held.pool
        freed: dict[NodeRoom, None] = {}
        needs: list[tuple[Need, int]] = []
        for rank in ranks:
            node, need, cards = held.slots.pop(rank)
            node.release(need, job_id, cards)
            freed[node] = None
            needs.append((need, 1))
        whole = len(needs) == len(held.shape.needs)
        pool.book(held.request, held.shape.total if whole else total_of(tuple(needs)), -1)
        if not held.slots:
            self.count_evictable(held, -1)
            del self.held[job_id], pool.held[job_id]
            limit = held.request.max_seconds
            pool.ended.append((self.now_ms - held.since_ms, None if limit is None else limit * 1000))
            del pool.ended[:-HISTORY_MAX]
        return self.freed(freed)

    def freed(self, nodes: Iterable[NodeRoom]) -> list[PoolState]:
        """Unblock the shapes that may fit on machines with more room than before."""
        touched: dict[str, PoolState] = {}
        for node in nodes:
            for pool in self.pools.values():
                if node not in pool.members:
                    continue
                touched[pool.id] = pool
                pool.freed.add(node)
                pool.queue.index.note(node)
                pool.queue.freed(node)
        return list(touched.values())

    def claim(self, pool: PoolState, entry: Entry, nodes: list[NodeRoom], victims: Sequence[Held]) -> None:
        """Promise room to a job until those who hold it have drained."""
        for node, need in zip(nodes, entry.shape.needs, strict=True):
            node.claim(need)
            self._changed(node)
        pool.book(entry.request, entry.shape.total)
        pool.queue.drop(entry)
        for held in victims:
            self.drain(held)
        ids = tuple(held.request.job_id for held in victims)
        pool.claims[entry.request.job_id] = Claim(entry, nodes, ids)

    def unclaim(self, pool: PoolState, claim: Claim) -> list[PoolState]:
        """Take a promise back; return the pools that may use the room."""
        for node, need in zip(claim.nodes, claim.entry.shape.needs, strict=True):
            node.claim(need, -1)
        pool.book(claim.entry.request, claim.entry.shape.total, -1)
        del pool.claims[claim.entry.request.job_id]
        return self.freed(dict.fromkeys(claim.nodes))

    def drain(self, held: Held) -> None:
        """Take note that a job was told to end."""
        self.count_evictable(held, -1)
        held.draining = True

    def count_evictable(self, held: Held, by: int) -> None:
        """Count a job among those that may be preempted, or count it no longer."""
        if not held.evictable:
            return
        held.pool.evictable[held.priority] += by
        if by > 0:  # somebody may be able to make room now
            for node, _, _ in held.slots.values():
                held.pool.freed.add(node)

    def _changed(self, node: NodeRoom) -> None:
        for pool in self.pools.values():
            if node in pool.members:
                pool.queue.index.note(node)

    def _keep(self, held: Held) -> None:
        self.held[held.request.job_id] = held.pool.held[held.request.job_id] = held
        self.count_evictable(held, 1)
