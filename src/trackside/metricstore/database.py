"""Knows the tables of the file and how connections to it are had; knows no content of a block.

One connection writes, behind a lock; a reader borrows a connection of its own and, in WAL mode, waits for
nobody.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trackside.domain.errors import Invalid

FORMAT = 4  # 3 had the tail in a table, 2 was never released, 1 was one row per sample
BUSY_MS_MAX = 10_000  # how long to wait for another process that has the file
PAGE_BYTES = 2048  # half a page is lost per block
WAL_BYTES_KEPT = 16 * 1024 * 1024

_SCHEMA = """
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,             -- NULL: forgotten, its blocks are still to be removed
    series INTEGER NOT NULL,      -- how many it has; grows only
    first_span INTEGER NOT NULL,  -- where its blocks begin
    last_span INTEGER NOT NULL    -- and end
);
CREATE INDEX job_by_span ON job (last_span);
CREATE TABLE series_group (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job INTEGER NOT NULL,
    names BLOB NOT NULL           -- what its series are called, by slot
);
CREATE INDEX group_by_job ON series_group (job);
CREATE TABLE raw (
    id INTEGER PRIMARY KEY,       -- span of four hours << 32 | group
    data BLOB NOT NULL
);
CREATE TABLE rollup (
    id INTEGER PRIMARY KEY,       -- as above
    data BLOB NOT NULL
);
"""


class Database:
    """The file: one writer, many readers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lock = threading.RLock()  # whoever writes holds it
        # Threads come and go, so a reader borrows a connection instead of owning one per thread.
        self._idle: deque[sqlite3.Connection] = deque()
        self.writer = self._connect()
        try:
            _prepare(self.writer)
        except BaseException:
            self.writer.close()
            raise

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write, alone; what was written is on disk when this ends."""
        with self.lock:
            self.writer.execute("BEGIN IMMEDIATE")
            try:
                yield self.writer
                self.writer.execute("COMMIT")
            except BaseException:
                if self.writer.in_transaction:
                    self.writer.execute("ROLLBACK")
                raise

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Read: all that is asked in here sees one state."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("ROLLBACK")
            self._idle.append(connection)

    @property
    def has_tail(self) -> bool:
        """Say whether the file is of format 3, whose tail is to be taken over."""
        return bool(self.writer.execute("SELECT 1 FROM sqlite_master WHERE name = 'tail'").fetchone())

    def drop_tail(self) -> None:
        """Make a file of format 3 one of this format; its tail was taken over."""
        with self.transaction() as writer:
            writer.execute("DROP TABLE tail")
            writer.execute(f"PRAGMA user_version = {FORMAT}")

    def give_back(self, pages: int) -> int:
        """Shorten the file by up to so many free pages; return how many are still free."""
        with self.lock:
            self.writer.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
            (free,) = self.writer.execute("PRAGMA freelist_count").fetchone()
        return int(free)

    def close(self) -> None:
        """Close all connections; no other thread may be using the file any longer."""
        with self.lock:
            while self._idle:
                self._idle.pop().close()
            self.writer.close()

    def _connect(self) -> sqlite3.Connection:
        # Transactions are ours to begin (isolation_level None). A connection changes threads, but is never
        # used by two at once.
        return sqlite3.connect(
            self._path, timeout=BUSY_MS_MAX / 1000, isolation_level=None, check_same_thread=False
        )


def format_of(path: Path) -> int:
    """Return the format of a file; 0 if there is none yet."""
    if not path.exists() or not path.stat().st_size:
        return 0
    connection = sqlite3.connect(path)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if not version and connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sample'").fetchone():
            return 1  # the first format did not say
        return int(version)
    finally:
        connection.close()


def _prepare(writer: sqlite3.Connection) -> None:
    writer.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    writer.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only heeded before the first table
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA synchronous = FULL")
    writer.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES_KEPT // PAGE_BYTES}")
    writer.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    (version,) = writer.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise Invalid(f"the metrics file is of format {version}; this program knows formats up to {FORMAT}")
    if version == 0:
        writer.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
