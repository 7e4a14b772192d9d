"""Known loads, measured while they run: within 5 % of what the load itself counts.

The loads keep their own accounts (processor time, bytes), so a busy machine that slows them down changes
both sides alike; nothing is compared with the wall clock.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import missing
from tests.unit.collect.test_cgroup import new_cgroup, removed
from tests.unit.collect.workload import MIB, Clock, Task, task, used
from trackside.collect.probe import CgroupDirs
from trackside.collect.sensors import Sensors, boot_ms
from trackside.domain.metric import Metric, Sample

INTERVAL_MS = 250
TOLERANCE = 0.05
SECONDS = 1.5

ACCOUNTS: dict[str, tuple[str, ...]] = {
    "processes": (),
    "cgroup v1": ("memory", "cpuacct", "pids"),
    "cgroup v2": ("unified",),
}


@pytest.fixture(params=list(ACCOUNTS))
def cgroup(request: pytest.FixtureRequest) -> Iterator[CgroupDirs | None]:
    fields = ACCOUNTS[request.param]
    if not fields:
        yield None
        return
    dirs = new_cgroup(fields)
    if not any(getattr(dirs, field) for field in fields):
        missing(f"the right to make cgroups ({', '.join(fields)})")
    with removed(dirs):
        yield dirs


class Watch:
    """Measures tasks as time passes."""

    def __init__(self, sensors: Sensors, clock: Clock, *tasks: Task) -> None:
        self._sensors = sensors
        self._clock = clock
        self._samples: list[Sample] = []
        for one in tasks:
            sensors.add(one.probe)
        self.settle()  # a task that is very young is left out of a pass
        self.began_ms = self.settle()
        self._samples.clear()

    def during(self, ours: Task, load: str, *others: tuple[Task, str]) -> Any:
        """Have loads run, measure all the while, and return what our load counted."""
        for neighbour, noise in others:
            neighbour.ask(noise)
        ours.ask(load)
        while not ours.answered():
            self._read()
        counted = ours.answer()
        for neighbour, _ in others:
            neighbour.answer()
        self.settle()
        return counted

    def used(self, metric: Metric, of: Task) -> float:
        """Return what the rates of a metric amount to."""
        return used(self._samples, metric, self.began_ms, of.name)

    def newest(self, metric: Metric, of: Task) -> float:
        return [s for s in self._samples if (s.metric, s.task) == (metric, of.name)][-1].value

    def settle(self) -> int:
        """Read until a pass that began after now has shipped; return when that was."""
        now_ms = self._clock()
        while not (samples := self._read()) or samples[0].at_ms <= now_ms:
            pass
        return samples[0].at_ms

    def _read(self) -> list[Sample]:
        wait_ms = self._sensors.next_read_ms() - boot_ms()
        time.sleep(max(0, wait_ms) / 1000)  # until the sensors ask to be read: this is their clock
        self._clock.catch_up()  # and stands still during the reading: a stamp is its time
        samples = self._sensors.read(self._clock())
        self._samples += samples
        return samples


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sensors(clock: Clock) -> Iterator[Sensors]:
    with Sensors(INTERVAL_MS, clock=clock) as made:
        yield made


def test_half_a_core(sensors: Sensors, clock: Clock, cgroup: CgroupDirs | None) -> None:
    with task(cgroup=cgroup) as ours:
        watch = Watch(sensors, clock, ours)
        counted = watch.during(ours, f"half_a_core({SECONDS})")
        assert watch.used(Metric.CPU_PERCENT, ours) / 100 == pytest.approx(counted, rel=TOLERANCE)


def test_children_that_live_for_50_ms(sensors: Sensors, clock: Clock, cgroup: CgroupDirs | None) -> None:
    with task(cgroup=cgroup) as ours:
        watch = Watch(sensors, clock, ours)
        counted = watch.during(ours, "short_lives(20)")
        assert watch.used(Metric.CPU_PERCENT, ours) / 100 == pytest.approx(counted, rel=TOLERANCE)


def test_ten_megabytes_a_second_written(
    sensors: Sensors, clock: Clock, cgroup: CgroupDirs | None, tmp_path: Path
) -> None:
    with task(cgroup=cgroup) as ours:
        watch = Watch(sensors, clock, ours)
        counted = watch.during(ours, f"write_steadily({str(tmp_path / 'data')!r}, 10_000_000, {SECONDS})")
        written = watch.used(Metric.DISK_WRITE_BYTES_PER_SECOND, ours)
        assert written == pytest.approx(counted, rel=TOLERANCE)


def test_two_hundred_megabytes_held(sensors: Sensors, clock: Clock, cgroup: CgroupDirs | None) -> None:
    with task(cgroup=cgroup, memory_bytes=1000 * MIB) as ours:
        watch = Watch(sensors, clock, ours)
        watch.during(ours, "None")
        before = watch.newest(Metric.MEMORY_PERCENT, ours)
        watch.during(ours, "hold(200)")
        held = (watch.newest(Metric.MEMORY_PERCENT, ours) - before) / 100 * 1000
        assert held == pytest.approx(200, rel=TOLERANCE)
        assert watch.newest(Metric.MEMORY_PEAK_BYTES, ours) >= 200 * MIB
        watch.during(ours, "kept.clear()")
        watch.settle()  # a sample is the mean of its readings: the next one has none of the old
        assert watch.newest(Metric.MEMORY_PERCENT, ours) < before + 5
        assert watch.newest(Metric.MEMORY_PEAK_BYTES, ours) >= 200 * MIB


def test_shared_memory_files_are_seen_without_being_mapped(sensors: Sensors, clock: Clock) -> None:
    dirs = new_cgroup(("memory", "cpuacct", "pids"))
    if dirs.memory is None:
        missing("the right to make cgroups (memory)")
    with removed(dirs), task(cgroup=dirs) as ours:
        watch = Watch(sensors, clock, ours)
        watch.during(ours, "shared_file(20)")
        assert watch.newest(Metric.SHM_USED_BYTES, ours) == pytest.approx(20 * MIB, rel=TOLERANCE)


def test_five_megabytes_a_second_sent(sensors: Sensors, clock: Clock, cgroup: CgroupDirs | None) -> None:
    with task("a", cgroup=cgroup) as a, task("b") as b:
        port = a.do("listen()")
        b.do(f"connect({port})")
        a.do("accept()")
        watch = Watch(sensors, clock, a, b)
        sending = f"send_steadily(5_000_000, {SECONDS})"
        counted = watch.during(a, sending, (b, "receive_all()"))
        assert watch.used(Metric.NETWORK_SEND_BYTES_PER_SECOND, a) == pytest.approx(counted, rel=TOLERANCE)
        assert watch.used(Metric.NETWORK_RECEIVE_BYTES_PER_SECOND, b) == pytest.approx(counted, rel=TOLERANCE)
        assert watch.used(Metric.NETWORK_SEND_BYTES_PER_SECOND, b) == 0


def test_a_noisy_neighbour_changes_nothing(
    sensors: Sensors, clock: Clock, cgroup: CgroupDirs | None, tmp_path: Path
) -> None:
    with ExitStack() as running:
        ours = running.enter_context(task("ours", cgroup=cgroup, memory_bytes=1000 * MIB))
        noisy = running.enter_context(task("noisy"))
        idle = running.enter_context(task("idle", memory_bytes=1000 * MIB))
        watch = Watch(sensors, clock, ours, noisy, idle)
        noise = f"noise({str(tmp_path / 'noise')!r}, {SECONDS})"
        counted = watch.during(ours, f"half_a_core({SECONDS})", (noisy, noise))
        assert watch.used(Metric.CPU_PERCENT, ours) / 100 == pytest.approx(counted, rel=TOLERANCE)
        assert watch.used(Metric.CPU_PERCENT, noisy) > 0
        assert watch.used(Metric.DISK_WRITE_BYTES_PER_SECOND, noisy) >= 20 * MIB
        sent, received = Metric.NETWORK_SEND_BYTES_PER_SECOND, Metric.NETWORK_RECEIVE_BYTES_PER_SECOND
        assert watch.used(sent, noisy) == pytest.approx(20 * MIB, rel=TOLERANCE)
        assert watch.used(received, noisy) == pytest.approx(20 * MIB, rel=TOLERANCE)
        for quiet in (ours, idle):
            assert watch.used(sent, quiet) == watch.used(received, quiet) == 0
            assert watch.used(Metric.DISK_WRITE_BYTES_PER_SECOND, quiet) < MIB
            assert watch.newest(Metric.MEMORY_PERCENT, quiet) < 5
        assert watch.used(Metric.CPU_PERCENT, idle) / 100 < 0.02
