"""Knows where a job may go at all, and places its gang there: all of its tasks, or none."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trackside.domain.affinity import Affinity
from trackside.domain.job import NodeId
from trackside.schedule.fit import Roles, assign
from trackside.schedule.room import NodeRoom, need_of
from trackside.schedule.together import assign_together
from trackside.schedule.values import Request


class Where(NamedTuple):
    """Which machines a job may use."""

    avoid: frozenset[NodeId] = frozenset()  # closed for this job alone
    affinity: Affinity | None = None

    def allows(self, node: NodeRoom) -> bool:
        """Say whether the job may use a machine."""
        if node.id in self.avoid:
            return False
        return self.affinity is None or self.affinity.allows(node.labels)


class Ask(NamedTuple):
    """What a gang needs, and where it may go. Jobs that ask alike are of one shape."""

    roles: Roles
    where: Where | None = None  # None: anywhere

    @property
    def close(self) -> Affinity | None:
        """Return how close together the tasks must be; None: that does not matter."""
        affinity = self.where.affinity if self.where else None
        return affinity if affinity and (affinity.within or affinity.grouped) else None

    def allowed(self, nodes: Iterable[NodeRoom]) -> list[NodeRoom]:
        """Return the machines it may use."""
        where = self.where
        return list(nodes) if where is None else [node for node in nodes if where.allows(node)]


def ask_of(request: Request) -> Ask:
    """Return what a job asks for."""
    roles = tuple((need_of(resources), count) for resources, count in request.roles)
    return Ask(roles, Where(request.avoid, request.affinity) if request.avoid or request.affinity else None)


def place(nodes: Sequence[NodeRoom], ask: Ask) -> list[NodeRoom] | None:
    """Claim room for every task; return the machines by rank, or None, with nothing claimed."""
    if ask.where is None:
        return assign(nodes, ask.roles)
    allowed, close = ask.allowed(nodes), ask.close
    return assign(allowed, ask.roles) if close is None else assign_together(allowed, ask.roles, close)


def fits_empty(nodes: Iterable[NodeRoom], ask: Ask) -> bool:
    """Say whether the gang would fit if nobody held anything."""
    if len(ask.roles) == 1 and ask.roles[0][1] == 1:
        return any(node.could_hold(ask.roles[0][0]) for node in ask.allowed(nodes))
    return place([node.scratch(empty=True) for node in nodes if node.open], ask) is not None


def fits_now(nodes: Iterable[NodeRoom], ask: Ask) -> bool:
    """Say whether the gang fits, and leave everything as it is."""
    return place([node.scratch() for node in nodes if node.open], ask) is not None


def most_tasks(nodes: Sequence[NodeRoom], ask: Ask) -> int:
    """Return how many tasks of a gang of like ones fit, at most as many as it asks for; nodes are copies."""
    (need, count), *_ = ask.roles
    if ask.close is None:
        return min(sum(node.count(need) for node in ask.allowed(nodes)), count)
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        placed = place(nodes, Ask(((need, middle),), ask.where))
        for node in placed or ():
            node.claim(need, -1)
        low, high = (middle, high) if placed is not None else (low, middle - 1)
    return low
