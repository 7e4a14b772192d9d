"""Knows how the boot clocks of nodes relate to the server's, so that exits on different nodes have an order.

What a node sends is under way for a while, so its clock seems to lag by that; the smallest lag seen lately
is the nearest to the truth. Old ones are dropped: two clocks drift apart.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass, replace

from trackside.domain.exchange import Report
from trackside.domain.job import JobId, NodeId

WINDOW_MS = 300_000  # two clocks that differ by 50 parts in a million part by 15 ms in this time
JUMP_MS = 120_000  # nothing is under way for so long: the node was started anew
HELD_MS = 60_000
HELD_MAX = 4_096


@dataclass(slots=True)
class _Lag:
    """The smallest lag in the present window of time and in the one before."""

    window: int
    now_ms: int
    before_ms: int

    @property
    def smallest_ms(self) -> int:
        return min(self.now_ms, self.before_ms)


class NodeClocks:
    """Relates the clocks of all nodes to one."""

    def __init__(self) -> None:
        self._lags: dict[NodeId, _Lag] = {}
        # The exits of one job on one node are told by the same relation, or their order could change.
        self._held: OrderedDict[tuple[NodeId, JobId], tuple[int, int]] = OrderedDict()

    def see(self, node_id: NodeId, sent_ms: int, now_ms: int) -> None:
        """Take note of what a node's clock said when it sent what came now."""
        lag_ms, window = now_ms - sent_ms, now_ms // WINDOW_MS
        known = self._lags.get(node_id)
        if known is None or abs(lag_ms - known.smallest_ms) > JUMP_MS:
            self._lags[node_id] = _Lag(window, lag_ms, lag_ms)
        elif known.window == window:
            known.now_ms = min(known.now_ms, lag_ms)
        else:
            before_ms = known.now_ms if known.window == window - 1 else lag_ms
            self._lags[node_id] = _Lag(window, lag_ms, before_ms)

    def related(self, node_id: NodeId, report: Report, now_ms: int) -> Report:
        """Return a report with the moment of an exit told by the server's clock."""
        ended, known = report.ended, self._lags.get(node_id)
        if ended is None or ended.ended_boot_ms is None or known is None:
            return report
        lag_ms = self._lag_of(node_id, ended.key.job_id, known, now_ms)
        return replace(report, ended=replace(ended, ended_boot_ms=ended.ended_boot_ms + lag_ms))

    def _lag_of(self, node_id: NodeId, job_id: JobId, known: _Lag, now_ms: int) -> int:
        key = (node_id, job_id)
        lag_ms, held_ms = self._held.pop(key, (known.smallest_ms, now_ms))
        if now_ms - held_ms > HELD_MS or abs(lag_ms - known.smallest_ms) > JUMP_MS:
            lag_ms = known.smallest_ms
        self._held[key] = (lag_ms, now_ms)
        while len(self._held) > HELD_MAX:
            self._held.popitem(last=False)
        return lag_ms


def boot_ms() -> int:
    """Return the server's own boot clock."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
