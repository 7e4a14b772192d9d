"""Knows when the head of the queue starts at the latest: what ends before that delays nothing."""

from trackside.domain.job import NodeId
from trackside.schedule.place import Ask, place
from trackside.schedule.pools import Held, PoolState
from trackside.schedule.room import NodeRoom


def latest_start_ms(pool: PoolState, ask: Ask, now_ms: int) -> int | None:
    """Return when there is room for a gang at the latest; None if that hangs on a job without a limit."""
    ends = [(end, held) for held in pool.held.values() if (end := end_ms(held, now_ms)) is not None]
    ends.sort(key=lambda row: (row[0], row[1].request.job_id))
    free = {node.id: node.scratch() for node in pool.nodes}
    roles = ask.roles
    places = [{node.id: node.count(need) for node in free.values()} for need, _ in roles]
    sums = [sum(one.values()) for one in places]
    for end, held in ends:
        for node in _give_back(held, free):
            for i, (need, _) in enumerate(roles):
                count = node.count(need)
                sums[i] += count - places[i][node.id]
                places[i][node.id] = count
        # Enough room for each role by itself is needed before it is worth trying all of them together.
        if all(has >= count for has, (_, count) in zip(sums, roles, strict=True)) and _fits(free, ask):
            return end
    return None


def end_ms(held: Held, now_ms: int) -> int | None:
    """Return when a job has given its room back at the latest; None: nobody knows."""
    if held.draining:
        return now_ms
    return None if held.until_ms is None else max(held.until_ms, now_ms)


def _give_back(held: Held, free: dict[NodeId, NodeRoom]) -> list[NodeRoom]:
    touched: dict[NodeId, NodeRoom] = {}
    for node, need, _ in held.slots.values():
        if node.id in free:
            free[node.id].claim(need, -1)
            touched[node.id] = free[node.id]
    return list(touched.values())


def _fits(free: dict[NodeId, NodeRoom], ask: Ask) -> bool:
    return place([node.scratch() for node in free.values()], ask) is not None
