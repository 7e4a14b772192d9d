"""Knows when to look: wakes on every change, applies what was decided, keeps the deadlines."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trackside.domain import rules
from trackside.domain.job import Job, JobId, NodeId, Slot
from trackside.domain.phase import Phase
from trackside.ports import Clock, Engine, JobStore, Update
from trackside.supervise.decide import decide_placements

log = logging.getLogger(__name__)
TICK_SECONDS = 1.0  # deadlines and silent nodes are noticed this late at most
NODE_SILENT_SECONDS = 60.0


class Supervisor:
    """Drives every job that is not over. A crash anywhere is healed by the next round."""

    def __init__(
        self, store: JobStore, engine: Engine, clock: Clock, *, forget: Callable[[Job], Awaitable[None]]
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._forget = forget
        self._wake = asyncio.Event()
        self._deadlines_ms: dict[JobId, int] = {}  # by the monotonic clock: wall clocks jump
        self.failures = 0

    def wake(self) -> None:
        """Ask for a round now: something changed."""
        self._wake.set()

    async def run(self) -> None:
        """Go round for ever; a round that fails is logged, counted and tried again."""
        while True:
            try:
                await self.round()
            except Exception:
                self.failures += 1
                log.exception("a supervising round failed; the next one tries again")
            try:
                await asyncio.wait_for(self._wake.wait(), TICK_SECONDS)
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Look at all active jobs once and do what they need."""
        self._wake.clear()
        jobs = await self._store.active()
        await self._place(jobs)
        await self._end_overdue(jobs)
        await self._watch_nodes(jobs)
        for job in await self._store.deleted():
            await self._forget(job)

    async def _place(self, jobs: tuple[Job, ...]) -> None:
        placements = decide_placements(jobs, self._engine.nodes())
        if not placements:
            return
        taken = {port for job in jobs for port in _ports(job.records[-1].master_port, job.spec.node_count)}
        changes = []
        for placement in placements:
            count = len(placement.slots)
            port = self._engine.free_ports(placement.slots[0].node_id, count, frozenset(taken))
            taken.update(_ports(port, count))
            changes.append((placement.job_id, self._placer(placement.slots, port)))
        await self._store.update_many(changes)  # the intent is durable before anybody acts on it
        self._engine.changed()

    def _placer(self, slots: tuple[Slot, ...], port: int) -> Callable[[Job], Update | None]:
        at_ms = self._clock.now_ms()

        def change(job: Job) -> Update | None:
            if job.phase is not Phase.QUEUED:  # it was stopped in between
                return None
            moved, events = rules.place(job, slots, master_port=port, at_ms=at_ms)
            return Update(job=moved, events=events)

        return change

    async def _end_overdue(self, jobs: tuple[Job, ...]) -> None:
        now = self._clock.monotonic_ms()
        live = {job.id for job in jobs}
        self._deadlines_ms = {key: at for key, at in self._deadlines_ms.items() if key in live}
        for job in jobs:
            if job.spec.max_seconds is None or job.started_at_ms is None or job.ending or job.final:
                continue
            ran_ms = max(0, self._clock.now_ms() - job.started_at_ms)
            deadline = self._deadlines_ms.setdefault(job.id, now - ran_ms + job.spec.max_seconds * 1000)
            if now >= deadline:
                await self._store.update(job.id, self._overdue)
                self._engine.changed()

    def _overdue(self, job: Job) -> Update | None:
        if job.final or job.ending:
            return None
        moved, events = rules.end_early(job, rules.overdue_reason(job), at_ms=self._clock.now_ms())
        return Update(job=moved, events=events)

    async def _watch_nodes(self, jobs: tuple[Job, ...]) -> None:
        now, steady = self._clock.now_ms(), self._clock.monotonic_ms()
        seen = {node.id: node.seen_monotonic_ms for node in self._engine.nodes()}
        for job in jobs:
            for node_id in {task.node_id for task in job.tasks}:
                silent = steady - seen[node_id] > NODE_SILENT_SECONDS * 1000 if node_id in seen else False
                move = rules.lose_node if silent else rules.regain_node
                if move(job, node_id, at_ms=now) is not None:
                    await self._store.update(job.id, _node_change(move, node_id, now))


def _ports(first: int | None, count: int) -> range:
    """Return the ports a job's tasks were promised: one each, in a row."""
    return range(first, first + count) if first else range(0)


def _node_change(
    move: Callable[..., rules.Change | None], node_id: NodeId, at_ms: int
) -> Callable[[Job], Update | None]:
    def change(job: Job) -> Update | None:
        moved = move(job, node_id, at_ms=at_ms)
        return Update(job=moved[0], events=moved[1]) if moved else None

    return change
