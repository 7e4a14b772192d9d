"""Knows the rows of Trackside's own API that every installation has."""

from collections.abc import Callable, Sequence

from trackside.api.native import attempts, jobs, metrics, objects, users
from trackside.api.native import nodes as machines
from trackside.api.operation import Operation
from trackside.ports import Node


def operations(nodes: Callable[[], Sequence[Node]]) -> tuple[Operation, ...]:
    """Return the rows; `nodes` tells which machines there are."""
    return (
        *attempts.OPERATIONS,
        *jobs.OPERATIONS,
        *metrics.OPERATIONS,
        machines.operation(nodes),
        *objects.OPERATIONS,
        *users.OPERATIONS,
    )
