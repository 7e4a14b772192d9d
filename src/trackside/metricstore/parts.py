"""Knows what memory has of some series in one span, part by part, and whether parts may share a sample.

A part tells each moment of a series once; two parts may both tell it (a repeated batch, a sample whose block
is just being written). Parts of which each begins, series by series, after the one before has ended share
none, so their sums can be added; otherwise the samples themselves must be looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trackside.metricstore.columns import Floats, Ints
from trackside.metricstore.head import Rows, View
from trackside.metricstore.samples import Samples, summed
from trackside.metricstore.selection import Selection

RUNS_REMEMBERED_MAX = 64


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one lane or run has: of which series (by place among those asked for), from when to when."""

    places: Ints
    first_ms: Ints | int
    last_ms: Ints | int
    begins_ms: int  # the earliest of the first
    times: Ints  # of a lane's rows
    table: Floats  # of a lane: a row per time, a column per series
    samples: Samples | None = None  # of a run: sorted by series and time


def parts_of(view: View, chosen: Selection, start_ms: int, end_ms: int) -> list[Part]:
    """Return what memory has of some series between two times, the end left out."""
    found = [_of_lane(rows, chosen, start_ms, end_ms) for rows in view.lanes if rows.near(chosen.ids)]
    for run in view.runs:
        first, last = _times_of(run)
        if first < end_ms and last >= start_ms:
            found.append(_of_run(View((), (run,)).of(chosen.ids, start_ms, end_ms), chosen.ids))
    return [part for part in found if part is not None]


def apart(parts: Sequence[Part], ended_ms: Ints) -> bool:
    """Say whether no sample can be in two parts, nor in what ended, per series, at some time (-1: never)."""
    ends = ended_ms
    for part in sorted(parts, key=lambda one: one.begins_ms):
        if (part.first_ms <= ends[part.places]).any():
            return False
        if len(parts) > 1:
            ends[part.places] = part.last_ms
    return True


def add_steps(part: Part, step_ms: int, first_step: int, count: Ints, total: Floats) -> None:
    """Add what a part comes to per step; columns of the tables are steps from the first."""
    if part.samples is not None:
        cells = summed(part.samples, step_ms, extremes=False)
        own = part.places[np.searchsorted(part.samples.ids[_begins(part.samples)], cells.ids)]
        count[own, cells.steps - first_step] += cells.count
        total[own, cells.steps - first_step] += cells.total
        return
    steps = part.times // step_ms - first_step
    starts = np.concatenate((_ZERO, np.flatnonzero(steps[1:] != steps[:-1]) + 1))
    sums = np.add.reduceat(part.table, starts, axis=0)
    sizes = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=sizes[:-1])
    sizes[-1] = len(steps) - starts[-1]
    where = steps[starts]
    first, last = int(where[0]), int(where[-1]) + 1
    if len(part.places) == len(count) and len(where) == last - first:
        count[:, first:last] += sizes
        total[:, first:last] += sums.T
        return
    both = np.ix_(part.places, where)
    count[both] += sizes
    total[both] += sums.T


def _of_lane(rows: Rows, chosen: Selection, start_ms: int, end_ms: int) -> Part | None:
    first, last = rows.times.searchsorted((start_ms, end_ms)).tolist()
    if first == last:
        return None
    places, columns = chosen.in_lane(rows.ids)
    if not len(places):
        return None
    times = rows.times[first:last]
    begins, ends = int(times[0]), int(times[-1])
    return Part(places, begins, ends, begins, times, rows.table[first:last, columns])


def _of_run(run: Samples, ids: Ints) -> Part | None:
    if not len(run):
        return None
    begins = _begins(run)
    ends = np.append(begins[1:], len(run)) - 1
    first = run.at_ms[begins]
    places = np.searchsorted(ids, run.ids[begins])
    return Part(places, first, run.at_ms[ends], int(first.min()), run.at_ms, run.values, run)


def _begins(run: Samples) -> Ints:
    return np.flatnonzero(np.diff(run.ids, prepend=-1))


_ZERO = np.zeros(1, np.int64)
_times: dict[int, tuple[Samples, int, int]] = {}


def _times_of(run: Samples) -> tuple[int, int]:
    """Return the first and the last time of a run; runs do not change, so it is found out once."""
    known = _times.get(id(run))
    if known is None or known[0] is not run:
        if len(_times) >= RUNS_REMEMBERED_MAX:
            _times.clear()
        known = _times[id(run)] = run, int(run.at_ms.min()), int(run.at_ms.max())
    return known[1], known[2]
