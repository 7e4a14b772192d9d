"""Knows where a pool has room without looking at every machine: how many cards each has, and what changed."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import islice

from trackside.domain.job import NodeId
from trackside.schedule.room import GPU, NPU, Need, NodeLog, NodeRoom

NEEDS_MAX = 4096
_ANY = -1  # cards of any kind
_Free = tuple[int, int, int]  # GPUs, NPUs, cores
_Row = tuple[int, NodeId, NodeRoom]  # cores that are free, and where


class Places:
    """How many tasks of one need each machine takes, as of a mark in the log of changed machines."""

    __slots__ = ("counts", "mark", "total")

    def __init__(self) -> None:
        self.counts: dict[NodeRoom, int] = {}
        self.total = 0
        self.mark: int | None = None


class NodeIndex:
    """The machines of one pool. Must be told of every change of their room."""

    def __init__(self) -> None:
        self.nodes: list[NodeRoom] = []
        self.free_cards = [0, 0]  # by kind, on all machines together
        self._log = NodeLog()
        self._places: dict[Need, Places] = {}
        self._known: dict[NodeRoom, _Free] = {}
        self._rows: dict[tuple[int, int], list[_Row]] = {}  # machines with that many cards free, by cores
        self._orders: dict[int, list[tuple[int, list[_Row]]]] = {}

    def reset(self, nodes: list[NodeRoom]) -> None:
        """Take over which machines there are."""
        self.nodes = nodes
        self.free_cards = [0, 0]
        self._log = NodeLog()
        self._places, self._known, self._rows, self._orders = {}, {}, {}, {}
        for node in nodes:
            self.note(node)

    def note(self, node: NodeRoom) -> None:
        """Take note that a machine's room changed."""
        self._log.add(node)
        old, new = self._known.get(node), (node.cards[GPU], node.cards[NPU], node.cpu)
        if old == new:
            return
        self._known[node] = new
        gpus, npus, cpu = new
        if old is not None:
            row = self._rows[old[0], old[1]]
            del row[bisect_left(row, (old[2], node.id))]
            self._count(old, -1)
        rows = self._rows.get((gpus, npus))
        if rows is None:
            rows = self._rows[gpus, npus] = []
            self._orders.clear()
        insort(rows, (cpu, node.id, node))
        self._count(new, 1)

    def best(self, need: Need) -> NodeRoom | None:
        """Return the machine where one task leaves the least behind: cards first, then cores."""
        cards, cpu = need.cards, need.cpu
        found: _Row | None = None
        least = 0
        for left, rows in self._order(need.kind if cards else _ANY):
            if found is not None and left > least:
                break
            if left < cards:
                continue
            for row in islice(rows, bisect_left(rows, (cpu,)), None):
                if row[2].fits(need):
                    if found is None or row[:2] < found[:2]:
                        found, least = row, left
                    break
        return None if found is None else found[2]

    def _order(self, kind: int) -> list[tuple[int, list[_Row]]]:
        """Return the machines by how many cards of a kind, or of any, are free: fewest first."""
        order = self._orders.get(kind)
        if order is None:
            order = [(sum(key) if kind == _ANY else key[kind], rows) for key, rows in self._rows.items()]
            order.sort(key=lambda one: one[0])
            self._orders[kind] = order
        return order

    def _count(self, free: _Free, by: int) -> None:
        for kind in (GPU, NPU):
            if free[kind] > 0:
                self.free_cards[kind] += free[kind] * by

    def places(self, need: Need) -> int:
        """Return how many such tasks the machines take; only those that changed are counted again."""
        places = self._places.get(need)
        if places is None:
            if len(self._places) >= NEEDS_MAX:
                self._places.clear()
            places = self._places[need] = Places()
        if places.mark != self._log.mark:
            fresh: Iterable[NodeRoom] | None = self._log.since(places.mark)
            cpu, memory, cards, kind, _ = need
            counts, total = places.counts, places.total
            for node in self.nodes if fresh is None else fresh:
                # Most machines are full: what count() asks first is asked here, in the innermost loop.
                full = cards > node.cards[kind] or cpu > node.cpu or memory > node.memory
                count = 0 if full else node.count(need)
                total += count - counts.get(node, 0)
                counts[node] = count
            places.total = total
            places.mark = self._log.mark
        return places.total
