"""What real processes do, against what the sensors say of it."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.requirements import missing
from tests.unit.collect.workload import MIB, Clock, Task, next_pass, one, task, used
from trackside.collect.network import Traffic, parse_net_dev
from trackside.collect.sensors import Sensors
from trackside.collect.sockdiag import SockDiag
from trackside.domain.metric import Metric

INTERVAL_MS = 5_000
SLACK = 0.1  # of what programs do besides what they were told


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sensors(clock: Clock) -> Iterator[Sensors]:
    with Sensors(INTERVAL_MS, clock=clock) as made:
        yield made


def begun(sensors: Sensors, clock: Clock, *tasks: Task) -> int:
    """Measure these tasks from here on; return where the next interval begins."""
    for running in tasks:
        sensors.add(running.probe)
    samples = next_pass(sensors, clock)
    return samples[0].at_ms


def test_processor_time_is_what_the_program_itself_counts(sensors: Sensors, clock: Clock) -> None:
    with task(cores=2.0) as ours, task("idle") as idle:
        began_ms = begun(sensors, clock, ours, idle)
        before = ours.do("time.process_time()")
        ours.do("burn(0.5)")
        spent = ours.do("time.process_time()") - before
        samples = next_pass(sensors, clock)
        seconds = used(samples, Metric.CPU_PERCENT, began_ms) / 100 * 2.0
        assert seconds == pytest.approx(spent, abs=0.05)
        assert used(samples, Metric.CPU_PERCENT, began_ms, "idle") / 100 < 0.05


def test_half_a_core_over_several_intervals_adds_up(sensors: Sensors, clock: Clock) -> None:
    with task() as ours:
        began_ms = begun(sensors, clock, ours)
        before = ours.do("time.process_time()")
        samples = []
        for _ in range(4):
            ours.do("burn(0.25)")
            samples += next_pass(sensors, clock)
        spent = ours.do("time.process_time()") - before
        assert used(samples, Metric.CPU_PERCENT, began_ms) / 100 == pytest.approx(spent, abs=0.06)


def test_memory_held_is_memory_shown(sensors: Sensors, clock: Clock) -> None:
    with task(memory_bytes=1000 * MIB) as ours, task("idle", memory_bytes=1000 * MIB) as idle:
        begun(sensors, clock, ours, idle)
        ours.do("hold(200)")
        samples = next_pass(sensors, clock)
        assert 20.0 <= one(samples, Metric.MEMORY_PERCENT).value <= 23.0
        assert one(samples, Metric.MEMORY_PERCENT, "idle").value < 3.0


def test_memory_shared_by_forked_workers_is_counted_once(sensors: Sensors, clock: Clock) -> None:
    with task(memory_bytes=1000 * MIB) as ours:
        begun(sensors, clock, ours)
        ours.do("hold(100)")
        ours.do("[os.fork() or signal.pause() for _ in range(4)] and None")
        percent = one(next_pass(sensors, clock), Metric.MEMORY_PERCENT).value
        assert 10.0 <= percent <= 15.0


def test_disk_bytes_written_and_read_are_shown(sensors: Sensors, clock: Clock, tmp_path: Path) -> None:
    with task() as ours, task("idle") as idle:
        began_ms = begun(sensors, clock, ours, idle)
        ours.do(f"write({str(tmp_path / 'data')!r}, 16)")
        samples = next_pass(sensors, clock)
        assert used(samples, Metric.DISK_WRITE_BYTES_PER_SECOND, began_ms) == pytest.approx(
            16 * MIB, rel=SLACK
        )
        assert used(samples, Metric.DISK_WRITE_BYTES_PER_SECOND, began_ms, "idle") < MIB
        began_ms = samples[0].at_ms
        ours.do(f"read({str(tmp_path / 'data')!r})")
        samples = next_pass(sensors, clock)
        assert used(samples, Metric.DISK_READ_BYTES_PER_SECOND, began_ms) == pytest.approx(
            16 * MIB, rel=SLACK
        )
        assert used(samples, Metric.DISK_WRITE_BYTES_PER_SECOND, began_ms) < MIB


def connected(ours: Task, theirs: Task) -> None:
    port = ours.do("listen()")
    theirs.do(f"connect({port})")
    ours.do("accept()")


def exchange(ours: Task, theirs: Task, count: int) -> None:
    """Send bytes from ours to theirs, in pieces that the socket buffers hold."""
    for _ in range(count // 65_536):
        ours.do("send(65536)")
        theirs.do("receive(65536)")


def test_bytes_between_two_tasks_on_loopback_are_shown_for_each(sensors: Sensors, clock: Clock) -> None:
    with task("a") as a, task("b") as b, task("idle") as idle:
        connected(a, b)
        began_ms = begun(sensors, clock, a, b, idle)
        exchange(a, b, 4 * MIB)
        samples = next_pass(sensors, clock)
        sent, received = Metric.NETWORK_SEND_BYTES_PER_SECOND, Metric.NETWORK_RECEIVE_BYTES_PER_SECOND
        assert used(samples, sent, began_ms, "a") == pytest.approx(4 * MIB, rel=0.01)
        assert used(samples, received, began_ms, "b") == pytest.approx(4 * MIB, rel=0.01)
        assert used(samples, received, began_ms, "a") == used(samples, sent, began_ms, "idle") == 0


def test_a_closed_connection_keeps_its_bytes_and_a_new_one_adds(sensors: Sensors, clock: Clock) -> None:
    with task("a") as a, task("b") as b:
        began_ms = begun(sensors, clock, a)
        samples = []
        for _ in range(3):
            connected(a, b)
            exchange(a, b, MIB)
            samples += next_pass(sensors, clock)
            a.do("hang_up()")
            b.do("hang_up()")
            samples += next_pass(sensors, clock)
        assert used(samples, Metric.NETWORK_SEND_BYTES_PER_SECOND, began_ms, "a") == pytest.approx(
            3 * MIB, rel=0.01
        )
        assert all(sample.value >= 0 for sample in samples)


def test_bytes_after_the_last_reading_are_not_lost_with_the_connection(
    sensors: Sensors, clock: Clock
) -> None:
    with task("a") as a, task("b") as b, closing(SockDiag()) as witness:
        connected(a, b)
        began_ms = begun(sensors, clock, a, b)
        exchange(a, b, MIB)
        a.do("hang_up()")
        b.do("hang_up()")
        wait_for_destroyed(witness, carried_bytes=MIB)
        clock.skip_to(clock() + 1_000)
        totals = replace(b.finish(), ended_boot_ms=clock())
        samples = sensors.remove(b.key, clock(), totals) + next_pass(sensors, clock)
        sent, received = Metric.NETWORK_SEND_BYTES_PER_SECOND, Metric.NETWORK_RECEIVE_BYTES_PER_SECOND
        assert used(samples, received, began_ms, "b") == pytest.approx(MIB, rel=0.01)
        assert used(samples, sent, began_ms, "a") == pytest.approx(MIB, rel=0.01)


def wait_for_destroyed(witness: SockDiag, *, carried_bytes: int) -> None:
    """Wait until the kernel has told everybody of both ends of a connection that carried so much."""
    deadline = time.monotonic() + 30
    sent = received = False
    while not (sent and received):
        assert time.monotonic() < deadline, "the kernel told of no such connection"
        for found in witness.destroyed(lambda _: True):
            sent = sent or found.sent_bytes >= carried_bytes
            received = received or found.received_bytes >= carried_bytes
        time.sleep(0.01)


def test_connections_of_a_task_found_running_count_from_then(sensors: Sensors, clock: Clock) -> None:
    with task("a") as a, task("b") as b:
        connected(a, b)
        exchange(a, b, 2 * MIB)
        clock.skip_to(clock() + 60_000)  # it is a minute old
        sensors.add(a.probe)
        began_ms = clock()
        exchange(a, b, MIB)
        samples = next_pass(sensors, clock)
        assert used(samples, Metric.NETWORK_SEND_BYTES_PER_SECOND, began_ms, "a") == pytest.approx(
            MIB, rel=0.01
        )


def test_interfaces_are_summed_without_loopback() -> None:
    text = b"Inter-| Receive\n face |bytes\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"
    text += b"  eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n  eth1:7 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0\n"
    assert parse_net_dev(text) == Traffic(received_bytes=107, sent_bytes=23)


NAMESPACED = """
import json, socket, subprocess, sys
subprocess.run("ip link add near type veth peer name far".split(), check=True)
for name in ("near", "far"):
    subprocess.run(f"ip link set {name} up".split(), check=True)
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("near", 0))
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        raw.send(bytes(1000))
    print(json.dumps("sent"), flush=True)
"""


def test_a_namespace_of_its_own_is_counted_by_its_interfaces(sensors: Sensors, clock: Clock) -> None:
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode != 0:
        missing("the right to make network namespaces")
    if shutil.which("ip") is None:
        missing("ip (iproute2)")
    with task() as ours:
        ours.do(f"start('n', 'unshare', '-n', {sys.executable!r}, '-c', {NAMESPACED!r})")
        began_ms = begun(sensors, clock, ours)
        assert ours.do("tell('n', '500')") == "sent"
        samples = next_pass(sensors, clock)
        for metric in (Metric.NETWORK_SEND_BYTES_PER_SECOND, Metric.NETWORK_RECEIVE_BYTES_PER_SECOND):
            assert used(samples, metric, began_ms) == pytest.approx(500_000, rel=0.05)
        ours.do("end('n')")
