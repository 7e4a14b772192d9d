"""Moves samples from the journal into blocks; knows when nothing else may touch these, and answers nothing.

A sample leaves the journal only when its block is on disk. A crash in between leaves it in both, which is
harmless: the same sample twice is one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from trackside.domain.metric import MINUTE_MS
from trackside.metricstore import rawblock, rollup, tail
from trackside.metricstore.blocks import Blocks
from trackside.metricstore.columns import Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.decoded import Decoded
from trackside.metricstore.head import EVER_MS, Head, View
from trackside.metricstore.layout import GROUP_BITS, SPAN_MS, block_group, block_row, block_span
from trackside.metricstore.remembered import KINDS
from trackside.metricstore.samples import Samples, join, settled, summed
from trackside.metricstore.writing import Writing

ROWS_PER_TRANSACTION = 64  # so that an append never waits long

_LIVE = "SELECT job FROM series_group JOIN job ON job.id = job WHERE series_group.id = ? AND name IS NOT NULL"
_NOTE_SPAN = """
UPDATE job SET first_span = min(first_span, ?1), last_span = max(last_span, ?1)
WHERE id = (SELECT job FROM series_group WHERE id = ?2) AND NOT ?1 BETWEEN first_span AND last_span
"""


@dataclass(slots=True)
class _Made:
    """Blocks that wait to be written together."""

    raw: list[tuple[int, bytes]]
    rollups: list[tuple[int, bytes]]


class Compaction:
    """Makes blocks of what is in the head. Its caller sees to it that only one runs at a time."""

    def __init__(
        self, database: Database, writing: Writing, head: Head, damage: Damage, decoded: Decoded
    ) -> None:
        self._database = database
        self._writing = writing
        self._head = head
        self._damage = damage
        self._decoded = decoded

    def run(self, *, floor_ms: int, until_ms: int) -> int:
        """Compact all samples before `until_ms`, dropping those before `floor_ms`; return how many."""
        with self._writing.lock:
            frozen = self._head.freeze()
            through = self._writing.journal.rotate()
        kept = (
            [frozen.of(every, until_ms) for every in _all_of(frozen.groups())] if until_ms < EVER_MS else []
        )
        moved = self._write(frozen, floor_ms, until_ms)
        still = settled(join([some for some in kept if len(some)]))
        with self._writing.lock:
            if len(still):
                self._writing.journal.append([tail.of_samples(still)])
            self._head.thaw(still)
            self._writing.journal.drop(through)
        return moved

    def _write(self, frozen: View, floor_ms: int, until_ms: int) -> int:
        """Make blocks of what was frozen, span by span, so that rows are written in order."""
        spans = frozen.spans(floor_ms, until_ms)
        groups = self._live(frozen.groups())
        made, moved = _Made([], []), 0
        for span in spans:
            start, end = max(span * SPAN_MS, floor_ms), min((span + 1) * SPAN_MS, until_ms)
            for group, ids in zip(groups, _all_of(groups), strict=True):
                added = frozen.of(ids, start, end)
                if not len(added):
                    continue
                moved += len(added)
                with self._database.snapshot() as connection:
                    self._make(Blocks(connection, self._damage), block_row(span, group), added, made)
                if len(made.raw) >= ROWS_PER_TRANSACTION:
                    self._store(made)
        if made.raw:
            self._store(made)
        return moved

    def _live(self, groups: list[int]) -> list[int]:
        """Leave out the groups of jobs that were forgotten."""
        with self._database.snapshot() as connection:
            return [one for one in groups if connection.execute(_LIVE, (one,)).fetchone()]

    def _make(self, blocks: Blocks, row: int, added: Samples, made: _Made) -> None:
        """Make the raw block of one group and span, and its rollup."""
        where = np.array([block_group(row)]), [block_span(row)]
        whole = settled(join([*blocks.raw(*where), added]))
        made.raw.append((row, rawblock.encode(row, whole)))
        fresh = rollup.of_cells(row, summed(whole, MINUTE_MS, extremes=False))
        for _, stored in blocks.rollups(*where, extremes=False):
            fresh = rollup.overlaid(stored, fresh)
        made.rollups.append((row, rollup.encode(row, fresh)))

    def _store(self, made: _Made) -> None:
        rows = [row for row, _ in made.raw]
        with self._decoded.changing(rows, *KINDS), self._database.transaction() as writer:
            writer.executemany("INSERT OR REPLACE INTO raw VALUES (?, ?)", made.raw)
            writer.executemany("INSERT OR REPLACE INTO rollup VALUES (?, ?)", made.rollups)
            writer.executemany(_NOTE_SPAN, [(block_span(row), block_group(row)) for row, _ in made.raw])
        made.raw.clear()
        made.rollups.clear()


def _all_of(groups: Iterable[int]) -> Iterator[Ints]:
    """Yield the numbers of all series of each group."""
    for group in groups:
        yield np.arange(group << GROUP_BITS, (group + 1) << GROUP_BITS)
