"""Keeps what was not shipped yet in one SQLite file: batches of samples in order, and jobs to be forgotten.

Knows nothing of where it goes. A push is durable on return. That a batch was shipped is written without
waiting for the disk: after a crash it may be shipped once more, which changes nothing.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cramjam
import msgspec

from trackside.domain.metric import Sample

log = logging.getLogger(__name__)

BATCH_SAMPLES_MAX = 10_000  # of one row; a larger push becomes several
BUSY_SECONDS_MAX = 10.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS batch (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    samples INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS forgotten (job_id TEXT PRIMARY KEY, after_id INTEGER NOT NULL);
"""
_Row = tuple[str, str, str, int, float, int | None, tuple[tuple[str, str], ...]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Row]).decode


class DiskQueue:
    """A bounded first-in first-out queue; when it is full the oldest samples give way and are counted."""

    def __init__(self, path: Path, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._durable = _connect(path, "FULL")
        self._durable.executescript(_SCHEMA)
        self._relaxed = _connect(path, "NORMAL")  # in WAL mode this does not wait for the disk
        size, waiting = self._durable.execute("SELECT sum(length(body)), sum(samples) FROM batch").fetchone()
        self._bytes, self._waiting = size or 0, waiting or 0
        self.dropped = 0

    @property
    def bytes(self) -> int:
        """Return how large the waiting batches are."""
        return self._bytes

    @property
    def waiting(self) -> int:
        """Return how many samples wait."""
        return self._waiting

    def push(self, samples: Sequence[Sample]) -> int:
        """Put samples at the end; they are durable on return. Return the number of the last batch."""
        rows = []
        for start in range(0, len(samples), BATCH_SAMPLES_MAX):
            part = samples[start : start + BATCH_SAMPLES_MAX]
            rows.append((len(part), _pack(part)))
        with self._lock:
            with _transaction(self._durable):
                self._durable.executemany("INSERT INTO batch (samples, body) VALUES (?, ?)", rows)
                (last,) = self._durable.execute("SELECT last_insert_rowid()").fetchone()
            self._bytes += sum(len(body) for _, body in rows)
            self._waiting += sum(count for count, _ in rows)
            if self._bytes > self._bytes_max:
                self._give_way()
        return int(last)

    def peek(self, samples_max: int) -> tuple[int, list[Sample]]:
        """Return the oldest samples, whole batches and at least one, and the number to tell `shipped`."""
        with self._lock:
            rows = self._relaxed.execute(
                "SELECT id, samples, body FROM batch ORDER BY id LIMIT 100"
            ).fetchall()
        through, taken = 0, list[Sample]()
        for number, count, body in rows:
            if through and len(taken) + count > samples_max:
                break
            through = number
            taken += _unpack(number, body)
        return through, taken

    def shipped(self, through: int) -> None:
        """Drop everything up to this number: it has arrived."""
        with self._lock:
            self._remove(through)

    def forget(self, job_id: str) -> None:
        """Note durably that the job is to be forgotten once all that waits now has been shipped."""
        with self._lock, _transaction(self._durable):
            (last,) = self._durable.execute("SELECT coalesce(max(id), 0) FROM batch").fetchone()
            self._durable.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?)", (job_id, last))

    def to_forget(self) -> list[str]:
        """Return all jobs that are to be forgotten, now or later."""
        with self._lock:
            return [job_id for (job_id,) in self._relaxed.execute("SELECT job_id FROM forgotten")]

    def forgotten(self) -> list[str]:
        """Return the jobs to be forgotten of which nothing waits any more."""
        oldest = "coalesce((SELECT min(id) FROM batch), after_id + 1)"
        query = f"SELECT job_id FROM forgotten WHERE after_id < {oldest}"  # noqa: S608 - no input in it
        with self._lock:
            return [job_id for (job_id,) in self._relaxed.execute(query)]

    def forgot(self, job_id: str) -> None:
        """Strike a job off the list."""
        with self._lock, _transaction(self._relaxed):
            self._relaxed.execute("DELETE FROM forgotten WHERE job_id = ?", (job_id,))

    def close(self) -> None:
        """Close the file; what waits is shipped when it is opened again."""
        with self._lock:
            self._relaxed.close()
            self._durable.close()

    def _give_way(self) -> None:
        over, last, samples = self._bytes - self._bytes_max, 0, 0
        rows = self._relaxed.execute("SELECT id, samples, length(body) FROM batch ORDER BY id")
        for number, count, size in rows:
            if over <= 0:
                break
            last, samples, over = number, samples + count, over - size
        rows.close()
        self._remove(last)
        self.dropped += samples
        log.warning("the queue to the metric store is full: %d of the oldest samples were dropped", samples)

    def _remove(self, through: int) -> None:
        with _transaction(self._relaxed):
            size, samples = self._relaxed.execute(
                "SELECT sum(length(body)), sum(samples) FROM batch WHERE id <= ?", (through,)
            ).fetchone()
            self._relaxed.execute("DELETE FROM batch WHERE id <= ?", (through,))
        self._bytes -= size or 0
        self._waiting -= samples or 0


def _connect(path: Path, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS_MAX, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _pack(samples: Sequence[Sample]) -> bytes:
    rows = [(s.job_id, s.task, s.metric, s.at_ms, s.value, s.card, s.labels) for s in samples]
    return bytes(cramjam.snappy.compress_raw(_encode(rows)))


def _unpack(number: int, body: bytes) -> list[Sample]:
    try:
        rows: Any = _decode(bytes(cramjam.snappy.decompress_raw(body)))
    except (msgspec.DecodeError, cramjam.DecompressionError):
        log.error("batch %d of the queue to the metric store is damaged and left out", number)  # noqa: TRY400
        return []
    return [Sample(*row) for row in rows]
