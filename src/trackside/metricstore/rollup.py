"""Knows the one-minute rollup of one group of series over one span, and how it becomes a block and back.

Sections: slots u8 · counts of all minutes, slot by slot · the four sections of the sums over the minutes that
have samples, a segment for each slot. A full rollup has the lowest and the highest too, four sections each;
while the raw samples are kept these are read from them, and the rollup is made full when they go.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from trackside.metricstore import columns, sealed
from trackside.metricstore.columns import WHOLE_MAX, Bools, Bytes, Floats, Ints
from trackside.metricstore.layout import GROUP_BITS, SPAN_MINUTES, block_group, block_span
from trackside.metricstore.samples import Cells

SLOTS, COUNTS, TOTAL, _LOW, _HIGH, _END = 0, 1, 2, 6, 10, 14
Column = TypeVar("Column", Ints, Floats)

_NO_NUMBER: Floats = np.full(1, np.nan)
ROUNDING = 4e-16  # what one addition of floats may be off by, relative, with room


@dataclass(frozen=True, slots=True, eq=False)
class Rollup:
    """Slots by minutes: how many samples and their sum; lowest and highest if it is full. Count 0: none."""

    slots: Bytes
    count: Ints
    total: Floats
    low: Floats | None = None
    high: Floats | None = None


def of_cells(row: int, cells: Cells) -> Rollup:
    """Return minute cells of one group and span as a rollup, full if the cells tell extremes."""
    own = (cells.ids - (block_group(row) << GROUP_BITS)).astype(np.uint8)
    slots = np.unique(own)
    where = (np.searchsorted(slots, own), cells.steps - block_span(row) * SPAN_MINUTES)
    return Rollup(
        slots,
        _placed(slots, where, cells.count, np.zeros(1, np.int64)),
        _placed(slots, where, cells.total, np.zeros(1)),
        None if cells.low is None else _placed(slots, where, cells.low, _NO_NUMBER),
        None if cells.high is None else _placed(slots, where, cells.high, _NO_NUMBER),
    )


def overlaid(old: Rollup, new: Rollup) -> Rollup:
    """Return the old rollup with the minutes that the new one has in their place, full if the new one is.

    A minute that only an old rollup without extremes has keeps none: they are not numbers.
    """
    slots = np.union1d(old.slots, new.slots)
    shape = (len(slots), SPAN_MINUTES)
    count, total = np.zeros(shape, np.int64), np.zeros(shape)
    extremes = [np.full(shape, np.nan) for _ in range(2)] if new.low is not None else []
    for layer in (old, new):
        index, minute = np.nonzero(layer.count)
        where = (np.searchsorted(slots, layer.slots)[index], minute)
        count[where], total[where] = layer.count[index, minute], layer.total[index, minute]
        for made, given in zip(extremes, (layer.low, layer.high), strict=False):
            made[where] = np.nan if given is None else given[index, minute]
    return Rollup(slots, count, total, *extremes)


def encode(row: int, rollup: Rollup) -> bytes:
    """Return a rollup as a block."""
    present = rollup.count > 0
    parts = columns.segments(present.sum(axis=1))
    cells = rollup.total[present]
    decimals = _decimals(cells, rollup.count[present], parts)
    sections = [rollup.slots.tobytes(), columns.pack(rollup.count.ravel())]
    sections += columns.pack_values(cells, decimals, parts)
    for extreme in (rollup.low, rollup.high):
        if extreme is not None:
            sections += columns.pack_values(
                extreme[present], columns.decimals_of(extreme[present], parts), parts
            )
    return sealed.seal(sealed.ROLLUP, row, sections)


def decode(row: int, data: bytes, *, extremes: bool = False) -> Rollup:
    """Return the rollup of a block; lowest and highest if they are wanted and there."""
    sections = sealed.unseal(sealed.ROLLUP, row, data)
    slots = np.frombuffer(sections[SLOTS], np.uint8)
    count = columns.unpack_ints(sections[COUNTS]).reshape(len(slots), SPAN_MINUTES)
    present = count > 0
    parts = columns.segments(present.sum(axis=1))
    full = extremes and len(sections) == _END
    ends = (TOTAL, _LOW, _HIGH, _END) if full else (TOTAL, _LOW)
    found = []
    for first, last in pairwise(ends):
        cells = columns.unpack_values(sections[first:last], parts)
        if len(cells) == count.size:
            found.append(cells.reshape(count.shape))
            continue
        found.append(np.zeros(count.shape))
        found[-1][present] = cells
    return Rollup(slots, count, *found)


def _placed(slots: Bytes, where: tuple[Ints, Ints], cells: Column, blank: Column) -> Column:
    made = np.repeat(blank, len(slots) * SPAN_MINUTES).reshape(len(slots), SPAN_MINUTES)
    made[where] = cells
    return made


def _decimals(totals: Floats, count: Ints, parts: columns.Segments) -> Bytes:
    """Return, per segment, how few decimals tell its sums, within what adding floats may be off by."""

    def exact(where: columns.Where, powers: Floats) -> Bools:
        scaled = totals[where] * powers
        size = np.abs(scaled)
        told: Bools = (np.abs(scaled - np.rint(scaled)) <= size * ROUNDING * count[where]) & (
            size < WHOLE_MAX
        )
        return told

    return columns.fewest_decimals(exact, parts)
