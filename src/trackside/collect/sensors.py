"""Knows when which task is read and shipped; one pass serves all tasks of the node.

All calls come from one thread. Passes are whole multiples of the interval on the boot clock, so all
tasks share them; only young tasks are read in between, every second, so that a job of four seconds has
true numbers. A reading in between is merged into the next sample.
"""

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from trackside.collect.cards import STALE_INTERVALS, CardSource, CardWatch
from trackside.collect.gpu import Gpus
from trackside.collect.meter import TaskMeter
from trackside.collect.network import SocketPass
from trackside.collect.probe import ExitTotals, TaskProbe
from trackside.collect.processes import ProcessScan
from trackside.domain.evidence import DeviceFault
from trackside.domain.exchange import TaskKey
from trackside.domain.metric import Sample

LAST_LOOK_SECONDS = 0.02  # at the cards of a task that failed: its end is told no later for them


class Sensors:
    """Measures all tasks of a node; cards through the sources given, or through NVML alone."""

    def __init__(
        self,
        interval_ms: int,
        *,
        clock: Callable[[], int] | None = None,
        sources: Sequence[CardSource] | None = None,
    ) -> None:
        if interval_ms <= 0:
            raise ValueError(f"the interval must be positive, not {interval_ms} ms")
        self._interval_ms = interval_ms
        self._now_ms = clock or boot_ms
        self._meters: dict[TaskKey, TaskMeter] = {}
        self._scan = ProcessScan()
        self._sockets = SocketPass()
        self._cards = CardWatch(
            [Gpus()] if sources is None else sources, stale_ms=STALE_INTERVALS * interval_ms
        )
        self._next_pass_ms = self._pass_after(self._now_ms())

    def __enter__(self) -> "Sensors":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, probe: TaskProbe) -> None:
        """Measure this task from now on; a key that is measured already stays as it is."""
        if probe.key in self._meters:
            return
        now_ms = self._now_ms()
        meter = TaskMeter(probe, now_ms)
        self._meters[probe.key] = meter
        meter.begin(now_ms, self._interval_ms)
        self._scan.expect(probe.shim_pid)
        if not meter.newborn:
            # It ran before: what it has used by now is where counting starts.
            self._sockets.forget()
            self._read([meter], now_ms)

    def next_read_ms(self) -> int:
        """Return the time on the boot clock at which `read` should be called."""
        young = [due for meter in self._meters.values() if (due := meter.young_due_ms()) is not None]
        return min([self._next_pass_ms, *young])

    def read(self, at_ms: int) -> list[Sample]:
        """Read what is due and return the samples that are complete, stamped with `at_ms`."""
        now_ms = self._now_ms()
        if now_ms < self._next_pass_ms:
            self._read(
                [m for m in self._meters.values() if (m.young_due_ms() or now_ms + 1) <= now_ms], now_ms
            )
            return []
        self._next_pass_ms = self._pass_after(now_ms)
        self._read(list(self._meters.values()), now_ms)
        return [
            sample
            for meter in self._meters.values()
            if not meter.tree.over  # what is left of it comes with its totals
            and meter.wants_to_ship(now_ms, self._interval_ms)
            for sample in meter.ship(now_ms, at_ms)
        ]

    def faults(self, key: TaskKey) -> tuple[DeviceFault, ...]:
        """Return what went wrong with the cards of a task that has just failed, after a last look at them."""
        meter = self._meters.get(key)
        if meter is None or not meter.cards:
            return ()
        now_ms = self._now_ms()
        self._cards.ask(meter.cards, now_ms)
        meter.read_cards(self._cards.collect(meter.cards, now_ms, LAST_LOOK_SECONDS))
        return meter.faults.found

    def remove(self, key: TaskKey, at_ms: int, totals: ExitTotals | None) -> list[Sample]:
        """Measure the task no longer; return the last, partial interval.

        Without totals (the shim was killed) that is what the last readings saw.
        """
        meter = self._meters.get(key)
        if meter is None:
            return []
        self._sockets.read_destroyed([other.network for other in self._meters.values()])
        del self._meters[key]
        meter.close()
        return meter.end(at_ms, totals)

    def close(self) -> None:
        """Let go of all files and libraries."""
        for meter in self._meters.values():
            meter.close()
        self._meters.clear()
        self._sockets.close()
        self._cards.close()

    def _read(self, meters: list[TaskMeter], now_ms: int) -> None:
        if not meters:
            return
        for meter in meters:
            meter.tried(now_ms)
        cards = frozenset(card for meter in meters for card in meter.cards)
        self._cards.ask(cards, now_ms)  # first: they are read while everything else is
        everybody = self._meters.values()
        self._scan.find([meter.tree for meter in everybody])
        for meter in meters:
            meter.tree.refresh()
        network = self._sockets.read([meter.network for meter in everybody])
        readings = self._cards.collect(cards, now_ms)
        for meter in meters:
            if not meter.tree.over:
                meter.read(now_ms, network=network, cards=readings)

    def _pass_after(self, now_ms: int) -> int:
        return (now_ms // self._interval_ms + 1) * self._interval_ms


def boot_ms() -> int:
    """Return the boot clock in milliseconds: it counts suspended time and never goes back."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
