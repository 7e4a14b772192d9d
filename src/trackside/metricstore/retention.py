"""Removes what is too old or was forgotten, a little at a time, and gives its space back."""

from collections.abc import Callable

from trackside.metricstore.database import Database
from trackside.metricstore.layout import HOUR_MS, SPAN_MS, block_row

ROWS_PER_TRANSACTION = 256  # so that an append never waits long
PAGES_PER_TURN = 1024


class Retention:
    """Keeps the file from growing for ever. Its caller sees to it that only one runs at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def expire(self, *, raw_before_ms: int, rollups_before_ms: int) -> None:
        """Remove raw blocks and rollups that end before these times."""
        self._remove("raw", "hour < ?", raw_before_ms // HOUR_MS)
        self._remove("rollup", "span < ?", rollups_before_ms // SPAN_MS)

    def ended_before(self, before_ms: int) -> list[str]:
        """Return the jobs that have no sample since then."""
        with self._database.snapshot() as connection:
            found = connection.execute(
                "SELECT name FROM job WHERE last_hour < ? AND name IS NOT NULL", (before_ms // HOUR_MS,)
            )
            return [name for (name,) in found.fetchall()]

    def purge(self) -> None:
        """Remove what is left of forgotten jobs."""
        with self._database.snapshot() as connection:
            jobs = [row[0] for row in connection.execute("SELECT id FROM job WHERE name IS NULL").fetchall()]
        for job in jobs:
            with self._database.snapshot() as connection:
                rows = connection.execute("SELECT id FROM series_group WHERE job = ?", (job,)).fetchall()
            for (group,) in rows:
                for table in ("raw", "rollup"):
                    self._remove(
                        table, "id BETWEEN ? AND ?", block_row(group, 0), block_row(group + 1, 0) - 1
                    )
            with self._database.transaction() as writer:
                writer.execute("DELETE FROM series_group WHERE job = ?", (job,))
                writer.execute("DELETE FROM job WHERE id = ?", (job,))

    def shrink(self, stop: Callable[[], bool]) -> None:
        """Give free pages back to the disk."""
        free = self._database.give_back(PAGES_PER_TURN)
        while free and not stop():
            before, free = free, self._database.give_back(PAGES_PER_TURN)
            if free >= before:
                return  # a reader still needs them

    def _remove(self, table: str, where: str, *values: int) -> None:
        statement = f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {where} LIMIT ?)"  # noqa: S608
        removed = ROWS_PER_TRANSACTION
        while removed == ROWS_PER_TRANSACTION:
            with self._database.transaction() as writer:
                removed = writer.execute(statement, (*values, ROWS_PER_TRANSACTION)).rowcount
