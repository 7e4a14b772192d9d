"""The same questions answered by real cgroups, of whichever versions this machine lets us make."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.requirements import missing
from tests.unit.collect.workload import MIB, Clock, next_pass, one, task, used
from trackside.collect.probe import CgroupDirs
from trackside.collect.sensors import Sensors
from trackside.domain.metric import Metric

MOUNTS = {  # what a directory of CgroupDirs is called by the kernel
    "memory": "memory",
    "cpuacct": "cpuacct",
    "pids": "pids",
    "unified": "",
}


def own_place(controller: str) -> Path | None:
    """Return the directory of the cgroup we are in, for a controller ('' is cgroup v2)."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            mount = _mount_point(controller)
            return mount / path.lstrip("/") if mount else None
    return None


def _mount_point(controller: str) -> Path | None:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2" and controller == "":
            return Path(place)
        if kind == "cgroup" and controller and controller in options.split(","):
            return Path(place)
    return None


def new_cgroup(fields: tuple[str, ...]) -> CgroupDirs:
    """Make a cgroup below our own for each of the fields, where that is permitted."""
    name, made = f"trackside-test-{uuid.uuid4().hex[:12]}", {}
    for field in fields:
        place = own_place(MOUNTS[field])
        with suppress(OSError):
            if place is not None:
                (place / name).mkdir()
                made[field] = place / name
    return CgroupDirs(**made)


@pytest.fixture(params=[("memory", "cpuacct", "pids"), ("unified",)], ids=["v1", "v2"])
def cgroup(request: pytest.FixtureRequest) -> Iterator[CgroupDirs]:
    dirs = new_cgroup(request.param)
    if not any(getattr(dirs, field) for field in request.param):
        missing(f"the right to make cgroups ({', '.join(request.param)})")
    with removed(dirs):
        yield dirs


@contextmanager
def removed(dirs: CgroupDirs) -> Iterator[None]:
    """Remove cgroups in the end."""
    try:
        yield
    finally:
        for place in (dirs.memory, dirs.cpuacct, dirs.pids, dirs.unified):
            if place is not None:
                _remove(place)


def _remove(place: Path) -> None:
    for _ in range(1000):  # the kernel lets go of a dead process a moment after we have waited for it
        with suppress(OSError):
            place.rmdir()
        if not place.exists():
            return
        os.sched_yield()
    raise AssertionError(f"{place} is still in use")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sensors(clock: Clock) -> Iterator[Sensors]:
    with Sensors(5_000, clock=clock) as made:
        yield made


def test_processor_time_and_short_lived_children(sensors: Sensors, clock: Clock, cgroup: CgroupDirs) -> None:
    with task(cgroup=cgroup) as ours, task("neighbour") as neighbour:
        sensors.add(ours.probe)
        began_ms = next_pass(sensors, clock)[0].at_ms
        spent_before = ours.do("time.process_time() + children_cpu()")
        ours.do("[(start('c'), tell('c', 'burn(0.05)'), end('c')) for _ in range(5)] and burn(0.1)")
        spent = ours.do("time.process_time() + children_cpu()") - spent_before
        neighbour.do("burn(0.3)")
        samples = next_pass(sensors, clock)
        assert used(samples, Metric.CPU_PERCENT, began_ms) / 100 == pytest.approx(spent, abs=0.06)


def test_memory_and_disk(sensors: Sensors, clock: Clock, cgroup: CgroupDirs, tmp_path: Path) -> None:
    with task(cgroup=cgroup, memory_bytes=1000 * MIB) as ours:
        sensors.add(ours.probe)
        began_ms = next_pass(sensors, clock)[0].at_ms
        ours.do("hold(200)")
        ours.do(f"write({str(tmp_path / 'data')!r}, 32)")  # its page cache is no part of the working set
        samples = next_pass(sensors, clock)
        assert 20.0 <= one(samples, Metric.MEMORY_PERCENT).value <= 23.0
        written = used(samples, Metric.DISK_WRITE_BYTES_PER_SECOND, began_ms)
        assert written == pytest.approx(32 * MIB, rel=0.05)


def test_sockets(sensors: Sensors, clock: Clock, cgroup: CgroupDirs) -> None:
    with task("a", cgroup=cgroup) as a, task("b") as b:
        sensors.add(a.probe)
        sensors.add(b.probe)
        began_ms = next_pass(sensors, clock)[0].at_ms
        port = a.do("listen()")
        b.do(f"connect({port})")
        a.do("accept()")
        for _ in range(16):
            a.do("send(65536)")
            b.do("receive(65536)")
        samples = next_pass(sensors, clock)
        sent = used(samples, Metric.NETWORK_SEND_BYTES_PER_SECOND, began_ms, "a")
        received = used(samples, Metric.NETWORK_RECEIVE_BYTES_PER_SECOND, began_ms, "b")
        assert sent == pytest.approx(MIB, rel=0.01)
        assert received == pytest.approx(MIB, rel=0.01)


def test_what_a_guest_reads_and_writes_is_not_the_tasks(
    sensors: Sensors, clock: Clock, cgroup: CgroupDirs, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("hello\n")
    echo = [sys.executable, "-c", "[print(line * 9999, flush=True) for line in iter(input, 'end')]"]
    with (
        task(cgroup=cgroup) as ours,
        subprocess.Popen(echo, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as guest,
    ):
        assert guest.stdin is not None
        assert guest.stdout is not None
        sensors.add(replace(ours.probe, log_file=log))
        for place in (cgroup.memory, cgroup.cpuacct, cgroup.pids, cgroup.unified):
            if place is not None:
                (place / "cgroup.procs").write_text(str(guest.pid))
        before = one(next_pass(sensors, clock), Metric.IO_BYTES).value
        for _ in range(2):
            guest.stdin.write("go\n")
            guest.stdin.flush()
            assert guest.stdout.readline()
            samples = next_pass(sensors, clock)
            assert one(samples, Metric.IO_BYTES).value == before
        assert one(samples, Metric.LOG_BYTES).value == 6
        guest.stdin.write("end\n")
        guest.stdin.flush()
        guest.wait()
        assert one(next_pass(sensors, clock), Metric.IO_BYTES).value == before
        ours.do(f"write({str(tmp_path / 'data')!r}, 1)")
        assert one(next_pass(sensors, clock), Metric.IO_BYTES).value >= before + MIB


def test_a_cgroup_that_is_gone_gives_no_memory_and_no_harm(
    sensors: Sensors, clock: Clock, tmp_path: Path
) -> None:
    nowhere = CgroupDirs(
        memory=tmp_path / "memory", cpuacct=tmp_path / "cpuacct", unified=tmp_path / "unified"
    )
    with task() as ours:
        ours.cgroup = nowhere
        sensors.add(ours.probe)
        assert one(next_pass(sensors, clock), Metric.CPU_PERCENT).value >= 0
