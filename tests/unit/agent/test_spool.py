"""Reports wait on disk until they are acknowledged, whatever is killed or full in between."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from trackside.agent import spool as spool_module
from trackside.agent.spool import Spool
from trackside.domain.exchange import EndCause, Ended, Measured, Noted, Report, TaskKey
from trackside.domain.job import JobId, TaskName
from trackside.domain.metric import Sample

KEY = TaskKey(JobId("job"), 1, TaskName("worker-0"))


@contextmanager
def opened(directory: Path) -> Iterator[Spool]:
    spool = Spool(directory)
    try:
        yield spool
    finally:
        spool.close()


def note(text: str) -> Report:
    return Report(seq=0, noted=Noted(key=KEY, at_ms=1, message=text))


def end(code: int = 0) -> Report:
    return Report(seq=0, ended=Ended(key=KEY, at_ms=1, cause=EndCause.EXITED, exit_code=code))


def samples(count: int) -> Report:
    made = tuple(Sample(JobId("job"), "worker-0", "cpu_percent", at, 1.0) for at in range(count))
    return Report(seq=0, measured=Measured(samples=made))


def texts(spool: Spool, count: int = 500) -> list[str | None]:
    reports = [msgspec.json.decode(raw, type=Report) for raw in spool.first(count).reports]
    return [None if report.noted is None else report.noted.message for report in reports]


def test_reports_are_numbered_and_dropped_when_acknowledged(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append(note("a"), note("b"), end())
        batch = spool.wait(0)
        assert batch is not None
        numbers = [msgspec.json.decode(raw, type=Report).seq for raw in batch.reports]
        assert (numbers, batch.through) == ([1, 2, 3], 3)
        assert spool.acknowledge(batch.stream, 2) == []
        assert spool.pending_ends() == {KEY}
        assert spool.acknowledge(batch.stream, 3) == [KEY]
        assert spool.wait(0) is None
        spool.append(note("c"))
        assert msgspec.json.decode(spool.first(1).reports[0], type=Report).seq == 4


def test_an_acknowledgement_of_another_stream_drops_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append(note("a"))
        spool.acknowledge("another", 1)
        assert spool.waiting == 1


def test_what_waits_survives_and_goes_first_under_its_own_stream(tmp_path: Path) -> None:
    with opened(tmp_path) as first:
        first.append(note("a"), end(3))
        stream = first.first(1).stream
    with opened(tmp_path) as second:
        assert second.pending_ends() == {KEY}
        second.append(note("b"))
        old = second.wait(0)
        assert old is not None
        assert (old.stream, len(old.reports)) == (stream, 2)
        assert second.acknowledge(old.stream, old.through) == [KEY]
        new = second.wait(0)
        assert new is not None
        assert new.stream != stream
        assert texts(second) == ["b"]
        second.acknowledge(new.stream, new.through)
    with opened(tmp_path) as third:
        assert third.wait(0) is None


def test_a_tail_torn_at_any_byte_costs_only_that_report(tmp_path: Path) -> None:
    with opened(tmp_path / "whole") as spool:
        spool.append(note("a"), note("b"))
    (file,) = (tmp_path / "whole").iterdir()
    content = file.read_bytes()
    half = len(content) // 2
    assert content[:half] != content[half:]
    for cut in range(half, len(content)):
        torn = tmp_path / str(cut)
        torn.mkdir()
        (torn / file.name).write_bytes(content[:cut])
        with opened(torn) as spool:
            assert texts(spool) == ["a"]
            spool.append(note("c"))
            assert spool.waiting == 2


def test_a_damaged_report_is_not_believed(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append(note("aaaa"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().replace(b"aaaa", b"aaab"))
    with opened(tmp_path) as spool:
        assert spool.wait(0) is None


def test_segments_are_removed_once_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES_MAX", 1000)
    with opened(tmp_path) as spool:
        spool.append(*(note(f"{number:0100d}") for number in range(50)))
        assert len(list(tmp_path.iterdir())) > 5
        batch = spool.first(40)
        spool.acknowledge(batch.stream, batch.through)
        assert len(list(tmp_path.iterdir())) <= 3
    with opened(tmp_path) as spool:
        assert [int(text or "") for text in texts(spool)][-10:] == list(range(40, 50))


def test_without_room_measurements_are_counted_and_the_rest_is_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as spool:
        monkeypatch.setattr(spool_module, "SPOOL_BYTES_MAX", 0)
        spool.append(samples(5), end(2), samples(2))
        assert (spool.take_dropped(), spool.take_dropped()) == (7, 0)
        batch = spool.wait(0)
        assert batch is not None
        assert [msgspec.json.decode(raw, type=Report).seq for raw in batch.reports] == [1]
        assert spool.acknowledge(batch.stream, batch.through) == [KEY]


def test_a_batch_is_limited_in_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "BATCH_BYTES_MAX", 300)
    with opened(tmp_path) as spool:
        spool.append(*(note("x" * 100) for _ in range(10)))
        batch = spool.wait(0)
        assert batch is not None
        assert 0 < len(batch.reports) < 10
