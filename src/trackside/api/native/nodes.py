"""Knows the row of Trackside's own API that tells of machines."""

from collections.abc import Callable, Sequence

import msgspec

from trackside.api.native import PREFIX
from trackside.api.operation import Call, Operation
from trackside.ports import Node


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with an agent."""

    id: str
    ip: str
    cpu_cores: float
    memory_bytes: int
    gpus: int
    npus: int
    last_seen_ms: int


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """All machines."""

    nodes: list[NodeView]


def operation(nodes: Callable[[], Sequence[Node]]) -> Operation:
    """Return the row; `nodes` tells which machines there are."""

    async def list_nodes(call: Call) -> NodeList:
        del call
        return NodeList(nodes=[_node(node) for node in nodes()])

    return Operation(
        name="ListNodes",
        method="GET",
        path=f"{PREFIX}/nodes",
        action="trackside:node:list",
        handler=list_nodes,
        summary="List the machines",
        response=NodeList,
    )


def _node(node: Node) -> NodeView:
    return NodeView(
        id=node.id,
        ip=node.ip,
        cpu_cores=node.capacity.cpu_cores,
        memory_bytes=node.capacity.memory_bytes,
        gpus=node.capacity.gpus,
        npus=node.capacity.npus,
        last_seen_ms=node.last_seen_ms,
    )
