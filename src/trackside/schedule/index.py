"""Knows where a pool has room without looking at every machine: how many cards each has, and what changed."""

from collections.abc import Iterable

from trackside.schedule.fit import best
from trackside.schedule.room import GPU, NPU, Need, NodeLog, NodeRoom

NEEDS_MAX = 4096


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
        self._log = NodeLog()
        self._places: dict[Need, Places] = {}
        self._counts: dict[NodeRoom, tuple[int, int]] = {}
        self._with_cards: tuple[dict[int, dict[NodeRoom, None]], ...] = ({}, {})  # by kind, then by number

    def reset(self, nodes: list[NodeRoom]) -> None:
        """Take over which machines there are."""
        self.nodes = nodes
        self._log = NodeLog()
        self._places, self._counts, self._with_cards = {}, {}, ({}, {})
        for node in nodes:
            self.note(node)

    def note(self, node: NodeRoom) -> None:
        """Take note that a machine's room changed."""
        self._log.add(node)
        old, new = self._counts.get(node), (node.cards[GPU], node.cards[NPU])
        if old == new:
            return
        self._counts[node] = new
        for kind in (GPU, NPU):
            if old is not None:
                self._with_cards[kind][old[kind]].pop(node)
            self._with_cards[kind].setdefault(new[kind], {})[node] = None

    def best(self, need: Need) -> NodeRoom | None:
        """Return the machine where one task leaves the least behind."""
        if need.cards == 0:
            return best(self.nodes, need)
        with_cards = self._with_cards[need.kind]
        for count in sorted(with_cards):
            found = best(with_cards[count], need) if count >= need.cards else None
            if found is not None:
                return found
        return None

    def places(self, need: Need) -> int:
        """Return how many such tasks the machines take; only those that changed are counted again."""
        places = self._places.get(need)
        if places is None:
            if len(self._places) >= NEEDS_MAX:
                self._places.clear()
            places = self._places[need] = Places()
        if places.mark != self._log.mark:
            fresh: Iterable[NodeRoom] | None = self._log.since(places.mark)
            for node in self.nodes if fresh is None else fresh:
                count = node.count(need)
                places.total += count - places.counts.get(node, 0)
                places.counts[node] = count
            places.mark = self._log.mark
        return places.total
