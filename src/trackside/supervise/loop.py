"""Knows when to look: wakes on every change, does what the core decides, keeps the deadlines."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from trackside.domain import rules
from trackside.domain.closing import Change
from trackside.domain.fault import Isolation
from trackside.domain.job import DEFAULT_POOL, Job, JobId, NodeId, Slot
from trackside.domain.pending import PendingReason
from trackside.domain.phase import Phase
from trackside.domain.pool import Pool
from trackside.domain.reason import Reason
from trackside.domain.timing import running_time
from trackside.ports import Clock, Engine, JobStore, Update
from trackside.schedule.explain import Reasons, explain, reasons_of
from trackside.schedule.values import Decision, Start
from trackside.supervise.emptying import empty_nodes
from trackside.supervise.recovering import Recovering
from trackside.supervise.telling import Telling
from trackside.supervise.watch import Labels, Watch

log = logging.getLogger(__name__)
TICK_SECONDS = 1.0  # deadlines and silent nodes are noticed this late at most
NODE_SILENT_SECONDS = 60.0


class Supervisor:
    """Drives every job that is not over. A crash anywhere is healed by the next round."""

    def __init__(
        self,
        store: JobStore,
        engine: Engine,
        clock: Clock,
        *,
        forget: Callable[[Job], Awaitable[None]],
        pools: Callable[[], Sequence[Pool]] = lambda: (Pool(id=DEFAULT_POOL),),
        closed_nodes: Callable[[], frozenset[NodeId]] = frozenset,
        labels: Labels = dict,
        emptied_nodes: Callable[[], Mapping[NodeId, str]] = dict,
        isolated_cards: Callable[[], Mapping[NodeId, frozenset[int]]] = dict,
        isolate: Callable[[Isolation, str], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._forget = forget
        self._watch = Watch(pools, closed_nodes, labels, isolated_cards)
        self._recovering = Recovering(store, clock, isolate)
        self._emptied_nodes = emptied_nodes
        self._telling = Telling()
        self._wake = asyncio.Event()
        self._deadlines_ms: dict[tuple[JobId, int], int] = {}  # by the monotonic clock: wall clocks jump
        self.failures = 0

    def wake(self) -> None:
        """Ask for a round now: something changed."""
        self._wake.set()

    def explain(self, job_id: JobId) -> PendingReason | None:
        """Say why a job waits, as of the last round; None: it does not wait."""
        return explain(self._watch.core, job_id)

    def line(self, pool_id: str) -> list[JobId]:
        """Return the jobs that wait in a pool, next to start first, as of the last round."""
        return Reasons(self._watch.core).line(pool_id)

    def reasons(self, job_ids: Iterable[JobId]) -> dict[JobId, Reason]:
        """Say in one sentence each why some jobs wait, those that do."""
        return reasons_of(self._watch.core, job_ids)

    async def run(self) -> None:
        """Go round for ever; a round that fails is logged, counted and tried again."""
        while True:
            try:
                await self.round()
            except Exception:
                self.failures += 1
                log.exception("a supervising round failed; the next one tries again")
            try:
                async with asyncio.timeout(TICK_SECONDS):  # wait_for may swallow a cancellation
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Look at all active jobs once and do what they need."""
        self._wake.clear()
        jobs = await self._store.active()
        await self._recovering.isolate(jobs)  # before anything is placed there again
        await self._schedule(jobs)
        await self._tell_why(jobs)
        emptied = self._emptied_nodes()
        if emptied and await empty_nodes(self._store, jobs, emptied, at_ms=self._clock.now_ms()):
            self._engine.changed()
        await self._end_overdue(jobs)
        await self._recovering.give_up(jobs)
        await self._watch_nodes(jobs)
        for job in await self._store.deleted():
            await self._forget(job)

    async def _schedule(self, jobs: tuple[Job, ...]) -> None:
        watch = self._watch
        try:
            events = watch.changes(jobs, self._engine.nodes(), self._clock.now_ms())
            decided = watch.core.handle_all(events)
            decisions, updates = watch.replacing.answered(decided, self._clock.now_ms())
            replaced = bool(updates)
            updates += self._changes(decisions, jobs)
            if updates:
                await self._store.update_many(updates)  # durable before anybody acts on it
                self._engine.changed()
            if replaced:
                self.wake()  # the core hears of the new places as the running jobs' own
        except BaseException:
            watch.forget()  # the core believes what it decided; nobody knows how much of it was done
            raise

    def _changes(
        self, decisions: Sequence[Decision], jobs: tuple[Job, ...]
    ) -> list[tuple[JobId, Callable[[Job], Update | None]]]:
        taken = {port for job in jobs for port in _ports(job.records[-1].master_port, job.spec.node_count)}
        by_id = {job.id: job for job in jobs}
        changes: list[tuple[JobId, Callable[[Job], Update | None]]] = []
        for decision in decisions:
            if isinstance(decision, Start):
                count = len(decision.slots)
                port = self._engine.free_ports(decision.slots[0].node_id, count, frozenset(taken))
                taken.update(_ports(port, count))
                changes.append((decision.job_id, self._placer(decision.slots, port)))
            else:
                changes.append((decision.job_id, self._preempter(by_id[decision.for_job])))
        return changes

    def _preempter(self, for_job: Job) -> Callable[[Job], Update | None]:
        at_ms = self._clock.now_ms()

        def change(job: Job) -> Update | None:
            moved = rules.preempt(job, for_job, at_ms=at_ms)
            return Update(job=moved[0], events=moved[1]) if moved else None

        return change

    async def _tell_why(self, jobs: tuple[Job, ...]) -> None:
        """Keep the reasons of waiting as a series: an event when one becomes another."""
        events = self._telling.events(self._watch.core, jobs, self._clock.now_ms())
        if events:
            await self._store.add_events(events)

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
        deadlines: dict[tuple[JobId, int], int] = {}
        for job in jobs:
            ran_ms, since_ms = running_time(job)
            if job.spec.max_seconds is None or since_ms is None or job.started_at_ms is None or job.ending:
                continue
            key = job.id, job.records[-1].number  # time in the queue between two attempts does not count
            left_ms = job.spec.max_seconds * 1000 - ran_ms - max(0, self._clock.now_ms() - since_ms)
            deadlines[key] = self._deadlines_ms.get(key, now + left_ms)
            if now >= deadlines[key]:
                await self._store.update(job.id, self._overdue)
                self._engine.changed()
        self._deadlines_ms = deadlines

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
    move: Callable[..., Change | None], node_id: NodeId, at_ms: int
) -> Callable[[Job], Update | None]:
    def change(job: Job) -> Update | None:
        moved = move(job, node_id, at_ms=at_ms)
        return Update(job=moved[0], events=moved[1]) if moved else None

    return change
