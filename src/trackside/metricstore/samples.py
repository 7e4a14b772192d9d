"""Knows samples as columns: sorting them, telling repeats, summing them up; knows no storage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trackside.metricstore.columns import Bools, Floats, Ints

KEY_BITS = 62


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples, one per row: which series, when, how much."""

    ids: Ints
    at_ms: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, chosen: Bools | Ints | slice) -> "Samples":
        """Return some of them."""
        return Samples(self.ids[chosen], self.at_ms[chosen], self.values[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class RowBatch:
    """The same series at some times, as they came: a row of values for each time, in any order."""

    ids: Ints
    key: bytes  # the ids, to recognise them by
    packed: bytes  # the ids, as a column
    times: Ints
    table: Floats

    def __len__(self) -> int:
        return self.table.size

    def samples(self, rows: Sequence[int] | slice = slice(None)) -> Samples:
        """Return the samples of some rows."""
        times = self.times[rows]
        return Samples(
            np.tile(self.ids, len(times)), np.repeat(times, len(self.ids)), self.table[rows].ravel()
        )


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """What the samples of each series and step come to, sorted by series, then step."""

    ids: Ints
    steps: Ints  # the number of the step since the epoch
    count: Ints
    total: Floats
    low: Floats | None = None  # where only means are wanted
    high: Floats | None = None

    def __len__(self) -> int:
        return len(self.ids)


NOTHING = Samples(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def join(parts: Sequence[Samples]) -> Samples:
    """Return all samples of the parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NOTHING
    return Samples(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.at_ms for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def settled(samples: Samples) -> Samples:
    """Return them sorted by series and time, each moment once.

    Where one moment of a series came with several values the largest stays: whatever the order of arrival,
    the outcome is the same.
    """
    if len(samples) < 2:
        return samples
    key = _key(samples.ids, samples.at_ms)
    if key is None:
        order = np.lexsort((samples.values, samples.at_ms, samples.ids))
        return _last_of_each(samples.where(order))
    if not (key[1:] > key[:-1]).all():
        order = np.argsort(key, kind="stable")
        key, samples = key[order], samples.where(order)
        if (key[1:] == key[:-1]).any():
            return _last_of_each(samples.where(np.lexsort((samples.values, key))))
    return samples


def summed(samples: Samples, step_ms: int, *, extremes: bool) -> Cells:
    """Return what settled samples come to per series and step."""
    if not len(samples):
        empty = np.empty(0)
        whole = np.empty(0, np.int64)
        return Cells(whole, whole, whole, empty, *((empty, empty) if extremes else ()))
    steps = samples.at_ms // step_ms
    starts = np.flatnonzero(_fresh(samples.ids, steps))
    return Cells(
        samples.ids[starts],
        steps[starts],
        np.diff(starts, append=len(samples)),
        np.add.reduceat(samples.values, starts),
        np.minimum.reduceat(samples.values, starts) if extremes else None,
        np.maximum.reduceat(samples.values, starts) if extremes else None,
    )


def combined(parts: Sequence[Cells]) -> Cells:
    """Return all cells sorted, each series and step once."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    ids = np.concatenate([part.ids for part in parts])
    steps = np.concatenate([part.steps for part in parts])
    key = _key(ids, steps)
    order = np.lexsort((steps, ids)) if key is None else np.argsort(key, kind="stable")
    ids, steps = ids[order], steps[order]
    fresh = _fresh(ids, steps)
    starts = None if fresh.all() else np.flatnonzero(fresh)

    def reduce(how: np.ufunc, columns: Sequence[Any]) -> Any:
        if any(column is None for column in columns):
            return None
        column = np.concatenate(columns)[order]
        return column if starts is None else how.reduceat(column, starts)

    return Cells(
        ids if starts is None else ids[starts],
        steps if starts is None else steps[starts],
        reduce(np.add, [part.count for part in parts]),
        reduce(np.add, [part.total for part in parts]),
        reduce(np.minimum, [part.low for part in parts]),
        reduce(np.maximum, [part.high for part in parts]),
    )


def _fresh(ids: Ints, steps: Ints) -> Bools:
    """Say where a new series or step begins."""
    fresh = np.empty(len(ids), np.bool_)
    fresh[0] = True
    np.not_equal(steps[1:], steps[:-1], out=fresh[1:])
    fresh[1:] |= ids[1:] != ids[:-1]
    return fresh


def _key(ids: Ints, times: Ints) -> Ints | None:
    """Return one number each that sorts like series and time, or None if it would not fit."""
    first_id, first = int(ids.min()), int(times.min())
    bits = (int(times.max()) - first).bit_length()
    if (int(ids.max()) - first_id).bit_length() + bits > KEY_BITS:
        return None
    key: Ints = ((ids - first_id) << bits) | (times - first)
    return key


def _last_of_each(samples: Samples) -> Samples:
    last = np.ones(len(samples), np.bool_)
    last[:-1] = (samples.ids[1:] != samples.ids[:-1]) | (samples.at_ms[1:] != samples.at_ms[:-1])
    return samples.where(last)
