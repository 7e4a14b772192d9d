"""What only the embedded store promises."""

import resource
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trackside.domain.errors import Invalid, Unavailable
from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import readings_of
from trackside.metricstore import columns, journal, names, sealed
from trackside.metricstore.embedded import EmbeddedMetricStore

JOB = JobId("job")
AT_MS = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.db"


@pytest.fixture
def store(path: Path) -> Iterator[EmbeddedMetricStore]:
    made = EmbeddedMetricStore(path)
    yield made
    made.close()


def sample(task: str = "worker-0", value: float = 1.0, at_ms: int = AT_MS) -> Sample:
    return Sample(JOB, task, "cpu_percent", at_ms, value)


def test_dropped_samples_are_counted(store: EmbeddedMetricStore) -> None:
    store.append([sample(), sample(value=float("nan")), sample(task="")])
    assert store.dropped == 2


def test_names_are_synced_before_an_append_returns(store: EmbeddedMetricStore) -> None:
    assert store._database.writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert store._database.writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@contextmanager
def no_room() -> Iterator[None]:
    """Let no file grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_append_that_fails_leaves_nothing_and_the_next_one_works(store: EmbeddedMetricStore) -> None:
    store.append([sample("worker-2")])  # a name that is known already: only the journal is written to
    store._writing.journal.rotate()
    revision = store.revision(JOB)
    with no_room(), pytest.raises(OSError, match="large"):
        store.append([sample("worker-2", value=13, at_ms=AT_MS + 5)])
    assert store.revision(JOB) == revision
    found = store.means(JOB, task=None, start_ms=AT_MS + 1, end_ms=AT_MS + 9, step_ms=1000)
    assert found == {}
    store.append([sample("worker-1"), sample("worker-0")])
    assert len(store.means(JOB, task=None, start_ms=0, end_ms=AT_MS + 1, step_ms=1000)) == 3


def test_an_append_whose_names_cannot_be_stored_leaves_nothing(
    store: EmbeddedMetricStore, path: Path
) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TRIGGER refuse BEFORE INSERT ON job BEGIN SELECT RAISE(ABORT, 'thirteen'); END")
    other.close()
    for append in (store.append, lambda samples: store.append_readings(readings_of(samples))):
        with pytest.raises(sqlite3.IntegrityError, match="thirteen"):
            append([sample("worker-0"), sample("worker-1", value=13)])
    with sqlite3.connect(path) as other:
        other.execute("DROP TRIGGER refuse")
    other.close()
    assert store.means(JOB, task=None, start_ms=0, end_ms=AT_MS + 1, step_ms=1000) == {}
    store.append_readings(readings_of([sample("worker-1"), sample("worker-0")]))
    assert len(store.means(JOB, task=None, start_ms=0, end_ms=AT_MS + 1, step_ms=1000)) == 2


def test_a_reader_in_the_middle_does_not_hold_up_the_writer(store: EmbeddedMetricStore) -> None:
    store.append([sample()])
    with store._database.snapshot() as reading:
        assert reading.execute("SELECT series FROM job").fetchone() == (1,)
        writer = threading.Thread(target=store.append, args=([sample("worker-1")],))
        writer.start()
        writer.join(timeout=30)
        assert not writer.is_alive()
        assert reading.execute("SELECT series FROM job").fetchone() == (1,)  # its own moment


def test_more_series_than_are_remembered(store: EmbeddedMetricStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "SERIES_CACHED_MAX", 3)
    for _ in range(2):
        store.append([sample(f"worker-{n}") for n in range(10)])
    assert len(store.means(JOB, task=None, start_ms=0, end_ms=AT_MS + 1, step_ms=1000)) == 10


def test_a_revision_from_before_a_restart_does_not_come_back(path: Path) -> None:
    seen = set()
    for _ in range(3):
        store = EmbeddedMetricStore(path)
        store.append([sample()])
        seen.add(store.revision(JOB))
        store.close()
    assert len(seen) == 3


def damage(path: Path, table: str) -> None:
    """Flip one byte in the middle of every block of a table."""
    column = {"series_group": "names"}.get(table, "data")
    with sqlite3.connect(path) as other:
        rows = other.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        assert rows
        for row, data in rows:
            middle = len(data) // 2
            flipped = data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]
            other.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (flipped, row))
    other.close()


WINDOW = {"start_ms": 0, "end_ms": AT_MS + 10**9}


@pytest.mark.parametrize(("table", "step_ms"), [("raw", 1_000), ("rollup", 60_000), ("series_group", 60_000)])
def test_a_damaged_block_is_reported_and_never_told(
    path: Path, caplog: pytest.LogCaptureFixture, table: str, step_ms: int
) -> None:
    store = EmbeddedMetricStore(path, background=False)
    store.append([sample(), sample("worker-1")])
    store.compact(everything=True)
    store.close()
    damage(path, table)
    store = EmbeddedMetricStore(path, background=False)
    for _ in range(3):
        assert store.means(JOB, task=None, step_ms=step_ms, **WINDOW) == {}
    assert store.damaged == 1  # once, however often it is met
    assert f"of {table} is damaged" in caplog.text
    store.append([sample(value=7.0, at_ms=AT_MS + 1)])
    store.compact(everything=True)
    found = store.means(JOB, task="worker-0", step_ms=60_000, **WINDOW)
    # A rollup is made anew from the raw samples, which have the first one still.
    assert [list(steps.values()) for steps in found.values()] == [[4.0 if table == "rollup" else 7.0]]
    store.close()


def test_a_damaged_record_of_the_journal_is_reported_and_the_others_are_kept(path: Path) -> None:
    store = EmbeddedMetricStore(path, background=False)
    for task in ("worker-0", "worker-1", "worker-2"):
        store.append([sample(task)])
    store.close()
    (file,) = path.parent.glob("metrics.journal-*")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10  # in the second of three records
    file.write_bytes(data)
    for _ in range(2):
        store = EmbeddedMetricStore(path, background=False)
        assert store.damaged == 1
        found = store.means(JOB, task=None, step_ms=60_000, **WINDOW)
        assert {key.task for key in found} == {"worker-0", "worker-2"}
        store.close()


def test_a_torn_end_of_the_journal_is_left_out(path: Path) -> None:
    store = EmbeddedMetricStore(path, background=False)
    for task in ("worker-0", "worker-1"):
        store.append([sample(task)])
    store.close()
    (file,) = path.parent.glob("metrics.journal-*")
    file.write_bytes(file.read_bytes()[:-9])
    store = EmbeddedMetricStore(path, background=False)
    assert [key.task for key in store.means(JOB, task=None, step_ms=60_000, **WINDOW)] == ["worker-0"]
    assert store.damaged == 0
    store.compact(everything=True)
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["metrics.db"]


def test_a_second_process_does_not_take_the_journal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "OTHER_PROCESS_SECONDS_MAX", 0.0)
    store = EmbeddedMetricStore(path)
    with pytest.raises(Unavailable, match="another process"):
        EmbeddedMetricStore(path)
    store.close()
    EmbeddedMetricStore(path).close()


def test_a_file_of_format_3_is_taken_over(path: Path) -> None:
    store = EmbeddedMetricStore(path, background=False)
    store.append([sample()])
    ids = np.array([1 << 7], np.int64)  # the first series of the first group
    parts = [columns.pack(column) for column in (ids, np.array([AT_MS + 1]), np.array([3.0]))]
    store.close()
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE tail (seq INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        old.execute("INSERT INTO tail VALUES (5, ?)", (sealed.seal(sealed.TAIL, 5, parts),))
        old.execute("PRAGMA user_version = 3")
    old.close()
    for _ in range(2):
        store = EmbeddedMetricStore(path, background=False)
        found = store.means(JOB, task=None, step_ms=60_000, **WINDOW)
        assert [list(steps.values()) for steps in found.values()] == [[2.0]]
        store.close()


def test_rows_that_are_partly_no_measurements_are_kept_in_part(store: EmbeddedMetricStore) -> None:
    (good,) = readings_of([sample(f"worker-{n}", float(n), AT_MS + at) for n in range(3) for at in (0, 1000)])
    values = np.frombuffer(good.values).copy()
    values[1] = np.nan
    values[5] = np.inf
    store.append_readings([replace(good, values=values.tobytes()), replace(good, times_ms=(-1, 1 << 60))])
    found = store.means(JOB, task=None, step_ms=1000, **WINDOW)
    assert {key.task: sorted(steps.values()) for key, steps in found.items()} == {
        "worker-0": [0.0, 0.0],
        "worker-1": [1.0],
        "worker-2": [2.0],
    }
    assert store.dropped == 8


def test_rows_of_series_that_cannot_be_named_are_dropped(store: EmbeddedMetricStore) -> None:
    readings = readings_of([sample(task, at_ms=AT_MS + at) for task in ("", "worker-0") for at in (0, 1000)])
    for _ in range(2):
        store.append_readings(readings)
    (found,) = store.means(JOB, task=None, step_ms=1000, **WINDOW).values()
    assert len(found) == 2
    assert store.dropped == 4


def test_raw_samples_are_still_told_in_minutes_when_only_they_are_damaged(path: Path) -> None:
    store = EmbeddedMetricStore(path, background=False)
    store.append([sample(value=4.0)])
    store.compact(everything=True)
    damage(path, "raw")
    assert list(store.means(JOB, task=None, step_ms=60_000, **WINDOW).values()) == [
        {AT_MS // 60_000 * 60_000: 4.0}
    ]
    store.close()


def test_appends_of_many_threads_are_all_there(store: EmbeddedMetricStore) -> None:
    def write(number: int) -> None:
        for tick in range(30):
            store.append([sample(f"worker-{number}", float(tick), AT_MS + tick * 1000)])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = store.means(JOB, task=None, step_ms=1_000, **WINDOW)
    assert {key.task: list(steps.values()) for key, steps in found.items()} == {
        f"worker-{number}": [float(tick) for tick in range(30)] for number in range(6)
    }


def test_more_series_than_a_group_holds(path: Path) -> None:
    for _ in range(2):  # and again after a restart
        store = EmbeddedMetricStore(path, background=False)
        for metric in ("cpu_percent", "loss"):
            store.append([Sample(JOB, f"worker-{n}", metric, AT_MS, float(n)) for n in range(400)])
        store.compact(everything=True)
        found = store.means(JOB, task=None, metric="loss", step_ms=60_000, **WINDOW)
        assert {key.task: sum(steps.values()) for key, steps in found.items()} == {
            f"worker-{n}": float(n) for n in range(400)
        }
        newest = store.latest_of("loss", [JOB], since_ms=AT_MS)
        assert sorted(newest[JOB].values) == [float(n) for n in range(400)]
        store.close()


def test_a_file_of_the_first_format_is_taken_over(path: Path) -> None:
    with sqlite3.connect(path) as old:
        old.executescript(
            "CREATE TABLE series (id INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT, task TEXT, metric TEXT,"
            " card INTEGER); CREATE TABLE sample (series_id INTEGER, at_ms INTEGER, value REAL);"
            "INSERT INTO series VALUES (1, 'job', 'worker-0', 'gpu_percent', 2),"
            " (2, 'job', 'worker-0', 'cpu_percent', -1);"
            f"INSERT INTO sample VALUES (1, {AT_MS}, 50.0), (2, {AT_MS}, 10.0), (2, {AT_MS + 1}, 20.0);"
        )
    old.close()
    for _ in range(2):
        store = EmbeddedMetricStore(path)
        found = store.means(JOB, task=None, step_ms=60_000, **WINDOW)
        assert {(key.metric, key.card): list(steps.values()) for key, steps in found.items()} == {
            ("gpu_percent", 2): [50.0],
            ("cpu_percent", None): [15.0],
        }
        store.compact(everything=True)
        store.close()
    assert [file.name for file in path.parent.iterdir()] == ["metrics.db"]


def test_a_file_of_a_later_format_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(Invalid, match="format 99"):
        EmbeddedMetricStore(path)
