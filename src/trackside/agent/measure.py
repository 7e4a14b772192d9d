"""Knows when the sensors are read and how their samples become reports; refuses to know devices."""

import logging
import time
from collections.abc import Callable, Sequence

from trackside.agent.custom import CustomMetrics
from trackside.agent.loop import Loop
from trackside.collect.cards import CardSource
from trackside.collect.probe import ExitTotals, TaskProbe
from trackside.collect.sensors import Sensors, boot_ms
from trackside.domain.evidence import DeviceFault
from trackside.domain.exchange import Measured, Report, TaskKey
from trackside.domain.metric import Sample
from trackside.domain.readings import readings_of

INTERVAL_SECONDS_DEFAULT = 5.0

_log = logging.getLogger(__name__)


class Meter:
    """Read all sensors of all tasks when it is time; runs in the loop's thread."""

    def __init__(
        self,
        loop: Loop,
        report: Callable[..., None],
        *,
        on_tick: Callable[[], None],
        cards: Callable[[], Sequence[CardSource]],
        custom: CustomMetrics,
    ) -> None:
        self._loop = loop
        self._report = report
        self._on_tick = on_tick
        self._cards = cards
        self._custom = custom
        self._interval_seconds = INTERVAL_SECONDS_DEFAULT
        self._probes: dict[TaskKey, TaskProbe] = {}
        self._sensors = self._make_sensors()
        self._due_ms: int | None = None
        self._schedule()

    def set_interval(self, seconds: float) -> None:
        """Read as often as the server wants."""
        if seconds == self._interval_seconds or seconds <= 0:
            return
        self._interval_seconds = seconds
        self._sensors.close()
        self._sensors = self._make_sensors()
        for probe in self._probes.values():
            self._sensors.add(probe)
        self._schedule()

    def add(self, probe: TaskProbe) -> None:
        """Measure a task from now on."""
        self._probes[probe.key] = probe
        try:
            self._sensors.add(probe)
        except OSError as error:  # it ended in this moment
            _log.info("%s cannot be measured: %s", probe.key, error)
        self._custom.add(probe)
        self._schedule()

    def missed(self, probe: TaskProbe) -> None:
        """Take a task that has ended, in case it was never seen to run: what it printed is still searched."""
        if probe.key not in self._probes:
            self._probes[probe.key] = probe
            self._custom.add(probe)

    def faults(self, key: TaskKey) -> tuple[DeviceFault, ...]:
        """Return what went wrong with the cards of a task that has just failed."""
        return self._sensors.faults(key)

    def remove(self, key: TaskKey, at_ms: int, totals: ExitTotals | None) -> tuple[Report, ...]:
        """Measure it no longer; return the last of its measurements."""
        if self._probes.pop(key, None) is None:
            return ()
        self._custom.remove(key, at_ms)
        return _measured(self._sensors.remove(key, at_ms, totals))

    def close(self) -> None:
        """Let go of the sensors and of what reads the jobs' own metrics."""
        self._sensors.close()
        self._custom.close()

    def _make_sensors(self) -> Sensors:
        return Sensors(self._interval_ms, sources=self._cards())

    @property
    def _interval_ms(self) -> int:
        return int(self._interval_seconds * 1000)

    def _schedule(self) -> None:
        """Make sure the next reading is not late; a timer that is too early finds nothing due."""
        due_ms = self._sensors.next_read_ms()
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._loop.call_later(max(0, due_ms - boot_ms()) / 1000, self._read)

    def _read(self) -> None:
        self._due_ms = None
        try:
            if boot_ms() >= self._sensors.next_read_ms():
                self._report(*_measured(self._sensors.read(time.time_ns() // 1_000_000)))
                self._on_tick()
        finally:
            self._schedule()


def _measured(samples: list[Sample]) -> tuple[Report, ...]:
    """Return the samples as a report."""
    readings = readings_of(samples)
    return (Report(seq=0, measured=Measured(readings=readings)),) if readings else ()
