"""A ZIP file that is taken away while it is written, and read back by the standard library."""

import io
import tracemalloc
import zipfile

import pytest

from trackside.service.archive import Archive

AT_MS = 1_700_000_000_000
MIB = 1024 * 1024


def test_what_was_written_comes_back() -> None:
    archive = Archive(at_ms=AT_MS)
    taken = []
    for name, pieces in {"a.txt": [b"one ", b"two"], "empty": [], "ünï/c.log": [b"\xff\x00"]}.items():
        archive.begin(name)
        for piece in pieces:
            archive.write(piece)
            taken.append(archive.take())
        archive.end()
    archive.close()
    taken.append(archive.take())
    assert archive.take() == b""
    with zipfile.ZipFile(io.BytesIO(b"".join(taken))) as read:
        assert read.testzip() is None
        assert {name: read.read(name) for name in read.namelist()} == {
            "a.txt": b"one two",
            "empty": b"",
            "ünï/c.log": b"\xff\x00",
        }
        assert read.infolist()[0].date_time == (2023, 11, 14, 22, 13, 20)


def test_only_one_piece_is_ever_held() -> None:
    archive = Archive(at_ms=AT_MS)
    archive.begin("large")
    piece, size = bytes(range(256)) * 1024, 0
    tracemalloc.start()
    try:
        for _ in range(512):
            archive.write(piece)
            size += len(archive.take())
        archive.close()
        size += len(archive.take())
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    assert 0 < size < 512 * len(piece)


@pytest.mark.parametrize("at_ms", [0, 253_402_300_799_000])
def test_times_that_the_format_cannot_say_are_the_nearest_it_can(at_ms: int) -> None:
    archive = Archive(at_ms=at_ms)
    archive.begin("a")
    archive.close()
    with zipfile.ZipFile(io.BytesIO(archive.take())) as read:
        assert read.infolist()[0].date_time[0] in (1980, 2107)
