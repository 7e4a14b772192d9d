"""Which processes belong to a task, and that nothing they used is lost or counted twice."""

import os
import signal
from pathlib import Path

import pytest

from tests.unit.collect.workload import MIB, Task, task
from trackside.collect.processes import (
    TICKS_PER_SECOND,
    ProcessScan,
    ProcessTree,
    parse_io,
    parse_stat,
)


@pytest.fixture
def scan() -> ProcessScan:
    return ProcessScan()


def refreshed(tree: ProcessTree, scan: ProcessScan) -> set[int]:
    scan.find([tree])
    tree.refresh()
    return set(tree.processes)


def cpu_seconds(tree: ProcessTree, scan: ProcessScan) -> float:
    refreshed(tree, scan)
    return tree.cpu_ticks / TICKS_PER_SECOND


def tree_of(running: Task) -> ProcessTree:
    return ProcessTree(running.shim.pid, None)


def test_stat_is_read_whatever_the_process_calls_itself() -> None:
    line = b"7 (a) b (c)) S 3 " + b" ".join(str(n).encode() for n in range(5, 53)) + b"\n"
    stat = parse_stat(line)
    assert (stat.parent, stat.own_ticks, stat.child_ticks, stat.start_ticks) == (3, 14 + 15, 16 + 17, 22)


def test_io_is_what_reached_the_device_and_what_was_called_for() -> None:
    text = (
        b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 50\nwrite_bytes: 60\ncancelled_write_bytes: 7\n"
    )
    assert parse_io(text) == (50, 60, 3)


def test_children_and_orphans_belong_to_the_task_and_neighbours_do_not(scan: ProcessScan) -> None:
    with task() as ours, task("neighbour") as theirs:
        program, child = ours.do("os.getpid()"), ours.do("start('child')")
        tree = tree_of(ours)
        assert refreshed(tree, scan) == {program, child}
        # Its parents are gone when the answer comes, so it hangs below the shim.
        daemon = "setsid sh -c 'sleep 60 >/dev/null & echo $!'"
        orphan = int(ours.do(f"subprocess.check_output({daemon!r}, shell=True, text=True)"))
        assert refreshed(tree, scan) == {program, child, orphan}
        assert theirs.do("os.getpid()") not in tree.processes
        os.kill(orphan, signal.SIGKILL)
        ours.do("end('child')")
        assert refreshed(tree, scan) - {orphan} == {program}
        tree.close()


def test_a_shim_that_was_known_as_a_stranger_is_found_when_expected(scan: ProcessScan) -> None:
    with task("first") as first, task("second") as second:
        one, two = tree_of(first), tree_of(second)
        refreshed(one, scan)
        scan.expect(second.shim.pid)
        scan.find([one, two])
        assert second.do("os.getpid()") in two.processes
        one.close()
        two.close()


def test_short_lived_children_are_counted_once(scan: ProcessScan) -> None:
    with task() as running:
        tree = tree_of(running)
        before = cpu_seconds(tree, scan)
        used = running.do(
            "[(start('c'), tell('c', 'burn(0.05)'), end('c')) for _ in range(8)] and children_cpu()"
        )
        assert used > 0.4
        grown = cpu_seconds(tree, scan) - before
        own = running.do("time.process_time()")
        assert used - 0.03 <= grown <= used + own + 0.03
        assert cpu_seconds(tree, scan) - before == pytest.approx(grown, abs=0.02)
        tree.close()


@pytest.mark.parametrize("waits", [True, False], ids=["reaped by its parent", "waited for by nobody"])
def test_a_child_that_was_seen_is_counted_once_when_it_is_gone(scan: ProcessScan, waits: bool) -> None:
    with task() as running:
        if not waits:
            running.do("signal.signal(signal.SIGCHLD, signal.SIG_IGN) and None")
        tree = tree_of(running)
        before = cpu_seconds(tree, scan)
        running.do("start('c') and tell('c', 'burn(0.4)')")
        seen = cpu_seconds(tree, scan) - before
        assert 0.35 <= seen <= 0.6
        running.do("end('c')")
        for _ in range(3):
            assert seen <= cpu_seconds(tree, scan) - before <= seen + 0.2
        tree.close()


def test_disk_bytes_of_a_reaped_child_are_counted_once(scan: ProcessScan, tmp_path: Path) -> None:
    with task() as running:
        tree = tree_of(running)
        refreshed(tree, scan)
        assert tree.disk_bytes is not None
        before = tree.disk_bytes[1]
        writing = f"write({str(tmp_path / 'data')!r}, 8)"
        for step in ("start('c')", f"tell('c', {writing!r})", "end('c')", "None"):
            running.do(step)
            refreshed(tree, scan)
        assert tree.disk_bytes[1] - before == pytest.approx(8 * MIB, rel=0.02)
        tree.close()


def test_what_calls_moved_is_counted_once_and_stands_still_with_the_task(
    scan: ProcessScan, tmp_path: Path
) -> None:
    with task() as running:
        tree = tree_of(running)
        refreshed(tree, scan)
        before = tree.call_bytes
        assert before is not None
        writing = f"write({str(tmp_path / 'data')!r}, 8)"
        for step in ("start('c')", f"tell('c', {writing!r})", "end('c')", "None"):
            running.do(step)
            refreshed(tree, scan)
        after = tree.call_bytes
        assert after is not None
        assert 8 * MIB <= after - before < 12 * MIB  # what Python reads to start is among it
        for _ in range(3):
            refreshed(tree, scan)
            assert tree.call_bytes == after
        tree.close()


def test_a_shim_that_is_killed_takes_nothing_back(scan: ProcessScan) -> None:
    with task() as running:
        tree = tree_of(running)
        running.do("(start('c'), tell('c', 'burn(0.2)'), end('c')) and burn(0.1)")
        running.finish()  # now all that the task used is with the shim
        before = cpu_seconds(tree, scan)
        assert before >= 0.29
        running.shim.kill()
        running.shim.wait()
        assert refreshed(tree, scan) == set()
        assert tree.cpu_ticks / TICKS_PER_SECOND == before
        tree.close()
