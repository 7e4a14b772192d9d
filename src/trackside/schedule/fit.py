"""Knows whether a gang fits on some machines, and where its tasks go: all of them, or none.

Tasks are packed: a task goes where it leaves the least behind, a gang to as few machines as it can.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from trackside.schedule.room import Need, NodeRoom

Roles = tuple[tuple[Need, int], ...]


def assign(nodes: Sequence[NodeRoom], roles: Roles) -> list[NodeRoom] | None:
    """Claim room for every task; return the machines by rank, or None, with nothing claimed."""
    orders = [tuple(range(len(roles)))]
    if len(roles) > 1:  # large tasks first packs better; what fits as it was asked for fits too
        orders.insert(0, tuple(sorted(orders[0], key=lambda i: (_size(roles[i][0]), -i), reverse=True)))
    for order in orders:
        placed = _assign_in(order, nodes, roles)
        if placed is not None:
            return placed
    return None


def best(nodes: Iterable[NodeRoom], need: Need) -> NodeRoom | None:
    """Return the machine where one task leaves the least behind."""
    cpu, memory, cards, kind, _ = need
    found: NodeRoom | None = None
    least = 0
    for node in nodes:
        # The cheap half of fits() comes first: this is the innermost loop of the core.
        if cards > node.cards[kind] or cpu > node.cpu or memory > node.memory or not node.fits(need):
            continue
        left = node.cards[kind] if cards else node.cards[0] + node.cards[1]
        if found is None or left < least or (left == least and (node.cpu, node.id) < (found.cpu, found.id)):
            found, least = node, left
    return found


def _assign_in(order: Iterable[int], nodes: Sequence[NodeRoom], roles: Roles) -> list[NodeRoom] | None:
    placed: list[list[NodeRoom]] = [[] for _ in roles]
    for i in order:
        need, count = roles[i]
        found = _spread(nodes, need, count)
        if found is None:
            _take_back(placed, roles)
            return None
        for node in found:
            node.claim(need)
        placed[i] = found
    return [node for role in placed for node in role]


def _take_back(placed: Sequence[Sequence[NodeRoom]], roles: Roles) -> None:
    for (need, _), role in zip(roles, placed, strict=True):
        for node in role:
            node.claim(need, -1)


def _spread(nodes: Iterable[NodeRoom], need: Need, count: int) -> list[NodeRoom] | None:
    if count == 1:
        one = best(nodes, need)
        return None if one is None else [one]
    rows = sorted(
        (-room, node.cards[need.kind] if need.cards else sum(node.cards), node.cpu, node.id, node)
        for node in nodes
        if (room := node.count(need))
    )  # the most room first; of equals the one that has the least left, and cards only if they are wanted
    if -sum(row[0] for row in rows) < count:
        return None
    found: list[NodeRoom] = []
    for begin in range(len(rows)):
        left = count - len(found)
        # The fullest machine that takes all that is left; or else the emptiest, whole.
        end = bisect_left(rows, (1 - left,), begin)
        if end > begin:
            last = bisect_left(rows, (rows[end - 1][0],), begin)
            return found + [rows[last][4]] * left
        found += [rows[begin][4]] * -rows[begin][0]
    return None


def _size(need: Need) -> tuple[int, int, int]:
    return need.cards, need.memory, need.cpu
