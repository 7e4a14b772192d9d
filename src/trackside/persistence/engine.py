"""Knows how to reach each database and what its errors mean; knows no table."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool, QueuePool

from trackside.domain.errors import Invalid, TracksideError, Unavailable

BUSY_TIMEOUT_MS = 10_000  # how long a write waits for another process
CONNECT_TIMEOUT_SECONDS = 5
READERS_MAX = 4
WAL_RETRY_SECONDS = 0.02
FILE_MODE = 0o600

POSTGRES_NAMES = frozenset({"postgres", "postgresql", "postgresql+psycopg"})
SQLITE_NAMES = frozenset({"sqlite", "sqlite+pysqlite"})
# Raised while a statement's values are handed over: the values are at fault, not the database.
BAD_VALUES = (DataError, IntegrityError, OverflowError, UnicodeError)

_SQLITE_PRAGMAS = (
    "synchronous=FULL",  # a commit returns when the disk has it
    "foreign_keys=ON",
    "cache_size=-32768",  # KiB per connection, used only as the file grows
    "mmap_size=268435456",  # bytes that reads take straight from the kernel's cache
)
# A vanished server is noticed within seconds, not by the kernel's default of many minutes.
_POSTGRES_ARGUMENTS = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,  # milliseconds
}
_POSTGRES_WRITER = (
    # A server may be configured to acknowledge before the disk has it; a returned write must be durable.
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'",
    f"SET lock_timeout = {BUSY_TIMEOUT_MS}",
)


def parse_url(text: str) -> URL:
    """Return the database's address, or raise Invalid without repeating what may be a password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise Invalid("the database URL is not valid: use sqlite:///PATH or postgresql://…") from None
    if url.drivername in SQLITE_NAMES:
        if not url.database or url.database == ":memory:":
            raise Invalid("the database URL names no file: use sqlite:///PATH")
        return url
    if url.drivername in POSTGRES_NAMES:
        return url.set(drivername="postgresql+psycopg")
    raise Invalid(f"the database {url.drivername!r} is not known: use sqlite:///PATH or postgresql://…")


def writer_engine(url: URL) -> Engine:
    """Return the engine of the one connection that writes."""
    return _sqlite(url, writes=True) if _is_sqlite(url) else _postgres(url, writes=True)


def reader_engine(url: URL) -> Engine:
    """Return the engine whose transactions see one snapshot and can change nothing."""
    return _sqlite(url, writes=False) if _is_sqlite(url) else _postgres(url, writes=False)


def prepare_file(url: URL) -> None:
    """Create a missing SQLite file for its owner only; the files beside it inherit the mode."""
    if not _is_sqlite(url):
        return
    path = Path(str(url.database))
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE))
    except FileExistsError:
        return
    except OSError as error:
        raise Unavailable(f"the database file {path} cannot be created: {error.strerror}") from None


def translate(error: Exception, url: URL) -> TracksideError:
    """Return what a failed statement means to the caller, with no password and no values in it."""
    if isinstance(error, BAD_VALUES):
        return Invalid("the database refuses these values")
    cause = getattr(error, "orig", None) or error
    text = str(cause).strip().partition("\n")[0]
    return Unavailable(f"the database cannot be used right now: {_scrub(text, url)}")


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Turn the errors of the database inside into those of the domain."""
    try:
        yield
    except (DBAPIError, PoolTimeout, *BAD_VALUES) as error:
        raise translate(error, url) from None


def _is_sqlite(url: URL) -> bool:
    return url.drivername in SQLITE_NAMES


def _scrub(text: str, url: URL) -> str:
    password = None if url.password is None else str(url.password)
    return text.replace(password, "***") if password else text


def _pool(writes: bool) -> dict[str, Any]:
    """Keep connections for readers (one is for reads on the event loop); the writer keeps its own."""
    return {"poolclass": NullPool} if writes else {"poolclass": QueuePool, "pool_size": READERS_MAX + 1}


def _sqlite(url: URL, *, writes: bool) -> Engine:
    engine = create_engine(
        url,
        hide_parameters=True,
        **_pool(writes),
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        if writes:
            _use_wal(connection)
        for pragma in (*_SQLITE_PRAGMAS, f"query_only={'OFF' if writes else 'ON'}"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; while another process does the same, SQLite does not wait by itself."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(WAL_RETRY_SECONDS)
        else:
            return


def _postgres(url: URL, *, writes: bool) -> Engine:
    snapshot: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    try:
        engine = create_engine(
            url,
            hide_parameters=True,
            **_pool(writes),
            pool_pre_ping=True,
            connect_args=_POSTGRES_ARGUMENTS,
            execution_options={} if writes else snapshot,
        )
    except ModuleNotFoundError:
        raise Invalid("PostgreSQL needs its driver: pip install 'trackside[postgres]'") from None
    if writes:

        @event.listens_for(engine, "connect")
        def prepare(connection: Any, _: object) -> None:
            for statement in _POSTGRES_WRITER:
                connection.execute(statement)
            connection.commit()

    return engine
