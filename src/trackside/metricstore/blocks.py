"""Reads blocks of the file; a damaged one is reported and left out."""

import json
from collections.abc import Iterable, Iterator, Sequence

from trackside.metricstore import rawblock, rollup
from trackside.metricstore.columns import Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.layout import ROW_BITS, block_row, block_span
from trackside.metricstore.rollup import Rollup
from trackside.metricstore.samples import Samples
from trackside.metricstore.sealed import BlockDamaged
from trackside.metricstore.snapshot import Asks

SPANS_LISTED = 64  # a longer window is first asked which of its spans have blocks at all

_SPANS = """
WITH RECURSIVE found (span) AS (
    SELECT min(id) >> :bits FROM {table} WHERE id >= :first << :bits
    UNION ALL
    SELECT (SELECT min(id) >> :bits FROM {table} WHERE id >= (span + 1) << :bits)
    FROM found WHERE span < :last
)
SELECT span FROM found WHERE span <= :last
"""


class Blocks:
    """The blocks as one snapshot has them."""

    def __init__(self, snapshot: Asks, damage: Damage) -> None:
        self._snapshot = snapshot
        self.damage = damage

    def raw(self, groups: Ints, spans: Iterable[int]) -> Iterator[Samples]:
        """Yield the raw blocks of groups of some spans."""
        for row, data in self._rows("raw", groups, spans):
            try:
                yield rawblock.decode(row, data)
            except BlockDamaged as error:
                self.damage.report("raw", row, error)

    def rollups(self, groups: Ints, spans: Iterable[int], *, extremes: bool) -> Iterator[tuple[int, Rollup]]:
        """Yield rows and rollups of groups of some spans."""
        for row, data in self._rows("rollup", groups, spans):
            try:
                yield row, rollup.decode(row, data, extremes=extremes)
            except BlockDamaged as error:
                self.damage.report("rollup", row, error)

    def raw_spans(self, first: int, last: int) -> list[int]:
        """Return the spans from one to another, the last included, that may have raw blocks."""
        return self._spans("raw", first, last)

    def rollup_spans(self, first: int, last: int) -> list[int]:
        """Return the spans from one to another, the last included, that may have rollups."""
        return self._spans("rollup", first, last)

    def oldest_raw_span(self) -> int | None:
        """Return the first span of which there are raw samples."""
        (row,) = self._snapshot.execute("SELECT min(id) FROM raw").fetchone()
        return None if row is None else block_span(row)

    def _spans(self, table: str, first: int, last: int) -> list[int]:
        if last - first < SPANS_LISTED:
            return list(range(first, last + 1))
        asked = {"bits": ROW_BITS, "first": first, "last": last}
        return [span for (span,) in self._snapshot.execute(_SPANS.format(table=table), asked)]

    def stored(self, table: str, rows: Sequence[int]) -> list[tuple[int, bytes]]:
        """Return those of some rows that there are, with what is stored there."""
        statement = f"SELECT id, data FROM {table} WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608
        return self._snapshot.execute(statement, (json.dumps(rows),)).fetchall()

    def _rows(self, table: str, groups: Ints, spans: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        numbers = groups.tolist()
        for span in spans:
            yield from self.stored(table, [block_row(span, group) for group in numbers])
