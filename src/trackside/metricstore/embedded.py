"""Keeps samples in one SQLite file; knows how they are stored and averaged, and nothing else.

One connection writes, behind a lock; every query that runs at the same time has a connection of its own
and, in WAL mode, waits for nobody. An append returns when its transaction is on disk.
"""

import logging
import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.ports import SeriesKey

log = logging.getLogger(__name__)

NAME_CHARS_MAX = 128
AT_MS_MAX = 1 << 53  # beyond any clock; what a float still tells exactly
CARD_MAX = 65_535
VALUE_MAX = 1e300  # so that a sum of them is still a number
SERIES_CACHED_MAX = 50_000
BUSY_MS_MAX = 10_000  # how long to wait for another process that has the file

NO_CARD = -1  # in the table only: SQLite takes two NULLs for different keys

_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL,
    task TEXT NOT NULL,
    metric TEXT NOT NULL,
    card INTEGER NOT NULL,
    UNIQUE (job_id, task, metric, card)
);
CREATE TABLE IF NOT EXISTS sample (
    series_id INTEGER NOT NULL REFERENCES series (id),
    at_ms INTEGER NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (series_id, at_ms)
) WITHOUT ROWID;
"""
_LATEST = """
SELECT task, metric, card, at_ms, value FROM series, sample
WHERE job_id = ? AND series_id = id AND at_ms >= ?
  AND at_ms = (SELECT max(at_ms) FROM sample WHERE series_id = id)
"""
_MEANS = """
SELECT at_ms / :step * :step AS t, avg(value)
FROM sample
WHERE series_id = :series AND at_ms >= :start AND at_ms < :end
GROUP BY t
"""

_Key = tuple[str, str, str, int]  # job, task, metric, card


class EmbeddedMetricStore:
    """A MetricStore in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        # Threads come and go, so a query borrows a connection instead of owning one per thread.
        self._idle_readers: deque[sqlite3.Connection] = deque()
        self._writer = self._connect()
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute("PRAGMA synchronous = FULL")
        self._writer.executescript(_SCHEMA)
        self._series_ids: dict[_Key, int] = {}
        # Begun at the clock, so that a number seen before a restart does not come back with other data.
        self._revision = time.time_ns() // 1_000_000
        self._revisions: dict[str, int] = {}
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Return how many samples were refused for what they were."""
        return self._dropped

    def append(self, samples: Sequence[Sample]) -> None:
        """Keep samples; they are durable on return. What is no measurement is dropped and counted."""
        good = [sample for sample in samples if _acceptable(sample)]
        with self._lock:
            if len(good) < len(samples):
                self._dropped += len(samples) - len(good)
                log.warning("%d of %d samples were no measurements", len(samples) - len(good), len(samples))
            if not good:
                return
            with self._transaction():
                rows = [(self._series_id(sample), sample.at_ms, float(sample.value)) for sample in good]
                self._writer.executemany("INSERT OR IGNORE INTO sample VALUES (?, ?, ?)", rows)
            for job_id in {sample.job_id for sample in good}:
                self._touch(job_id)

    def means(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, dict[int, float]]:
        """Return, per series, the mean of each step [t, t+step) that has samples, keyed by t.

        Steps are whole multiples of `step_ms` since the epoch; one that is only partly in the window has
        the samples that are.
        """
        if step_ms <= 0:
            raise Invalid(f"a step must be positive, not {step_ms} ms")
        window = {"start": _clamped(start_ms), "end": _clamped(end_ms), "step": min(step_ms, AT_MS_MAX)}
        found: dict[SeriesKey, dict[int, float]] = {}
        with self._snapshot() as connection:
            series = connection.execute(
                "SELECT id, task, metric, card FROM series WHERE job_id = ?"
                " AND (? IS NULL OR task = ?) AND (? IS NULL OR metric = ?)",
                (job_id, task, task, metric, metric),
            )
            for series_id, name, measured, card in series.fetchall():
                means = dict(connection.execute(_MEANS, window | {"series": series_id}))
                if means:
                    found[SeriesKey(name, measured, None if card == NO_CARD else card)] = means
        return found

    def latest(
        self, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        """Return the newest sample (time, value) of every series that has one since then."""
        found: dict[JobId, dict[SeriesKey, tuple[int, float]]] = {}
        with self._snapshot() as connection:
            for job_id in job_ids:
                rows = connection.execute(_LATEST, (job_id, _clamped(since_ms)))
                newest = {
                    SeriesKey(task, metric, None if card == NO_CARD else card): (at_ms, value)
                    for task, metric, card, at_ms, value in rows
                }
                if newest:
                    found[job_id] = newest
        return found

    def revision(self, job_id: JobId) -> int:
        """Return a number that changes whenever samples of the job arrive."""
        return self._revisions.get(job_id, 0)

    def forget(self, job_id: JobId) -> None:
        """Drop all samples of a job."""
        with self._lock:
            with self._transaction():
                self._writer.execute(
                    "DELETE FROM sample WHERE series_id IN (SELECT id FROM series WHERE job_id = ?)",
                    (job_id,),
                )
                self._writer.execute("DELETE FROM series WHERE job_id = ?", (job_id,))
            for key in [key for key in self._series_ids if key[0] == job_id]:
                del self._series_ids[key]
            self._touch(job_id)

    def close(self) -> None:
        """Close all connections; no other thread may be using the store any longer."""
        with self._lock:
            while self._idle_readers:
                self._idle_readers.pop().close()
            self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        # Transactions are ours to begin (isolation_level None). A connection changes threads, but is never
        # used by two at once.
        connection = sqlite3.connect(
            self._path, timeout=BUSY_MS_MAX / 1000, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _touch(self, job_id: str) -> None:
        self._revision += 1
        self._revisions[job_id] = self._revision

    def _series_id(self, sample: Sample) -> int:
        card = NO_CARD if sample.card is None else sample.card
        key = (sample.job_id, sample.task, sample.metric, card)
        series_id = self._series_ids.get(key)
        if series_id is None:
            self._writer.execute(
                "INSERT OR IGNORE INTO series (job_id, task, metric, card) VALUES (?, ?, ?, ?)", key
            )
            row = self._writer.execute(
                "SELECT id FROM series WHERE job_id = ? AND task = ? AND metric = ? AND card = ?", key
            ).fetchone()
            series_id = int(row[0])
            if len(self._series_ids) >= SERIES_CACHED_MAX:
                self._series_ids.clear()
            self._series_ids[key] = series_id
        return series_id

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            self._series_ids.clear()  # ids handed out in it were never stored
            raise

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection on which several queries see one state."""
        try:
            connection = self._idle_readers.pop()
        except IndexError:
            connection = self._connect()
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("ROLLBACK")
            self._idle_readers.append(connection)


def _acceptable(sample: Sample) -> bool:
    names = (sample.job_id, sample.task, sample.metric)
    return (
        math.isfinite(sample.value)
        and abs(sample.value) <= VALUE_MAX
        and 0 <= sample.at_ms < AT_MS_MAX
        and all(0 < len(name) <= NAME_CHARS_MAX and name.isprintable() for name in names)
        and (sample.card is None or 0 <= sample.card <= CARD_MAX)
    )


def _clamped(at_ms: int) -> int:
    return min(max(at_ms, 0), AT_MS_MAX)
