"""Removes what is too old or was forgotten, a little at a time, and gives its space back."""

from collections.abc import Callable

import numpy as np

from trackside.domain.metric import MINUTE_MS
from trackside.metricstore import rollup
from trackside.metricstore.blocks import Blocks
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.decoded import Decoded
from trackside.metricstore.layout import SPAN_MS, block_group, block_row, block_span
from trackside.metricstore.remembered import KINDS
from trackside.metricstore.samples import summed

JOBS_PER_TRANSACTION = 256
ROWS_PER_TRANSACTION = 64  # so that an append never waits long
PAGES_PER_TURN = 1024


class Retention:
    """Keeps the file from growing for ever. Its caller sees to it that only one runs at a time."""

    def __init__(self, database: Database, damage: Damage, decoded: Decoded) -> None:
        self._database = database
        self._damage = damage
        self._decoded = decoded

    def expire(self, *, raw_before_ms: int, rollups_before_ms: int) -> None:
        """Remove raw blocks that end before a time, their extremes kept in the rollups; and old rollups."""
        self._remove("rollup", block_row(rollups_before_ms // SPAN_MS, 0))
        self._remove("raw", block_row(rollups_before_ms // SPAN_MS, 0))
        while rows := self._oldest_raw(block_row(raw_before_ms // SPAN_MS, 0)):
            full = [(row, data) for row in rows if (data := self._full(row)) is not None]
            with self._decoded.changing(rows, *KINDS), self._database.transaction() as writer:
                writer.executemany("INSERT OR REPLACE INTO rollup VALUES (?, ?)", full)
                writer.executemany("DELETE FROM raw WHERE id = ?", [(row,) for row in rows])

    def ended_before(self, before_ms: int) -> list[str]:
        """Return the jobs that have no sample since then."""
        with self._database.snapshot() as connection:
            found = connection.execute(
                "SELECT name FROM job WHERE last_span < ? AND name IS NOT NULL", (before_ms // SPAN_MS,)
            )
            return [name for (name,) in found.fetchall()]

    def purge(self) -> None:
        """Remove what is left of forgotten jobs."""
        while jobs := self._forgotten():
            rows = [row for job in jobs for row in self._blocks_of(*job)]
            for first in range(0, len(rows), ROWS_PER_TRANSACTION):
                some = [(row,) for row in rows[first : first + ROWS_PER_TRANSACTION]]
                with self._database.transaction() as writer:
                    writer.executemany("DELETE FROM raw WHERE id = ?", some)
                    writer.executemany("DELETE FROM rollup WHERE id = ?", some)
            with self._database.transaction() as writer:
                numbers = [(number,) for number, _, _ in jobs]
                writer.executemany("DELETE FROM series_group WHERE job = ?", numbers)
                writer.executemany("DELETE FROM job WHERE id = ?", numbers)

    def shrink(self, stop: Callable[[], bool]) -> None:
        """Give free pages back to the disk."""
        free = self._database.give_back(PAGES_PER_TURN)
        while free and not stop():
            before, free = free, self._database.give_back(PAGES_PER_TURN)
            if free >= before:
                return  # a reader still needs them

    def _forgotten(self) -> list[tuple[int, int, int]]:
        with self._database.snapshot() as connection:
            return connection.execute(
                "SELECT id, first_span, last_span FROM job WHERE name IS NULL LIMIT ?",
                (JOBS_PER_TRANSACTION,),
            ).fetchall()

    def _blocks_of(self, job: int, first: int, last: int) -> list[int]:
        """Return the rows at which a job may have blocks."""
        with self._database.snapshot() as connection:
            groups = connection.execute("SELECT id FROM series_group WHERE job = ?", (job,)).fetchall()
            spans = Blocks(connection, self._damage).rollup_spans(first, last)
        return [block_row(span, group) for span in spans for (group,) in groups]

    def _oldest_raw(self, before_row: int) -> list[int]:
        with self._database.snapshot() as connection:
            found = connection.execute(
                "SELECT id FROM raw WHERE id < ? ORDER BY id LIMIT ?", (before_row, ROWS_PER_TRANSACTION)
            )
            return [row for (row,) in found.fetchall()]

    def _full(self, row: int) -> bytes | None:
        """Return the rollup of a raw block with its extremes; None if the raw block is damaged."""
        where = np.array([block_group(row)]), [block_span(row)]
        with self._database.snapshot() as connection:
            blocks = Blocks(connection, self._damage)
            for samples in blocks.raw(*where):
                made = rollup.of_cells(row, summed(samples, MINUTE_MS, extremes=True))
                for _, stored in blocks.rollups(*where, extremes=True):
                    made = rollup.overlaid(stored, made)
                return rollup.encode(row, made)
        return None

    def _remove(self, table: str, before_row: int) -> None:
        statement = f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE id < ? LIMIT ?)"  # noqa: S608
        removed = ROWS_PER_TRANSACTION
        while removed == ROWS_PER_TRANSACTION:
            with self._decoded.changing(None), self._database.transaction() as writer:
                removed = writer.execute(statement, (before_row, ROWS_PER_TRANSACTION)).rowcount
