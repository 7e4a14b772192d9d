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


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one lane or run has: of which series (by place among those asked for), from when to when."""

    places: Ints
    first_ms: Ints
    last_ms: Ints
    rows: Rows | None  # of a lane: the wanted columns are `columns`
    columns: Ints | slice
    samples: Samples | None  # of a run: sorted by series and time


def parts_of(view: View, ids: Ints, start_ms: int, end_ms: int) -> list[Part]:
    """Return what memory has of some series (ascending) between two times, the end left out."""
    found = [_of_lane(rows, ids, start_ms, end_ms) for rows in view.lanes if rows.near(ids)]
    runs = [View((), (run,)).of(ids, start_ms, end_ms) for run in view.runs]
    found += [_of_run(run, ids) for run in runs if len(run)]
    return [part for part in found if part is not None]


def apart(parts: Sequence[Part], ended_ms: Ints) -> bool:
    """Say whether no sample can be in two parts, nor in what ended, per series, at some time (-1: never)."""
    ends = ended_ms.copy()
    for part in sorted(parts, key=lambda one: int(one.first_ms[0])):
        if (part.first_ms <= ends[part.places]).any():
            return False
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
    assert part.rows is not None, "a part is of a lane or of a run"
    steps = part.rows.times // step_ms
    starts = np.flatnonzero(np.diff(steps, prepend=-1))
    sums = np.add.reduceat(part.rows.table[:, part.columns], starts, axis=0)
    sizes = np.diff(starts, append=len(steps))
    where = steps[starts] - first_step
    if len(part.places) == len(count) and len(where) == where[-1] - where[0] + 1:
        inside = slice(int(where[0]), int(where[-1]) + 1)
        count[:, inside] += sizes
        total[:, inside] += sums.T
        return
    both = np.ix_(part.places, where)
    count[both] += sizes
    total[both] += sums.T


def _of_lane(rows: Rows, ids: Ints, start_ms: int, end_ms: int) -> Part | None:
    inside = rows.between(start_ms, end_ms)
    if not len(inside.times):
        return None
    where = np.searchsorted(rows.ids, ids)
    where[where == len(rows.ids)] = 0
    places = np.flatnonzero(rows.ids[where] == ids)
    if not len(places):
        return None
    columns: Ints | slice = where[places]
    if len(places) == len(rows.ids):
        columns = slice(None)
    first, last = (np.full(len(places), inside.times[one]) for one in (0, -1))
    return Part(places, first, last, inside, columns, None)


def _of_run(run: Samples, ids: Ints) -> Part:
    begins = _begins(run)
    ends = np.append(begins[1:], len(run)) - 1
    places = np.searchsorted(ids, run.ids[begins])
    return Part(places, run.at_ms[begins], run.at_ms[ends], None, slice(None), run)


def _begins(run: Samples) -> Ints:
    return np.flatnonzero(np.diff(run.ids, prepend=-1))
