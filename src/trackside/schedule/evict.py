"""Knows which running jobs give way: those that lose least work, no more than needed, never an equal.

Room that is draining already counts as free, so that nobody is ended for what comes free anyway.
"""

from collections.abc import Sequence

from trackside.domain.job import JobId
from trackside.schedule.place import place
from trackside.schedule.pools import LOOK_AGAIN_MS, Held, PoolState, without
from trackside.schedule.queue import Entry, total_of
from trackside.schedule.room import Need, NodeRoom
from trackside.schedule.together import areas

Plan = tuple[tuple[Held, ...], list[NodeRoom]]  # who gives way, and the machines by rank


def plan_eviction(pool: PoolState, entry: Entry, now_ms: int) -> Plan | None:
    """Say who must end so that the job fits, and where it goes then; None: nobody can make that room."""
    if not any(pool.evictable[: entry.priority]):
        return None
    if entry.shape.single is not None and not pool.capped:  # under a cap, room anywhere counts
        fresh = pool.freed.since(entry.evict_seen)
        nodes = pool.nodes if fresh is None else fresh
        plans = [plan for node in nodes if (plan := _on_one(pool, entry, node, now_ms)) is not None]
        return min(plans, key=lambda plan: _cost(plan, now_ms), default=None)
    if entry.evict_seen is not None and now_ms < entry.evict_tried_ms + LOOK_AGAIN_MS:
        return None
    return _anywhere(pool, entry, now_ms)


def wasted(held: Held, now_ms: int) -> int:
    """Return the work that is lost when a job gives way: how long it ran, times its share of the pool."""
    total = held.shape.total
    weight = total.cards * 1_000 + total.cpu // 1_000 + total.memory // 2**30
    return max(now_ms - held.since_ms, 0) * max(weight, 1)


def _on_one(pool: PoolState, entry: Entry, node: NodeRoom, now_ms: int) -> Plan | None:
    """Choose among the jobs on one machine."""
    holders = _holders(pool, node)
    lower = [held for held in holders if _may_evict(held, entry)]
    if not node.open or not (lower or any(held.draining for held in holders)):
        return None
    lower.sort(key=lambda held: _dearest_last(held, now_ms))
    chosen = _fewest(lower, [node], entry, pool)
    return None if chosen is None else (chosen, [node])


def _anywhere(pool: PoolState, entry: Entry, now_ms: int) -> Plan | None:
    lower = [held for held in pool.held.values() if _may_evict(held, entry)]
    lower.sort(key=lambda held: _dearest_last(held, now_ms))
    close = entry.shape.ask.close
    plans = [
        _in_area(pool, entry, area, lower) for area in areas(pool.nodes, close.within if close else None)
    ]
    return min(
        (plan for plan in plans if plan is not None), key=lambda plan: _cost(plan, now_ms), default=None
    )


def _in_area(pool: PoolState, entry: Entry, nodes: Sequence[NodeRoom], lower: Sequence[Held]) -> Plan | None:
    there = set(nodes)
    # Under a cap, room anywhere counts.
    near = [held for held in lower if pool.capped or any(node in there for node, _, _ in held.slots.values())]
    chosen = _fewest(near, nodes, entry, pool)
    if chosen is None:
        return None
    by_id = {node.id: node for node in nodes}
    found = _try(pool, nodes, entry, chosen)
    assert found is not None
    return chosen, [by_id[node.id] for node in found]


def _fewest(
    lower: Sequence[Held], nodes: Sequence[NodeRoom], entry: Entry, pool: PoolState
) -> tuple[Held, ...] | None:
    """Take the cheapest jobs until it fits, then let go, dearest first, of those it fits without."""
    if _try(pool, nodes, entry, lower) is None:
        return None
    low, high = 0, len(lower)
    while low < high:  # the shortest row of the cheapest that is enough
        middle = (low + high) // 2
        if _try(pool, nodes, entry, lower[:middle]) is not None:
            high = middle
        else:
            low = middle + 1
    chosen = list(lower[:low])
    for held in reversed(lower[:low]):
        without = [one for one in chosen if one is not held]
        if _try(pool, nodes, entry, without) is not None:
            chosen = without
    return tuple(chosen)


def _try(
    pool: PoolState, nodes: Sequence[NodeRoom], entry: Entry, gone: Sequence[Held]
) -> list[NodeRoom] | None:
    going: dict[JobId, Held] = {held.request.job_id: held for held in gone}
    for node in nodes:
        for held in _holders(pool, node):
            if held.draining:
                going[held.request.job_id] = held
    if pool.capped and not pool.within_cap(entry.shape.total, _held_by(pool, going)):
        return None
    return place(without(nodes, going.values()), entry.shape.ask)


def _held_by(pool: PoolState, going: dict[JobId, Held]) -> Need:
    """Return what some jobs give back to the pool, with those that drain on other machines."""
    gone = going | {job_id: held for job_id, held in pool.held.items() if held.draining}
    return total_of(tuple((need, 1) for held in gone.values() for _, need, _ in held.slots.values()))


def _holders(pool: PoolState, node: NodeRoom) -> list[Held]:
    return [pool.held[job_id] for job_id in node.holders if job_id in pool.held]


def _may_evict(held: Held, entry: Entry) -> bool:
    return held.evictable and held.priority < entry.priority


def _dearest_last(held: Held, now_ms: int) -> tuple[int, int, str]:
    return wasted(held, now_ms), -held.since_ms, held.request.job_id


def _cost(plan: Plan, now_ms: int) -> tuple[int, int, tuple[str, ...], str]:
    victims, nodes = plan
    ids = tuple(sorted(held.request.job_id for held in victims))
    return sum(wasted(held, now_ms) for held in victims), len(victims), ids, nodes[0].id
