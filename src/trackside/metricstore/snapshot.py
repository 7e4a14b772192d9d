"""One state of the file for one question; knows no tables."""

import sqlite3
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol

from trackside.metricstore.database import Database


class Asks(Protocol):
    """What can be asked in SQL: a connection, or a snapshot that may not have been taken yet."""

    def execute(self, sql: str, parameters: Any = ..., /) -> sqlite3.Cursor:
        """Ask."""
        ...


class Snapshot:
    """A snapshot that is taken when the file is first asked: most questions are answered without it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._taken: ExitStack | None = None
        self._connection: sqlite3.Connection | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Ask; all questions see one state."""
        if self._connection is None:
            self._taken = ExitStack()
            self._connection = self._taken.enter_context(self._database.snapshot())
        return self._connection.execute(sql, parameters)

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._taken is not None:
            self._taken.close()
