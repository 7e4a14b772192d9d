"""Knows how to say why a job waits: one dominant reason in plain words, with the numbers behind it."""

from collections.abc import Iterable

from trackside.domain.job import JobId
from trackside.domain.pending import Ahead, Estimate, Free, PendingReason
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.wording import counted
from trackside.schedule.core import Scheduler
from trackside.schedule.estimate import estimate
from trackside.schedule.place import fits_now
from trackside.schedule.pools import PoolState
from trackside.schedule.queue import Entry, Shape
from trackside.schedule.room import MICRO, NodeRoom
from trackside.schedule.shortage import Shortage, hints_for, need_text, shortage
from trackside.schedule.values import PRIORITY_MAX

AHEAD_SHOWN = 5


class Reasons:
    """Says why jobs wait, as of one moment: what holds for one shape is worked out once."""

    def __init__(self, core: Scheduler) -> None:
        self._books = core.books
        self._shapes: dict[Shape, Shortage | None] = {}
        self._lines: dict[str, list[Entry]] = {}

    def code(self, job_id: JobId) -> ReasonCode:
        """Return the dominant reason's code."""
        entry, pool = self._found(job_id)
        if pool.pool is None:
            return ReasonCode.NO_SUCH_POOL
        if job_id in pool.claims:
            return ReasonCode.WAITING_FOR_PREEMPTED
        if not any(node.open for node in pool.nodes):
            return ReasonCode.NO_MACHINES
        if entry.shape.too_large:
            return ReasonCode.TOO_LARGE
        if pool.over_quota(entry.request, entry.shape.total) is not None:
            return ReasonCode.OVER_QUOTA
        lacking = self._lacking(pool, entry.shape)
        return lacking.code if lacking else ReasonCode.WAITING_FOR_TURN

    def text(self, job_id: JobId) -> str:
        """Return the reason in one plain sentence."""
        entry, pool = self._found(job_id)
        code = self.code(job_id)
        if code is ReasonCode.NO_SUCH_POOL:
            return f"the pool {pool.id} does not exist"
        if code is ReasonCode.NO_MACHINES:
            return f"no machine of the pool {pool.id} takes jobs now"
        if code is ReasonCode.WAITING_FOR_PREEMPTED:
            victims = [one for one in pool.claims[job_id].victims if one in pool.held]
            return f"{counted(len(victims), 'job')} of lower priority must end first to make room for it"
        if code is ReasonCode.TOO_LARGE:
            return f"needs {need_text(entry.shape)}, more than {_machines(pool, entry.shape)} have"
        if code is ReasonCode.OVER_QUOTA:
            return pool.quota_text(entry.request, entry.shape.total)
        lacking = self._lacking(pool, entry.shape)
        return lacking.text if lacking else self._turn_text(pool)

    def explain(self, job_id: JobId) -> PendingReason:
        """Return everything that can be said about why a job waits."""
        entry, pool = self._found(job_id)
        line = self._line(pool)
        position = line.index(entry) + 1
        code = self.code(job_id)
        ahead = [one for one in line[: position - 1] if not _set_aside(pool, one)]
        guess = Estimate(why="it cannot start as things are")
        if not _set_aside(pool, entry) and pool.pool is not None:
            guess = estimate(pool, ahead, entry, self._books.now_ms)
        return PendingReason(
            code=code,
            text=self.text(job_id),
            position=position,
            waiting=len(line),
            ahead=tuple(_ahead(one) for one in line[: min(position - 1, AHEAD_SHOWN)]),
            free=_free(pool),
            estimate=guess,
            hints=tuple(_hints(pool, entry, code, position, self._lacking(pool, entry.shape))),
        )

    def _turn_text(self, pool: PoolState) -> str:
        first = self._books.waiting.get(pool.lock.job_id) if pool.lock else None
        if first is None:
            return "it is next"
        return f"it would fit, but a job that needs {need_text(first.shape)} is first in line"

    def line(self, pool_id: str) -> list[JobId]:
        """Return all who wait in a pool, next to start first."""
        pool = self._books.pools.get(pool_id)
        return [] if pool is None else [entry.request.job_id for entry in self._line(pool)]

    def _found(self, job_id: JobId) -> tuple[Entry, PoolState]:
        entry = self._books.waiting[job_id]
        return entry, self._books.pools[entry.request.pool_id]

    def _lacking(self, pool: PoolState, shape: Shape) -> Shortage | None:
        if shape not in self._shapes:
            fits = not shape.blocked and fits_now(pool.nodes, shape.ask)
            self._shapes[shape] = None if fits else shortage(pool, shape)
        return self._shapes[shape]

    def _line(self, pool: PoolState) -> list[Entry]:
        """Return all who wait, in the order in which they would be looked at now."""
        if pool.id in self._lines:
            return self._lines[pool.id]
        line = self._lines[pool.id] = sorted(
            pool.entries(),
            # Who has a promise is past the line.
            key=lambda one: (one.request.job_id not in pool.claims, pool.order_key(one)),
        )
        return line


def reasons_of(core: Scheduler, job_ids: Iterable[JobId]) -> dict[JobId, Reason]:
    """Return why each of these jobs waits, those that do."""
    reasons = Reasons(core)
    return {
        job_id: Reason(text=reasons.text(job_id), code=reasons.code(job_id))
        for job_id in job_ids
        if core.waits(job_id)
    }


def explain(core: Scheduler, job_id: JobId) -> PendingReason | None:
    """Say why a job waits; None: it does not."""
    return Reasons(core).explain(job_id) if core.waits(job_id) else None


def _set_aside(pool: PoolState, entry: Entry) -> bool:
    return entry.shape.too_large or pool.over_quota(entry.request, entry.shape.total) is not None


def _ahead(entry: Entry) -> Ahead:
    request, total = entry.request, entry.shape.total
    return Ahead(
        job_id=request.job_id,
        project_id=request.project_id,
        name=request.name,
        user=request.user,
        priority=request.priority,
        tasks=len(entry.shape.needs),
        cpu_cores=total.cpu / MICRO,
        memory_bytes=total.memory,
        cards=total.cards,
    )


def _free(pool: PoolState) -> Free:
    nodes = [node for node in pool.nodes if node.open]
    return Free(
        cpu_cores=sum(max(node.cpu, 0) for node in nodes) / MICRO,
        memory_bytes=sum(max(node.memory, 0) for node in nodes),
        cards=sum(_cards(node) for node in nodes),
        largest_cpu_cores=max((max(node.cpu, 0) for node in nodes), default=0) / MICRO,
        largest_memory_bytes=max((max(node.memory, 0) for node in nodes), default=0),
        largest_cards=max((_cards(node) for node in nodes), default=0),
    )


def _machines(pool: PoolState, shape: Shape) -> str:
    allowed = len(shape.ask.allowed(pool.nodes))
    if allowed == len(pool.nodes):
        return f"the machines of the pool {pool.id}"
    return (
        f"those {allowed} of the {counted(len(pool.nodes), 'machine')} of the pool {pool.id} that it may use"
    )


def _cards(node: NodeRoom) -> int:
    return sum(max(count, 0) for count in node.cards)


def _hints(
    pool: PoolState, entry: Entry, code: ReasonCode, position: int, lacking: Shortage | None
) -> list[str]:
    hints = hints_for(pool, entry.shape, code, lacking)
    if code is ReasonCode.WAITING_FOR_TURN and entry.request.max_seconds is None:
        hints.append("give it a limit on how long it runs: then it may go first if it ends in time")
    if code is ReasonCode.OVER_QUOTA:
        hints.append("wait for the others to end, ask for less, or have the quota raised")
    queued = code in (ReasonCode.WAITING_FOR_TURN, ReasonCode.WAITING_FOR_ROOM, ReasonCode.WAITING_SCATTERED)
    if queued and position > 1 and entry.priority < PRIORITY_MAX:
        hints.append("a higher priority moves it up the line")
    return hints
