"""What only the embedded store promises."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.metricstore import names
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


def test_an_append_is_synced_before_it_returns(store: EmbeddedMetricStore) -> None:
    assert store._database.writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert store._database.writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_append_that_fails_leaves_nothing_and_the_next_one_works(
    store: EmbeddedMetricStore, path: Path
) -> None:
    with sqlite3.connect(path) as other:
        other.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON tail BEGIN SELECT RAISE(ABORT, 'thirteen'); END"
        )
    other.close()
    revision = store.revision(JOB)
    with pytest.raises(sqlite3.IntegrityError, match="thirteen"):
        store.append([sample("worker-0"), sample("worker-1", value=13)])
    with sqlite3.connect(path) as other:
        other.execute("DROP TRIGGER refuse")
    other.close()
    assert store.revision(JOB) == revision
    assert store.means(JOB, task=None, start_ms=0, end_ms=AT_MS + 1, step_ms=1000) == {}
    store.append([sample("worker-1"), sample("worker-0")])
    assert len(store.means(JOB, task=None, start_ms=0, end_ms=AT_MS + 1, step_ms=1000)) == 2


def test_a_reader_in_the_middle_does_not_hold_up_the_writer(store: EmbeddedMetricStore) -> None:
    store.append([sample()])
    with store._database.snapshot() as reading:
        assert reading.execute("SELECT count(*) FROM tail").fetchone() == (1,)
        writer = threading.Thread(target=store.append, args=([sample("worker-1")],))
        writer.start()
        writer.join(timeout=30)
        assert not writer.is_alive()
        assert reading.execute("SELECT count(*) FROM tail").fetchone() == (1,)  # its own moment


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
