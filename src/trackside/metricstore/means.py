"""Answers what series come to, step by step, where steps are of whole minutes; writes nothing.

Sums come from the rollups of blocks and from what is in memory, and are added up. Where both might tell the
same sample, and where the window cuts through a minute that has samples, the samples themselves are counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trackside.domain.metric import MINUTE_MS
from trackside.metricstore.columns import Floats, Ints
from trackside.metricstore.exact import exact
from trackside.metricstore.head import View
from trackside.metricstore.layout import SPAN_MINUTES, SPAN_MS
from trackside.metricstore.parts import Part, add_steps, apart, parts_of
from trackside.metricstore.remembered import NEVER_MS, Remembered
from trackside.metricstore.selection import Place, Selection
from trackside.metricstore.somerollup import ABSENT, Counts, SomeRollup
from trackside.metricstore.table import Flat, Table, Window

CELLS_MAX = 1 << 22  # of one table, 64 MB; more series are answered some at a time


@dataclass(slots=True, eq=False)
class _Span:
    """What there is of one span."""

    number: int
    own: Window  # what of the window lies in it
    blocks: list[tuple[Place, SomeRollup | None]]
    parts: list[Part]

    def __bool__(self) -> bool:
        return bool(self.parts) or any(rollup for _, rollup in self.blocks)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where answers are taken from: the blocks of one snapshot and what was in memory before it."""

    blocks: Remembered
    view: View
    floor_ms: int  # of older samples there is only the rollup

    def means(self, chosen: Selection, window: Window) -> Iterator[tuple[Selection, Ints, Flat]]:
        """Yield some of the series, their steps, and their means, until all were told."""
        spans = self._spans(window)
        steps = min(window.steps, len(spans) * (SPAN_MS // window.step_ms + 2))
        many = max(1, CELLS_MAX // max(1, steps))
        for first in range(0, len(chosen), many):
            some = chosen.some(first, first + many)
            yield some, *self._some(some, window, spans)

    def _spans(self, window: Window) -> list[int]:
        first, last = window.start_ms // SPAN_MS, (window.end_ms - 1) // SPAN_MS
        listed = self.blocks.blocks.rollup_spans(first, last)
        if len(listed) == last - first + 1:
            return listed
        recent = self.view.spans(max(window.start_ms, self.floor_ms), window.end_ms)
        return sorted({*listed, *recent})

    def _some(self, some: Selection, window: Window, spans: Sequence[int]) -> tuple[Ints, Flat]:
        found = [self._span(span, some, window.inside(span)) for span in spans]
        found = [span for span in found if span]
        if len(found) == 1:
            told = _of_one_block(found[0])
            if told is not None:
                return told
        table = Table(len(some), [span.own for span in found])
        for number, span in enumerate(found):
            own = span.own
            if self._adds_up(span, len(some)):
                count, total = table.of(number)
                for place, rollup in span.blocks:
                    if rollup is not None:
                        _add_block(place, rollup, own, count, total)
                for part in span.parts:
                    add_steps(part, own.step_ms, own.first_step, count, total)
            else:
                cells = exact(self.blocks.blocks, self.view, some.ids, own, self.floor_ms)
                table.add_cells(some.ids, cells)
        return table.steps, table.flat()

    def _span(self, span: int, some: Selection, own: Window) -> _Span:
        rollups = self.blocks.rollups(some.groups, span)
        start = max(own.start_ms, self.floor_ms)
        parts = parts_of(self.view, some, start, own.end_ms) if start < own.end_ms else []
        return _Span(span, own, list(zip(some.places, rollups, strict=True)), parts)

    def _adds_up(self, span: _Span, series: int) -> bool:
        """Say whether sums of blocks and of memory, added, count every sample of the window once."""
        own = span.own
        if not (span.parts or own.start_ms % MINUTE_MS or own.end_ms % MINUTE_MS):
            return True
        ended = self._ended(span, series)
        if ended is None:
            return False
        if own.start_ms % MINUTE_MS and (ended >= own.start_ms // MINUTE_MS * MINUTE_MS).any():
            return False
        if own.end_ms % MINUTE_MS and (ended >= own.end_ms).any():
            return False
        return apart(span.parts, ended)

    def _ended(self, span: _Span, series: int) -> Ints | None:
        """Return the time of the newest sample that blocks have of each series; None if they cannot tell."""
        ended = np.full(series, NEVER_MS)
        newest = self.blocks.newest([place.group for place, _ in span.blocks], span.number)
        for (place, rollup), times in zip(span.blocks, newest, strict=True):
            if times is None:
                return None
            ended[place.rows] = times.at_ms[place.slots]
            if rollup is None and (ended[place.rows] != NEVER_MS).any():
                return None
        return ended


def _of_one_block(span: _Span) -> tuple[Ints, Flat] | None:
    """Return what one block alone tells of whole minutes, if it tells every step of every series.

    This is what small questions come to, and there is nothing to add up.
    """
    own = span.own
    if span.parts or len(span.blocks) != 1 or own.start_ms % MINUTE_MS or own.end_ms % MINUTE_MS:
        return None
    ((place, rollup),) = span.blocks
    if rollup is None:
        return None
    where, whole = rollup.places(place.slots, place.slot_last)
    if not whole:
        return None
    counts, sums = _binned(rollup, where, own)
    if not counts.all():
        return None
    sizes = np.full(len(where), own.steps)
    return np.arange(own.first_step, own.last_step + 1), Flat(sizes, None, (sums / counts).ravel())


def _add_block(place: Place, rollup: SomeRollup, own: Window, count: Ints, total: Floats) -> None:
    """Add the minutes of a rollup that are in the window; the tables' first column is its first step."""
    where, whole = rollup.places(place.slots, place.slot_last)
    rows: slice | Ints = place.rows
    if not whole:
        rows = np.flatnonzero(where != ABSENT) + place.rows.start
        where = where[where != ABSENT]
        if not len(where):
            return
    counts, sums = _binned(rollup, where, own)
    count[rows] += counts
    total[rows] += sums


def _binned(rollup: SomeRollup, where: Ints, own: Window) -> tuple[Ints | Counts, Floats]:
    minutes = own.step_ms // MINUTE_MS
    base = own.start_ms // SPAN_MS * SPAN_MINUTES
    first, last = own.start_ms // MINUTE_MS - base, -(-own.end_ms // MINUTE_MS) - base
    if SPAN_MINUTES % minutes == 0 and first % minutes == 0 and last % minutes == 0:
        counts, sums = rollup.steps(where, minutes)
        if last - first == SPAN_MINUTES:
            return counts, sums
        inside = slice(first // minutes, last // minutes)
        return counts[:, inside], sums[:, inside]
    starts = np.flatnonzero(np.diff((np.arange(first, last) + base) // minutes, prepend=-1))
    counts = np.add.reduceat(rollup.count[where, first:last], starts, axis=1, dtype=np.int64)
    return counts, np.add.reduceat(rollup.total(where)[:, first:last], starts, axis=1)
