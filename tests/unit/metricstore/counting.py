"""Counts the instructions of SQLite: they grow with what is searched through, on any machine."""

import sqlite3

from trackside.metricstore.database import Database


class Counting(Database):
    """A file whose connections count."""

    instructions = 0

    def _connect(self) -> sqlite3.Connection:
        def one() -> int:
            type(self).instructions += 1
            return 0

        made = super()._connect()
        made.set_progress_handler(one, 1)
        return made
