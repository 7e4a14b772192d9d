"""Reads blocks of the file; a damaged one is reported and left out."""

import sqlite3
from collections.abc import Iterable, Iterator

from trackside.metricstore import rawblock, rollup
from trackside.metricstore.columns import Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.layout import block_row
from trackside.metricstore.rollup import Rollup
from trackside.metricstore.samples import Samples
from trackside.metricstore.sealed import BlockDamaged


class Blocks:
    """The blocks as one connection sees them."""

    def __init__(self, connection: sqlite3.Connection, damage: Damage) -> None:
        self._connection = connection
        self._damage = damage

    def raw_hours(self, groups: Ints, first: int, last: int) -> Iterator[Samples]:
        """Yield the raw blocks of groups from one hour to another, the last included."""
        for group in groups.tolist():
            yield from self._raw("id BETWEEN ? AND ?", block_row(group, first), block_row(group, last))

    def raw_newest_first(self, group: int, first: int, last: int) -> Iterator[Samples]:
        """Yield the raw blocks of a group from its newest hour back."""
        where = "id BETWEEN ? AND ? ORDER BY id DESC"
        yield from self._raw(where, block_row(group, first), block_row(group, last))

    def raw_of(self, groups: Ints, hours: Iterable[int]) -> Iterator[Samples]:
        """Yield the raw blocks of groups of some hours."""
        for group in groups.tolist():
            for hour in hours:
                yield from self._raw("id = ?", block_row(group, hour))

    def raw(self, row: int) -> Samples | None:
        """Return one raw block."""
        return next(self._raw("id = ?", row), None)

    def rollups(self, groups: Ints, first: int, last: int, *, extremes: bool) -> Iterator[tuple[int, Rollup]]:
        """Yield rows and rollups of groups from one span to another, the last included."""
        for group in groups.tolist():
            rows = block_row(group, first), block_row(group, last)
            yield from self._rollup("id BETWEEN ? AND ?", *rows, extremes=extremes)

    def rollup(self, row: int) -> Rollup | None:
        """Return one rollup."""
        return next((found for _, found in self._rollup("id = ?", row, extremes=True)), None)

    def oldest_raw_hour(self) -> int | None:
        """Return the first hour of which there are raw samples."""
        (hour,) = self._connection.execute("SELECT min(hour) FROM raw").fetchone()
        return None if hour is None else int(hour)

    def _raw(self, where: str, *rows: int) -> Iterator[Samples]:
        for row, data in self._connection.execute(f"SELECT id, data FROM raw WHERE {where}", rows):  # noqa: S608
            try:
                yield rawblock.decode(row, data)
            except BlockDamaged as error:
                self._damage.report("raw", row, error)

    def _rollup(self, where: str, *rows: int, extremes: bool) -> Iterator[tuple[int, Rollup]]:
        found = self._connection.execute(f"SELECT id, data FROM rollup WHERE {where}", rows)  # noqa: S608
        for row, data in found:
            try:
                yield row, rollup.decode(row, data, extremes=extremes)
            except BlockDamaged as error:
                self._damage.report("rollup", row, error)
