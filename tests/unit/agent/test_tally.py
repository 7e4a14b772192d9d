"""What a task used, of real processes and real files."""

import os
import sys
from pathlib import Path

import pytest

from trackside.agent import tally

MIB = 1 << 20


def test_what_a_reaped_process_used_is_added_up() -> None:
    totals = tally.Totals()
    for code in (0, 3):
        words = [sys.executable, "-S", "-c", f"held = b'x' * {32 * MIB}; raise SystemExit({code})"]
        pid = os.posix_spawn(sys.executable, words, os.environ)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        before = totals.cpu_seconds
        assert os.waitstatus_to_exitcode(totals.reap(pid)) == code
        assert totals.cpu_seconds >= before
    assert totals.max_rss_bytes > 32 * MIB
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"low 0\noom 3\noom_kill 2\n", 2),
        (b"oom_kill_disable 0\nunder_oom 0\n", None),
        (b"oom_kill\noom_kill 1 2\n", None),
        (b"", None),
    ],
)
def test_a_counter_is_found_by_its_whole_name(tmp_path: Path, content: bytes, count: int | None) -> None:
    file = tmp_path / "memory.events"
    file.write_bytes(content)
    assert tally.counter(str(file), b"oom_kill") == count


def test_a_number_is_read(tmp_path: Path) -> None:
    file = tmp_path / "memory.peak"
    file.write_text("4096\n")
    assert tally.number(str(file)) == 4096


def test_what_cannot_be_read_is_absent_and_not_zero(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("max\n")
    assert tally.number(str(tmp_path / "words")) is None
    for path in (None, str(tmp_path / "nothing")):
        assert tally.number(path) is None
        assert tally.counter(path, b"oom_kill") is None


def test_room_is_told_of_paths_and_descriptors_and_of_nothing_else(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        found = tally.room({"path": str(tmp_path), "fd": fd, "gone": str(tmp_path / "nothing")})
    finally:
        os.close(fd)
    assert set(found) == {"path", "fd"}
    used, free, whole = found["path"]
    assert 0 < used + free <= whole
    assert found["fd"][2] == whole
