"""Knows how to say what exactly is missing for a job, and what would fit instead."""

from collections.abc import Callable
from dataclasses import dataclass

from trackside.domain.reason import ReasonCode
from trackside.domain.wording import counted, size_text
from trackside.schedule.place import most_tasks
from trackside.schedule.pools import PoolState
from trackside.schedule.queue import Shape
from trackside.schedule.room import GPU, MICRO, Need, NodeRoom
from trackside.schedule.together import areas


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is missing now."""

    code: ReasonCode
    text: str


def need_text(shape: Shape) -> str:
    """Return what a job needs: 4 GPUs on one machine, or 4 tasks of 8 GPUs."""
    if len(shape.roles) > 1:
        return f"{len(shape.needs)} tasks with {_amounts(shape.total)} together{near_text(shape)}"
    need, count = shape.roles[0]
    if count == 1:
        return f"{_main(need)} on one machine"
    return f"{count} tasks of {_main(need)} each{near_text(shape)}"


def shortage(pool: PoolState, shape: Shape) -> Shortage:
    """Say what is missing for a job that does not fit now."""
    nodes = shape.ask.allowed(node for node in pool.nodes if node.open)
    need = max((need for need, _ in shape.roles), key=lambda one: (one.cards, one.memory, one.cpu))
    over = pool.over_cap(shape.total)
    if over is not None:
        limit, used, wanted = over
        return Shortage(
            ReasonCode.WAITING_FOR_ROOM, f"the pool's share is {limit}, {used} are in use; it needs {wanted}"
        )
    for total, what, free in _dimensions(shape, need):
        there = sum(max(free(node), 0) for node in nodes)
        if there < total:
            return Shortage(
                ReasonCode.WAITING_FOR_ROOM, f"needs {need_text(shape)}; {what(there)} free in all"
            )
    if shape.ask.close is not None and len(shape.needs) > 1:
        return Shortage(ReasonCode.WAITING_SCATTERED, _apart(shape, nodes))
    if len(shape.needs) > 1:
        room = sum(node.count(shape.roles[0][0]) for node in nodes)
        return Shortage(
            ReasonCode.WAITING_SCATTERED,
            f"needs {need_text(shape)}, all at once; there is room for {room} of them now",
        )
    return Shortage(ReasonCode.WAITING_SCATTERED, _scattered(shape, nodes, need))


def hints_for(pool: PoolState, shape: Shape, code: ReasonCode, lacking: Shortage | None) -> list[str]:
    """Return what would fit: now if it is room that is missing, at all if the job is too large."""
    nodes = shape.ask.allowed(node for node in pool.nodes if node.open)
    need, count = shape.roles[0]
    if len(shape.roles) > 1 or not nodes:
        return []
    if code is ReasonCode.TOO_LARGE:
        closed = sum(not node.open and node.known for node in pool.nodes)
        drained = f"; {counted(closed, 'machine')} of the pool take nothing now" if closed else ""
        if count > 1 and (room := most_tasks([node.scratch(empty=True) for node in nodes], shape.ask)):
            return [f"on empty machines there is room for {counted(room, 'task')} of this size{drained}"]
        return [f"the largest machine has {_amounts_of(nodes)}{drained}"]
    if lacking is None or code not in (ReasonCode.WAITING_FOR_ROOM, ReasonCode.WAITING_SCATTERED):
        return []
    if count > 1:
        room = most_tasks([node.scratch() for node in nodes], shape.ask)
        return [f"with {counted(room, 'task')} it would start now"] if room else []
    most = max(_less(node, need) for node in nodes) if need.cards else 0
    return [f"with {_cards_text(most, need.kind)} it would fit now"] if most else []


def _dimensions(
    shape: Shape, need: Need
) -> list[tuple[int, Callable[[int], str], Callable[[NodeRoom], int]]]:
    """Return what must be there in all: how much, how it is said, and how much of it a machine has free."""
    total, kind = shape.total, need.kind
    rows: list[tuple[int, Callable[[int], str], Callable[[NodeRoom], int]]] = []
    if total.cards:
        rows.append((total.cards, lambda amount: _cards_text(amount, kind), lambda node: node.cards[kind]))
    rows.append((total.cpu, _cores_text, lambda node: node.cpu))
    rows.append((total.memory, size_text, lambda node: node.memory))
    return rows


def _apart(shape: Shape, nodes: list[NodeRoom]) -> str:
    """Say which piece is too small: ten are free, but at most six in one cabinet."""
    close = shape.ask.close
    assert close is not None
    need = max((need for need, _ in shape.roles), key=lambda one: (one.cards, one.memory, one.cpu))
    together = areas(nodes, close.within) if close.within else []
    for total, what, free in _dimensions(shape, need) if together else ():
        pieces = [sum(max(free(node), 0) for node in area) for area in together]
        if max(pieces) < total:
            largest = together[pieces.index(max(pieces))][0]
            return (
                f"needs {what(total)} in one {close.within}; {what(sum(pieces))} free, "
                f"but at most {what(max(pieces))} together ({_area_text(largest, str(close.within))})"
            )
    room = most_tasks([node.scratch() for node in nodes], shape.ask)
    return f"needs {need_text(shape)}, all at once; there is room for {room} of them now"


def near_text(shape: Shape) -> str:
    """Return how close together a job's tasks must be."""
    close = shape.ask.close
    if close is None:
        return ""
    groups = f" in groups of {close.group_size}, each in one {close.group_level}" if close.grouped else ""
    return (
        f"{groups}{',' if groups and close.within else ''}{f' in one {close.within}' if close.within else ''}"
    )


def _area_text(node: NodeRoom, level: str) -> str:
    return f"{level} {node.labels[level]}" if level in node.labels else node.id


def _scattered(shape: Shape, nodes: list[NodeRoom], need: Need) -> str:
    """Say which piece is too small: six are free, but at most three together."""
    for total, what, free in _dimensions(shape, need):
        pieces = [max(free(node), 0) for node in nodes]
        if max(pieces) < total:
            largest = max(nodes, key=lambda node: (free(node), node.id))
            return (
                f"needs {need_text(shape)}; {what(sum(pieces))} free, "
                f"but at most {what(max(pieces))} together ({largest.id})"
            )
    return f"needs {_amounts(need)} on one machine; no machine has all of that free at once"


def _less(node: NodeRoom, need: Need) -> int:
    """Return how many cards a task could have on a machine now."""
    one = need._replace(cards=0)
    return min(max(node.cards[need.kind], 0), need.cards) if node.fits(one) else 0


def _main(need: Need) -> str:
    return (
        _cards_text(need.cards, need.kind)
        if need.cards
        else f"{_cores_text(need.cpu)} and {size_text(need.memory)}"
    )


def _amounts(need: Need) -> str:
    cards = f"{_cards_text(need.cards, need.kind)}, " if need.cards else ""
    return f"{cards}{_cores_text(need.cpu)} and {size_text(need.memory)}"


def _amounts_of(nodes: list[NodeRoom]) -> str:
    largest = max(nodes, key=lambda node: (node.size.cards, node.size.cpu, node.id))
    kind = GPU if largest.full_masks[GPU] else 1 - GPU
    return _amounts(largest.size._replace(kind=kind))


def _cards_text(count: int, kind: int) -> str:
    return counted(count, "GPU" if kind == GPU else "NPU")


def _cores_text(micro: int) -> str:
    return f"{micro / MICRO:g} {'core' if micro == MICRO else 'cores'}"
