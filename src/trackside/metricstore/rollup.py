"""Knows the one-minute rollup of one group of series over one span, and how it becomes a block and back.

Sections: slots u8 · decimals of each slot u8 · counts of all minutes, slot by slot · then, for each number of
decimals that occurs, ascending, three columns over the minutes that have samples: sum, mean less lowest,
highest less mean, in whole numbers (the mean rounded down); for binary slots sum, lowest, highest as such.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trackside.metricstore import columns, sealed
from trackside.metricstore.columns import BINARY, DECIMALS_MAX, ROUNDING, WHOLE_MAX, Bools, Floats, Ints
from trackside.metricstore.layout import GROUP_BITS, GROUP_SIZE, SPAN_MINUTES, block_group, block_time
from trackside.metricstore.samples import Cells

_SLOTS, _DECIMALS, _COUNTS, _COLUMNS = range(4)
COLUMNS_EACH = 3

Slots = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Rollup:
    """Slots by minutes: how many samples, their sum, the lowest and the highest; count 0 means none."""

    slots: Slots
    count: Ints
    total: Floats
    low: Floats
    high: Floats


def of_cells(row: int, parts: Sequence[Cells]) -> Rollup:
    """Return minute cells of one group and span as a rollup."""
    first_id, first_minute = block_group(row) << GROUP_BITS, block_time(row) * SPAN_MINUTES
    slots = np.unique(np.concatenate([part.ids for part in parts]) - first_id).astype(np.uint8)
    made = _blank(slots)
    for part in parts:
        where = (np.searchsorted(slots, part.ids - first_id), part.steps - first_minute)
        made.count[where], made.total[where] = part.count, part.total
        made.low[where], made.high[where] = part.low, part.high
    return made


def overlaid(old: Rollup, new: Rollup) -> Rollup:
    """Return the old rollup with the minutes that the new one has in their place."""
    slots = np.union1d(old.slots, new.slots)
    made = _blank(slots)
    for layer in (old, new):
        index, minute = np.nonzero(layer.count)
        where = (np.searchsorted(slots, layer.slots)[index], minute)
        for column in ("count", "total", "low", "high"):
            getattr(made, column)[where] = getattr(layer, column)[index, minute]
    return made


def encode(row: int, rollup: Rollup) -> bytes:
    """Return a rollup as a block."""
    present = rollup.count > 0
    decimals = _decimals(rollup, present)
    sections = [rollup.slots.tobytes(), decimals.tobytes(), columns.pack(rollup.count.ravel())]
    for kind in np.unique(decimals).tolist():
        rows = decimals == kind
        here = present[rows]
        cells = [part[rows][here] for part in (rollup.total, rollup.low, rollup.high)]
        sections += _packed(kind, rollup.count[rows][here], *cells)
    return sealed.seal(sealed.ROLLUP, row, sections)


def decode(row: int, data: bytes, *, extremes: bool = True) -> Rollup:
    """Return the rollup of a block, without lowest and highest if they are not wanted."""
    sections = sealed.unseal(sealed.ROLLUP, row, data)
    slots = np.frombuffer(sections[_SLOTS], np.uint8)
    decimals = np.frombuffer(sections[_DECIMALS], np.uint8)
    count = columns.unpack_ints(sections[_COUNTS]).reshape(len(slots), SPAN_MINUTES)
    made = Rollup(slots, count, *(np.zeros(count.shape) for _ in range(COLUMNS_EACH)))
    present = count > 0
    kinds = np.unique(decimals).tolist()
    for number, kind in enumerate(kinds):
        where = present if len(kinds) == 1 else present & (decimals == kind)[:, None]
        at = _COLUMNS + COLUMNS_EACH * number
        if kind == BINARY:
            made.total[where] = columns.unpack_floats(sections[at])
            if extremes:
                made.low[where] = columns.unpack_floats(sections[at + 1])
                made.high[where] = columns.unpack_floats(sections[at + 2])
            continue
        total = columns.unpack_ints(sections[at])
        made.total[where] = columns.unscale(total, kind)
        if extremes:
            mean = total // count[where]
            made.low[where] = columns.unscale(mean - columns.unpack_ints(sections[at + 1]), kind)
            made.high[where] = columns.unscale(mean + columns.unpack_ints(sections[at + 2]), kind)
    return made


def _blank(slots: Slots) -> Rollup:
    assert len(slots) <= GROUP_SIZE, "a slot is one of its group"
    shape = (len(slots), SPAN_MINUTES)
    return Rollup(slots, np.zeros(shape, np.int64), *(np.zeros(shape) for _ in range(COLUMNS_EACH)))


def _decimals(rollup: Rollup, present: Bools) -> Slots:
    """Return, per slot, how few decimals tell all its minutes; sums within what adding floats is off by."""
    found = np.full(len(rollup.slots), BINARY, np.uint8)
    reach = np.maximum(np.abs(rollup.low), np.abs(rollup.high)) * rollup.count
    for decimals in range(DECIMALS_MAX + 1):
        by = 10.0**decimals
        fits = reach * by < WHOLE_MAX
        for exact in (rollup.low, rollup.high):
            fits &= np.rint(exact * by) / by == exact
        scaled = rollup.total * by
        fits &= np.abs(scaled - np.rint(scaled)) <= reach * (by * ROUNDING) * rollup.count
        found[(fits | ~present).all(axis=1) & (found == BINARY)] = decimals
        if (found != BINARY).all():
            break
    return found


def _packed(kind: int, count: Ints, total: Floats, low: Floats, high: Floats) -> list[bytes]:
    if kind == BINARY:
        return [columns.pack(column) for column in (total, low, high)]
    whole = columns.scale(total, kind)
    mean = whole // count
    below, above = mean - columns.scale(low, kind), columns.scale(high, kind) - mean
    return [columns.pack(column) for column in (whole, below, above)]
