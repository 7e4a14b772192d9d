"""Small files that survive a crash, and locks that tell their holder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trackside.agent import record


def test_a_record_is_absent_until_it_is_written(tmp_path: Path) -> None:
    path = str(tmp_path / "exit")
    assert record.read(path) is None
    record.preallocate(path)
    assert record.read(path) is None
    record.overwrite(path, {"exit_code": 7})
    assert record.read(path) == {"exit_code": 7}
    assert os.path.getsize(path) == record.RECORD_BYTES


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}', b"[1]\n", b"\xff\n", b" " * 4096])
def test_a_torn_record_is_absent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "exit").write_bytes(content)
    assert record.read(str(tmp_path / "exit")) is None


def test_replace_leaves_one_whole_file(tmp_path: Path) -> None:
    for content in (b"first", b"second"):
        record.replace(str(tmp_path / "order.json"), content)
        assert (tmp_path / "order.json").read_bytes() == content
    assert os.listdir(tmp_path) == ["order.json"]
    assert (tmp_path / "order.json").stat().st_mode & 0o777 == 0o600


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    code = (
        "import sys; from trackside.agent import record; record.lock(sys.argv[1]);"
        "print('held', flush=True); sys.stdin.read()"
    )
    assert record.lock_holder(path) is None
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert record.lock_holder(path) == holder.pid
        assert record.lock(path) is None
        holder.kill()
        holder.communicate()
    assert record.lock_holder(path) is None
    fd = record.lock(path)
    assert fd is not None
    os.close(fd)
