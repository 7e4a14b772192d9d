"""Knows how to guess when a waiting job starts, by playing the queue forward; where it cannot, it says why.

The latest start comes from limits alone (every job runs as long as it may); the earliest and the likely one
from how long the last jobs of the pool really ran. Jobs are played strictly in order: a policy that lets some
pass only makes it sooner.
"""

import heapq
from collections.abc import Callable, Sequence

from trackside.domain.pending import Estimate
from trackside.schedule.place import place
from trackside.schedule.pools import Held, PoolState
from trackside.schedule.queue import Entry
from trackside.schedule.room import Need, NodeRoom
from trackside.schedule.values import Request

PLAYED_MAX = 200  # jobs ahead
LEARN_FROM_MIN = 5  # ended jobs
_EARLY, _LIKELY = 0.1, 0.5  # which of the durations seen, sorted

Duration = Callable[[Request], int | None]  # ms; None: nobody knows


def estimate(pool: PoolState, ahead: Sequence[Entry], entry: Entry, now_ms: int) -> Estimate:
    """Return when a job starts if the jobs ahead of it start first."""
    if len(ahead) > PLAYED_MAX:
        return Estimate(why=f"more than {PLAYED_MAX} jobs are ahead")
    latest = _play(pool, ahead, entry, now_ms, _limit_ms)
    why = "" if latest is not None else "a job that must end first has no limit on how long it may run"
    if len(pool.ended) < LEARN_FROM_MIN:
        more = f"fewer than {LEARN_FROM_MIN} jobs have ended here to learn from"
        return Estimate(latest_ms=latest, why=f"{why}; {more}" if why else more)
    early = _play(pool, ahead, entry, now_ms, _learned(pool, _EARLY))
    likely = _play(pool, ahead, entry, now_ms, _learned(pool, _LIKELY))
    return Estimate(earliest_ms=early, likely_ms=likely, latest_ms=latest, why=why)


def _limit_ms(request: Request) -> int | None:
    return None if request.max_seconds is None else request.max_seconds * 1000


def _learned(pool: PoolState, quantile: float) -> Duration:
    took = sorted(duration for duration, _ in pool.ended)
    parts = sorted(duration / limit for duration, limit in pool.ended if limit)
    usual = took[int(quantile * (len(took) - 1))]

    def duration(request: Request) -> int:
        if request.max_seconds is None or not parts:
            return usual if request.max_seconds is None else min(usual, request.max_seconds * 1000)
        return int(min(parts[int(quantile * (len(parts) - 1))], 1.0) * request.max_seconds * 1000)

    return duration


def _play(
    pool: PoolState, ahead: Sequence[Entry], entry: Entry, now_ms: int, duration: Duration
) -> int | None:
    free = {node.id: node.scratch() for node in pool.nodes}
    nodes = list(free.values())
    ends: list[tuple[int, int, list[tuple[NodeRoom, Need]]]] = []
    for held in pool.held.values():
        end = _end_ms(held, now_ms, duration)
        if end is not None:
            places = [(free[node.id], need) for node, need, _ in held.slots.values() if node.id in free]
            heapq.heappush(ends, (end, len(ends), places))
    at_ms = now_ms
    for number, one in enumerate((*ahead, entry), len(pool.held)):
        while (found := place(nodes, one.shape.ask)) is None:
            if not ends:
                return None
            at_ms, _, places = heapq.heappop(ends)
            for node, need in places:
                node.claim(need, -1)
        takes = duration(one.request)
        if takes is not None:
            row = list(zip(found, one.shape.needs, strict=True))
            heapq.heappush(ends, (at_ms + takes, number, row))
    return at_ms


def _end_ms(held: Held, now_ms: int, duration: Duration) -> int | None:
    if held.draining:
        return now_ms
    takes = duration(held.request)
    return None if takes is None else max(held.since_ms + takes, now_ms)
