"""Knows how one task is measured: its devices, what was shipped of it, and when it is due.

Every sample covers the time since the one before it. A task that is watched from its birth is counted
from zero at its shim's start; one that is found running is counted from what it had used by then.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping

from trackside.collect.cards import TOLD_ONCE, Card, CardReading
from trackside.collect.cpu import CpuMeter
from trackside.collect.disk import disk_at_birth, read_disk
from trackside.collect.faults import CardFaults
from trackside.collect.interval import Counter, Gauge
from trackside.collect.memory import MemoryMeter
from trackside.collect.network import NetworkMeter
from trackside.collect.probe import ExitTotals, TaskProbe
from trackside.collect.processes import TICKS_PER_SECOND, ProcessTree
from trackside.domain.metric import WITHOUT_MEAN, Metric, Sample

YOUNG_MS = 5_000  # how long a task is read every second
YOUNG_READ_MS = 1_000
SHIPPED_PART = 2  # a sample covers at least half an interval, but for the last one
TAIL_MS_MIN = 100  # a shorter rest says more about clock ticks than about the task

_DISK = (Metric.DISK_READ_BYTES_PER_SECOND, Metric.DISK_WRITE_BYTES_PER_SECOND)
_NETWORK = (Metric.NETWORK_RECEIVE_BYTES_PER_SECOND, Metric.NETWORK_SEND_BYTES_PER_SECOND)
_COUNTERS = (Metric.CPU_PERCENT, *_DISK, *_NETWORK)
_MACHINE_CORES = os.cpu_count() or 1


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)


# How the numbers of a task's cards make one of the task; the others are of single cards only.
_OF_ALL_CARDS: dict[Metric, Callable[[Iterable[float]], float]] = {
    Metric.GPU_PERCENT: _mean,
    Metric.GPU_MEMORY_PERCENT: _mean,
    Metric.GPU_MEMORY_USED_BYTES: sum,
    Metric.GPU_POWER_WATTS: sum,
    Metric.GPU_TEMPERATURE_CELSIUS: max,
    Metric.NPU_PERCENT: _mean,
    Metric.NPU_MEMORY_PERCENT: _mean,
    Metric.NPU_MEMORY_USED_BYTES: sum,
    Metric.NPU_POWER_WATTS: sum,
    Metric.NPU_TEMPERATURE_CELSIUS: max,
}

GaugeKey = tuple[Metric, int | None]  # with the card


class TaskMeter:
    """Measures one task."""

    def __init__(self, probe: TaskProbe, now_ms: int) -> None:
        self.probe = probe
        self.tree = ProcessTree(probe.shim_pid, probe.cgroup)
        self.network = NetworkMeter(self.tree, probe.cgroup)
        self.cards: frozenset[Card] = frozenset((probe.resources.accelerator, card) for card in probe.cards)
        self._cpu = CpuMeter(probe.cgroup)
        self._memory = MemoryMeter(probe.cgroup)
        self._counters = {metric: Counter() for metric in _COUNTERS}
        self._gauges: dict[GaugeKey, Gauge] = {}
        self._added_ms = now_ms
        self._read_ms = now_ms
        self._shipped_ms = now_ms
        self._shipped_any = False
        self._network_read = False
        self.newborn = False
        self.faults = CardFaults()

    def begin(self, now_ms: int, interval_ms: int) -> None:
        """Set what the task is counted from."""
        self.tree.refresh()
        start_ticks = self.tree.shim.start_ticks
        birth_ms = start_ticks * 1000 // TICKS_PER_SECOND if start_ticks is not None else 0
        # So young that nobody, not even an agent before this one, can have shipped anything of it.
        self.newborn = 0 <= now_ms - birth_ms < interval_ms // SHIPPED_PART
        if self.newborn:
            self._shipped_ms = birth_ms
            for counter in self._counters.values():
                counter.start(0.0, birth_ms)
            for metric, value in zip(_DISK, disk_at_birth(self.tree), strict=True):
                self._counters[metric].start(value, birth_ms)

    def young_due_ms(self) -> int | None:
        """Return when a young task wants its next reading; None for an older one."""
        due_ms = self._read_ms + YOUNG_READ_MS
        return due_ms if due_ms <= self._added_ms + YOUNG_MS and not self.tree.over else None

    def tried(self, now_ms: int) -> None:
        """Note that a reading begins: if it fails, the next one is not due at once."""
        self._read_ms = now_ms

    def read(self, now_ms: int, *, network: bool, cards: Mapping[Card, CardReading]) -> None:
        """Read all devices. The tree knows its new processes, the network meter its sockets."""
        self._counters[Metric.CPU_PERCENT].see(self._cpu.read(self.tree), now_ms)
        disk = read_disk(self.tree)
        if disk is not None:
            self._see(_DISK, disk, now_ms)
        if network:
            self._network_read = True
            self._see(_NETWORK, self.network.read(), now_ms)
        self._see_totals()
        self._see_memory()
        self.read_cards(cards)

    def read_cards(self, cards: Mapping[Card, CardReading]) -> None:
        """Read the task's cards alone: they can be asked when it is over."""
        self._see_cards({card: cards[family, card] for family, card in self.cards & cards.keys()})

    def wants_to_ship(self, now_ms: int, interval_ms: int) -> bool:
        """Say whether enough time is covered: a sliver would weigh as much as a whole interval."""
        return now_ms - self._shipped_ms >= interval_ms // SHIPPED_PART

    def ship(self, now_ms: int, at_ms: int) -> list[Sample]:
        """Return the samples of the interval that ends now."""
        self._shipped_ms = now_ms
        return self._samples(at_ms, self._levels())

    def end(self, at_ms: int, totals: ExitTotals | None) -> list[Sample]:
        """Return the samples of the last, partial interval, from what the shim counted."""
        if totals is None:
            return self._samples(at_ms, self._levels())
        if self._shipped_any and totals.ended_boot_ms - self._shipped_ms < TAIL_MS_MIN:
            return []
        ended_ms = totals.ended_boot_ms
        self._counters[Metric.CPU_PERCENT].see(totals.cpu_seconds, ended_ms)
        for metric, value in zip(_DISK, (totals.read_bytes, totals.write_bytes), strict=True):
            if value is not None:
                self._counters[metric].see(value, ended_ms)
        if self._network_read:  # else nothing is known of its sockets, which is not the same as no bytes
            self._see(_NETWORK, self.network.read(), ended_ms)
        if (Metric.MEMORY_PERCENT, None) not in self._gauges and totals.max_rss_bytes > 0:
            # Over before its first reading: the peak of its largest process is what is known.
            self._gauge(Metric.MEMORY_PERCENT, None).see(self._memory_percent(totals.max_rss_bytes))
            self._gauge(Metric.MEMORY_PEAK_BYTES, None).see(totals.max_rss_bytes)
        shipped = self._levels()
        # For want of a reading the level at which the interval began is the best there is.
        last = {
            key: self._gauges[key].last
            for key, value in shipped.items()
            if value is None and key[0] not in TOLD_ONCE
        }
        return self._samples(at_ms, shipped | last)

    def close(self) -> None:
        """Close all files."""
        self.tree.close()
        self._cpu.close()
        self._memory.close()

    def _see(self, metrics: tuple[Metric, Metric], values: tuple[int, int], now_ms: int) -> None:
        for metric, value in zip(metrics, values, strict=True):
            self._counters[metric].see(value, now_ms)

    def _see_totals(self) -> None:
        """Take what tells whether the task does anything: counted up, so that no gap hides a change."""
        moved = self.tree.call_bytes
        if moved is not None:
            self._gauge(Metric.IO_BYTES, None).see(moved)
        if self.probe.log_file is not None:
            with contextlib.suppress(FileNotFoundError):
                self._gauge(Metric.LOG_BYTES, None).see(os.stat(self.probe.log_file).st_size)

    def _see_memory(self) -> None:
        memory = self._memory.read(self.tree)
        if memory is None:
            return
        self._gauge(Metric.MEMORY_PERCENT, None).see(self._memory_percent(memory.used_bytes))
        for metric, value in (
            (Metric.MEMORY_PEAK_BYTES, memory.peak_bytes),
            (Metric.SHM_USED_BYTES, memory.shared_bytes),
        ):
            if value is not None:
                self._gauge(metric, None).see(value)

    def _see_cards(self, readings: Mapping[int, CardReading]) -> None:
        of_metric: dict[Metric, list[float]] = {}
        for card, reading in readings.items():
            self.faults.see(card, reading.values)
            for metric, value in (*reading.values.items(), *self._holders(reading)):
                self._gauge(metric, card).see(value)
                of_metric.setdefault(metric, []).append(value)
        for metric, join in _OF_ALL_CARDS.items():
            if metric in of_metric:
                self._gauge(metric, None).see(join(of_metric[metric]))

    def _holders(self, reading: CardReading) -> tuple[tuple[Metric, float], ...]:
        """Return how many processes of the task, and of others, hold memory of a card."""
        if reading.holders is None:
            return ()
        own = len(reading.holders & self.tree.processes.keys())
        foreign = len(reading.holders) - own
        return ((Metric.GPU_PROCESSES, own), (Metric.GPU_FOREIGN_PROCESSES, foreign))

    def _levels(self) -> dict[GaugeKey, float | None]:
        return {
            key: gauge.ship_newest() if key[0] in WITHOUT_MEAN else gauge.ship()
            for key, gauge in self._gauges.items()
        }

    def _gauge(self, metric: Metric, card: int | None) -> Gauge:
        return self._gauges.setdefault((metric, card), Gauge())

    def _memory_percent(self, used_bytes: int) -> float:
        return 100.0 * used_bytes / self.probe.resources.memory_bytes

    def _samples(self, at_ms: int, levels: dict[GaugeKey, float | None]) -> list[Sample]:
        values: dict[GaugeKey, float | None] = {
            (metric, None): counter.ship() for metric, counter in self._counters.items()
        }
        cores = values[Metric.CPU_PERCENT, None]
        if cores is not None:
            # Rounding to clock ticks can show more than the machine has; that never happened.
            cores = min(cores, float(_MACHINE_CORES))
            values[Metric.CPU_PERCENT, None] = 100.0 * cores / self.probe.resources.cpu_cores
        key = self.probe.key
        samples = [
            Sample(key.job_id, key.task, metric, at_ms, value, card)
            for (metric, card), value in (values | levels).items()
            if value is not None
        ]
        self._shipped_any = self._shipped_any or bool(samples)
        return samples
