"""Knows how full the disks of machines were, minute by minute, for the last day; a restart forgets it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trackside.domain.job import NodeId
from trackside.domain.metric import MINUTE_MS

MINUTES_MAX = 24 * 60  # of one machine


class Disk(NamedTuple):
    """The disk of a machine's data directory, or several together."""

    total_bytes: int
    free_bytes: int  # what its tasks may still write


class NodeDisks:
    """Keep what agents said of their disks."""

    def __init__(self) -> None:
        self._minutes: dict[NodeId, dict[int, Disk]] = {}  # by the start of the minute, oldest first

    def note(self, node_id: NodeId, disk: Disk, at_ms: int) -> None:
        """Take note of a machine's disk; of one minute the last word counts."""
        minutes = self._minutes.setdefault(node_id, {})
        minutes[at_ms // MINUTE_MS * MINUTE_MS] = disk
        if len(minutes) > MINUTES_MAX:
            del minutes[next(iter(minutes))]

    def together(self, node_ids: Sequence[NodeId], minutes: Iterable[int]) -> dict[int, Disk]:
        """Return the disks of some machines together in those minutes in which all of them spoke."""
        rows = [self._minutes.get(node_id, {}) for node_id in node_ids]
        return {
            minute: Disk(
                sum(row[minute].total_bytes for row in rows), sum(row[minute].free_bytes for row in rows)
            )
            for minute in minutes
            if rows and all(minute in row for row in rows)
        }
