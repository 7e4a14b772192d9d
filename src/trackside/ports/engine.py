"""Where tasks can run, and how nodes hear what to do."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trackside.domain.exchange import Orders
from trackside.domain.job import NodeId
from trackside.domain.resources import Capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with an agent."""

    id: NodeId
    ip: str
    capacity: Capacity
    last_seen_ms: int  # by the wall clock, to be shown
    seen_monotonic_ms: int  # the same moment by the clock that does not jump, to be reckoned with
    labels: dict[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """Places tasks on nodes: knows nothing of metrics or dialects."""

    def nodes(self) -> Sequence[Node]:
        """Return the nodes that can take tasks."""
        ...

    def free_ports(self, node_id: NodeId, count: int, taken: frozenset[int]) -> int:
        """Return the first of `count` ports in a row that nothing on the node listens on."""
        ...

    def changed(self) -> None:
        """Tell the agents that their orders may have changed."""
        ...

    async def orders(self, node_id: NodeId, version: int, *, wait_seconds: float) -> Orders:
        """Return the node's orders as soon as they are newer than `version`, or after the wait."""
        ...
