"""Moves samples from the tail into blocks; knows when nothing else may touch the blocks, and answers nothing.

A sample leaves the tail only when its block is on disk. A crash in between leaves it in both, which is
harmless: the same sample twice is one.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trackside.domain.metric import MINUTE_MS
from trackside.metricstore import rawblock, rollup, tail
from trackside.metricstore.blocks import Blocks
from trackside.metricstore.columns import Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.head import Head
from trackside.metricstore.layout import (
    GROUP_BITS,
    HOUR_MS,
    SPAN_MS,
    TIME_BITS,
    block_group,
    block_row,
    block_time,
)
from trackside.metricstore.samples import Cells, Samples, join, settled, summed

ROWS_PER_TRANSACTION = 128  # so that an append never waits long

_LIVE = "SELECT job FROM series_group JOIN job ON job.id = job WHERE series_group.id = ? AND name IS NOT NULL"


@dataclass(slots=True)
class _Made:
    """Blocks that wait to be written together."""

    raw: list[tuple[int, int, bytes]]
    rollups: list[tuple[int, int, bytes]]

    def __len__(self) -> int:
        return len(self.raw) + len(self.rollups)


class Compaction:
    """Makes blocks of what is in the head. Its caller sees to it that only one runs at a time."""

    def __init__(self, database: Database, head: Head, damage: Damage) -> None:
        self._database = database
        self._head = head
        self._damage = damage

    def run(self, *, floor_ms: int, until_ms: int) -> int:
        """Compact all samples before `until_ms`, dropping those before `floor_ms`; return how many."""
        with self._database.lock:
            frozen = self._head.freeze()
            last_seq = tail.last_seq(self._database.writer)
        try:
            waiting = settled(join(frozen))
            later = waiting.at_ms >= until_ms
            kept = waiting.where(later)
            moved = self._live(waiting.where(~later & (waiting.at_ms >= floor_ms)))
            self._write(moved)
            with self._database.transaction() as writer:
                tail.cut(writer, last_seq)
                if len(kept):
                    tail.append(writer, kept)
        except BaseException:
            with self._database.lock:
                self._head.restore()
            raise
        with self._database.lock:
            self._head.thaw(kept)
        return len(moved)

    def _live(self, moved: Samples) -> Samples:
        """Leave out the samples of jobs that were forgotten."""
        groups = moved.ids >> GROUP_BITS
        with self._database.snapshot() as connection:
            gone = [
                one for one in np.unique(groups).tolist() if not connection.execute(_LIVE, (one,)).fetchone()
            ]
        return moved.where(~np.isin(groups, gone)) if gone else moved

    def _write(self, moved: Samples) -> None:
        made = _Made([], [])
        last_hours: dict[int, int] = {}
        for rows in _by_span(moved):
            with self._database.snapshot() as connection:
                self._make(Blocks(connection, self._damage), rows, made)
            group, hour = block_group(made.raw[-1][0]), made.raw[-1][1]
            last_hours[group] = max(hour, last_hours.get(group, 0))
            if len(made) >= ROWS_PER_TRANSACTION:
                self._store(made, last_hours)
        if made.raw:
            self._store(made, last_hours)

    def _make(self, blocks: Blocks, rows: list[tuple[int, Samples]], made: _Made) -> None:
        """Make the raw blocks of one group's hours of one span, and its rollup."""
        parts: list[Cells] = []
        for row, added in rows:
            stored = blocks.raw(row)
            whole = added if stored is None else settled(join([stored, added]))
            made.raw.append((row, block_time(row), rawblock.encode(row, whole)))
            parts.append(summed(whole, MINUTE_MS))
        span = block_time(rows[0][0]) * HOUR_MS // SPAN_MS
        row = block_row(block_group(rows[0][0]), span)
        fresh = rollup.of_cells(row, parts)
        stored_rollup = blocks.rollup(row)
        if stored_rollup is not None:
            fresh = rollup.overlaid(stored_rollup, fresh)
        made.rollups.append((row, span, rollup.encode(row, fresh)))

    def _store(self, made: _Made, last_hours: dict[int, int]) -> None:
        with self._database.transaction() as writer:
            writer.executemany("INSERT OR REPLACE INTO raw VALUES (?, ?, ?)", made.raw)
            writer.executemany("INSERT OR REPLACE INTO rollup VALUES (?, ?, ?)", made.rollups)
            _note_hours(writer, last_hours)
        made.raw.clear()
        made.rollups.clear()
        last_hours.clear()


def _note_hours(writer: sqlite3.Connection, last_hours: dict[int, int]) -> None:
    writer.executemany(
        "UPDATE job SET last_hour = ?1 WHERE last_hour < ?1"
        " AND id = (SELECT job FROM series_group WHERE id = ?2)",
        [(hour, group) for group, hour in last_hours.items()],
    )


def _by_span(moved: Samples) -> Iterator[list[tuple[int, Samples]]]:
    """Yield the samples of each group and span: rows of raw blocks and what is to go into them."""
    if not len(moved):
        return
    rows: Ints = (moved.ids >> GROUP_BITS << TIME_BITS) | (moved.at_ms // HOUR_MS)
    order = np.argsort(rows, kind="stable")
    moved, rows = moved.where(order), rows[order]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    ends = np.append(starts[1:], len(rows))
    pending: list[tuple[int, Samples]] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        row = int(rows[start])
        if pending and _span_of(row) != _span_of(pending[0][0]):
            yield pending
            pending = []
        pending.append((row, moved.where(slice(start, end))))
    yield pending


def _span_of(row: int) -> tuple[int, int]:
    return block_group(row), block_time(row) * HOUR_MS // SPAN_MS
