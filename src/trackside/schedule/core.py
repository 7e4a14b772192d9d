"""The scheduling core: something happened in, decisions out.

It holds jobs, machines and pools in memory and looks only at what an event can have changed. The same events
in the same order give the same decisions: there is no clock (Tick brings the time), no chance, and no order
that hangs on hashes. What it decides counts as done; who applies a decision tells it if that went wrong.
"""

from collections.abc import Callable, Iterable
from typing import Any

from trackside.domain.affinity import all_labels
from trackside.domain.job import JobId, NodeId
from trackside.schedule.bookkeeping import Books
from trackside.schedule.passes import run_pass
from trackside.schedule.pools import LOOK_AGAIN_MS, Claim, Held, PoolState
from trackside.schedule.queue import Entry
from trackside.schedule.values import (
    Decision,
    JobChanged,
    JobDraining,
    JobEnded,
    JobQueued,
    JobRemoved,
    JobRunning,
    NodeChanged,
    NodeRemoved,
    PoolChanged,
    PoolRemoved,
    SchedulingEvent,
    TaskEnded,
    Tick,
)


class Scheduler:
    """Every pool's queue and room. Tell it what happens; do what it answers."""

    def __init__(self) -> None:
        self.books = Books()
        self._apply: dict[type, Callable[[Any], None]] = {
            JobQueued: self._queued,
            JobRunning: self._running,
            JobChanged: self._changed,
            JobDraining: self._draining,
            TaskEnded: self._task_ended,
            JobEnded: self._gone,
            JobRemoved: self._gone,
            NodeChanged: self._node_changed,
            NodeRemoved: self._node_removed,
            PoolChanged: self._pool_changed,
            PoolRemoved: self._pool_removed,
            Tick: self._tick,
        }
        self._touched: dict[str, PoolState] = {}

    def handle(self, event: SchedulingEvent) -> list[Decision]:
        """Take one thing that happened and return what is to be done now."""
        self._apply[type(event)](event)
        return self._decide()

    def handle_all(self, events: Iterable[SchedulingEvent]) -> list[Decision]:
        """Take many things at once, and decide when all of them are known."""
        for event in events:
            self._apply[type(event)](event)
        return self._decide()

    def waits(self, job_id: JobId) -> bool:
        """Say whether the job waits, perhaps with room promised."""
        return job_id in self.books.waiting

    def holds(self, job_id: JobId) -> Held | None:
        """Return the job's room if it has any."""
        return self.books.held.get(job_id)

    def waiting(self) -> list[JobId]:
        """Return every job that waits."""
        return list(self.books.waiting)

    def waiting_count(self) -> int:
        """Return how many jobs wait."""
        return len(self.books.waiting)

    def node_ids(self) -> list[NodeId]:
        """Return the machines that are known."""
        return [node.id for node in self.books.nodes.values() if node.known]

    @property
    def now_ms(self) -> int:
        """Return how late it is."""
        return self.books.now_ms

    def _decide(self) -> list[Decision]:
        decisions: list[Decision] = []
        for pool in self._touched.values():
            run_pass(self.books, pool, decisions)
        self._touched.clear()
        return decisions

    def _touch(self, pool: PoolState) -> None:
        self._touched[pool.id] = pool
        pool.backfill_due = True

    def _queued(self, event: JobQueued) -> None:
        request = event.job
        self._forget(request.job_id)
        pool = self.books.pool(request.pool_id)
        entry = self.books.enqueue(pool, request)
        if self._behind_lock(pool, entry):
            pool.backfill_due = True
        elif not pool.passed_over(entry):
            self._touch(pool)

    def _behind_lock(self, pool: PoolState, entry: Entry) -> bool:
        """Say whether a job changes nothing by coming: who holds the lock goes first and does not fit."""
        head = self.books.waiting.get(pool.lock.job_id) if pool.lock else None
        if head is None or not head.shape.blocked:
            return False
        return pool.order_key(head) < pool.order_key(entry)

    def _running(self, event: JobRunning) -> None:
        request = event.job
        self._forget(request.job_id)
        self.books.adopt(request, event.slots, event.since_ms)

    def _changed(self, event: JobChanged) -> None:
        request, books = event.job, self.books
        entry = books.waiting.get(request.job_id)
        if entry is not None:
            if request == entry.request:
                return
            self._queued(JobQueued(request))
        elif (held := books.held.get(request.job_id)) is not None:
            books.count_evictable(held, -1)
            held.request = request
            books.count_evictable(held, 1)
            self._touch(held.pool)

    def _draining(self, event: JobDraining) -> None:
        held = self.books.held.get(event.job_id)
        if held is not None and not held.draining:
            self.books.drain(held)

    def _task_ended(self, event: TaskEnded) -> None:
        held = self.books.held.get(event.job_id)
        if held is None or event.rank not in held.slots:
            return
        self._let_go(held, (event.rank,))

    def _gone(self, event: JobEnded | JobRemoved) -> None:
        self._forget(event.job_id)

    def _forget(self, job_id: JobId) -> None:
        """Let go of whatever is known of a job."""
        held = self.books.held.get(job_id)
        if held is not None:
            self._let_go(held, tuple(held.slots))
        entry = self.books.waiting.get(job_id)
        if entry is not None:
            self._withdraw(entry)

    def _let_go(self, held: Held, ranks: tuple[int, ...]) -> None:
        for pool in self.books.release(held, ranks):
            self._touch(pool)

    def _withdraw(self, entry: Entry) -> None:
        pool = self.books.pool(entry.request.pool_id)
        del self.books.waiting[entry.request.job_id]
        claim = pool.claims.get(entry.request.job_id)
        if claim is not None:
            self._drop_claim(pool, claim)
        else:
            pool.queue.drop(entry)
        self._touch(pool)

    def _drop_claim(self, pool: PoolState, claim: Claim) -> None:
        for freed in self.books.unclaim(pool, claim):
            self._touch(freed)

    def _node_changed(self, event: NodeChanged) -> None:
        spec = event.node
        node = self.books.node(spec.id)
        node.resize(spec.capacity, is_open=spec.open, isolated=spec.isolated_cards)
        node.labels = all_labels(spec.id, spec.labels)
        self._renew(node.id)

    def _node_removed(self, event: NodeRemoved) -> None:
        node = self.books.nodes.get(event.node_id)
        if node is not None:
            node.resize(None, is_open=False)
            self._renew(node.id)

    def _renew(self, node_id: NodeId) -> None:
        """Look at everything again: a machine is another one now. Rare, so it may cost."""
        for pool in list(self.books.pools.values()):
            if pool.pool is None or (pool.pool.node_ids is not None and node_id not in pool.pool.node_ids):
                continue
            for claim in list(pool.claims.values()):
                self._drop_claim(pool, claim)
                self.books.enqueue(pool, claim.entry.request)
            self.books.renew(pool)
            self._touch(pool)

    def _pool_changed(self, event: PoolChanged) -> None:
        pool = self.books.pool(event.pool.id)
        self._set_pool(pool, lambda: setattr(pool, "pool", event.pool))

    def _pool_removed(self, event: PoolRemoved) -> None:
        pool = self.books.pools.get(event.pool_id)
        if pool is not None:
            self._set_pool(pool, lambda: setattr(pool, "pool", None))

    def _set_pool(self, pool: PoolState, change: Callable[[], None]) -> None:
        requests = [entry.request for entry in pool.entries()]
        for entry in list(pool.entries()):
            self._withdraw(entry)
        change()
        pool.lock = None
        self.books.renew(pool)
        for request in requests:
            self.books.enqueue(pool, request)
        self._touch(pool)

    def _tick(self, event: Tick) -> None:
        books = self.books
        books.now_ms = now = max(books.now_ms, event.now_ms)
        for pool in books.pools.values():
            until = pool.lock.until_ms if pool.lock else None
            expired = until is not None and until <= now
            if expired or (pool.backfill_due and pool.looked_ms + LOOK_AGAIN_MS <= now):
                self._touched[pool.id] = pool
