"""Knows how to place a gang whose tasks must be close together: in one cabinet, or group by group."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from trackside.domain.affinity import Affinity, area_of
from trackside.schedule.fit import Roles, assign
from trackside.schedule.room import NodeRoom


def assign_together(nodes: Sequence[NodeRoom], roles: Roles, affinity: Affinity) -> list[NodeRoom] | None:
    """Claim room for every task where the affinity allows it; None, with nothing claimed, if it cannot be."""
    for area in areas(nodes, affinity.within):
        placed = _assign_groups(area, roles, affinity) if affinity.grouped else assign(area, roles)
        if placed is not None:
            return placed
    return None


def areas(nodes: Sequence[NodeRoom], level: str | None) -> list[list[NodeRoom]]:
    """Return the machines that stand together at a level, those with the least room first; None: all do."""
    if level is None:
        return [list(nodes)]
    found: dict[tuple[int, str], list[NodeRoom]] = {}
    for node in nodes:
        found.setdefault(area_of(node.id, node.labels, level), []).append(node)
    return [found[key] for key in sorted(found, key=lambda key: (_free(found[key]), key))]


def parts(roles: Roles, size: int) -> Iterator[Roles]:
    """Yield the needs of each group of tasks, by rank; the last one may be smaller."""
    ends = list(accumulate(count for _, count in roles))
    for first in range(0, ends[-1], size):
        last = min(first + size, ends[-1])
        yield tuple(
            (need, min(end, last) - max(end - count, first))
            for (need, count), end in zip(roles, ends, strict=True)
            if end > first and end - count < last
        )


def _assign_groups(nodes: Sequence[NodeRoom], roles: Roles, affinity: Affinity) -> list[NodeRoom] | None:
    placed: list[NodeRoom] = []
    near = areas(nodes, affinity.group_level)
    for part in parts(roles, affinity.group_size):
        found = next((found for area in near if (found := assign(area, part)) is not None), None)
        if found is None:
            _take_back(placed, roles)
            return None
        placed += found
    return placed


def _take_back(placed: Sequence[NodeRoom], roles: Roles) -> None:
    needs = (need for need, count in roles for _ in range(count))
    for node, need in zip(placed, needs, strict=False):
        node.claim(need, -1)


def _free(nodes: Sequence[NodeRoom]) -> tuple[int, int]:
    return sum(max(sum(node.cards), 0) for node in nodes), sum(max(node.cpu, 0) for node in nodes)
