"""Keeps the newest samples in memory, ready to be asked for; knows nothing of files.

What a node sends is nearly always the same series, once per tick: such batches are rows of one table, a lane.
Everything else (late, repeated, of several times) becomes sorted runs. A reader takes a view of both, which
is a moment's work; rows and runs never change, more of them only come after.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trackside.metricstore.columns import Floats, Ints
from trackside.metricstore.layout import GROUP_BITS, SPAN_MS
from trackside.metricstore.samples import NOTHING, RowBatch, Samples, join, settled

LANES_MAX = 256
LANE_ROWS_FIRST = 8
LANE_ROWS_FEW = 64
LANE_ROWS_TIMES = 16
TIMES_SPLIT_MAX = 64  # a batch of more times than this is not taken apart into rows
RUNS_EACH = 8  # of one size, before they become one
RUN_BASE = 1024
LEVEL_MAX = 2  # runs of this size stay as they are
EVER_MS = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The same series (ascending) at several times (ascending): a row of values for each."""

    ids: Ints
    times: Ints
    table: Floats

    def between(self, start_ms: int, end_ms: int) -> "Rows":
        """Return the rows from one time to another, the end left out."""
        first, last = np.searchsorted(self.times, [start_ms, end_ms])
        return Rows(self.ids, self.times[first:last], self.table[first:last])

    def of(self, ids: Ints) -> Samples:
        """Return the samples of some series (ascending)."""
        columns = np.searchsorted(self.ids, ids)
        columns[columns == len(self.ids)] = 0
        columns = columns[self.ids[columns] == ids]
        if not len(columns) or not len(self.times):
            return NOTHING
        values = self.table if len(columns) == len(self.ids) else self.table[:, columns]
        own = np.repeat(self.ids[columns], len(self.times))
        return Samples(own, np.tile(self.times, len(columns)), values.T.ravel())

    def last(self) -> Samples:
        """Return the newest sample of every series."""
        return Samples(self.ids, np.full(len(self.ids), self.times[-1]), self.table[-1])

    def near(self, ids: Ints) -> bool:
        """Say whether some of the series (ascending) may be here."""
        return bool(self.ids[0] <= ids[-1] and self.ids[-1] >= ids[0])


class Lane:
    """Rows that grow."""

    def __init__(self, ids: Ints, order: Ints) -> None:
        self._ids = ids
        self._order = order  # which sample of a batch is whose
        self._times = np.empty(LANE_ROWS_FIRST, np.int64)
        self._table = np.empty((LANE_ROWS_FIRST, len(ids)))
        self._count = 0
        self._last_ms = -1

    def add(self, at_ms: int, values: Floats) -> bool:
        """Take a row, if it is newer than the last."""
        if at_ms <= self._last_ms:
            return False
        if self._count == len(self._times):
            self._grow()
        self._times[self._count] = at_ms
        values.take(self._order, out=self._table[self._count], mode="clip")  # else it is copied twice
        self._count += 1
        self._last_ms = at_ms
        return True

    def _grow(self) -> None:
        """Make room for many more rows at once: room that is not used takes no memory, but each time the rows
        are copied somebody waits."""
        rows = self._count * (2 if self._count < LANE_ROWS_FEW else LANE_ROWS_TIMES)
        times, table = np.empty(rows, np.int64), np.empty((rows, len(self._ids)))
        times[: self._count], table[: self._count] = self._times, self._table
        self._times, self._table = times, table

    def rows(self) -> Rows:
        """Return the rows there are now."""
        return Rows(self._ids, self._times[: self._count], self._table[: self._count])


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """All that was in memory at one moment; the same sample may be in it twice."""

    lanes: tuple[Rows, ...] = ()
    runs: tuple[Samples, ...] = ()

    def of(self, ids: Ints, start_ms: int = 0, end_ms: int = EVER_MS) -> Samples:
        """Return the samples of some series (ascending) and times."""
        found = [rows.between(start_ms, end_ms).of(ids) for rows in self.lanes if rows.near(ids)]
        found += [_of_run(run, ids, start_ms, end_ms) for run in self.runs]
        return join([some for some in found if len(some)])

    def newest(self, ids: Ints) -> Samples:
        """Return the newest sample of each of the series (ascending) that has one."""
        return newest_of([*(rows.last() for rows in self.lanes if rows.near(ids)), *self.runs], ids)

    def groups(self) -> list[int]:
        """Return the groups that have samples here."""
        every = [np.unique(rows.ids >> GROUP_BITS) for rows in self.lanes]
        every += [np.unique(run.ids >> GROUP_BITS) for run in self.runs]
        return [int(group) for group in np.unique(np.concatenate(every))] if every else []

    def spans(self, start_ms: int, end_ms: int) -> list[int]:
        """Return the spans of which there are samples between two times, the end left out."""
        times = [np.unique(rows.between(start_ms, end_ms).times // SPAN_MS) for rows in self.lanes]
        for run in self.runs:
            inside = (run.at_ms >= start_ms) & (run.at_ms < end_ms)
            times.append(np.unique(run.at_ms[inside] // SPAN_MS))
        return [int(span) for span in np.unique(np.concatenate(times))] if times else []

    @property
    def oldest_ms(self) -> int | None:
        """Return the time of the oldest sample."""
        times = [int(rows.times[0]) for rows in self.lanes] + [int(run.at_ms.min()) for run in self.runs]
        return min(times, default=None)

    def __len__(self) -> int:
        return sum(rows.table.size for rows in self.lanes) + sum(map(len, self.runs))


class Head:
    """The samples that are in the file's tail only. A batch is seen whole or not at all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for moments only
        self._lanes: dict[bytes, Lane] = {}
        self._runs: tuple[Samples, ...] = ()
        self._frozen = View()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def view(self) -> View:
        """Return what there is now."""
        with self._lock:
            return self._view()

    def add(self, batches: Sequence[Samples | RowBatch]) -> None:
        """Take what came together."""
        with self._lock:
            late: list[Samples] = []
            for batch in batches:
                self._count += len(batch)
                if isinstance(batch, RowBatch):
                    late += self._add_rows(batch)
                elif len(batch):
                    late += [some for some in _by_time(batch) if not self._into_lane(some)]
            if late:
                self._runs = _with(self._runs, settled(join(late)))

    def freeze(self) -> View:
        """Set everything apart for compaction and return it; it can still be read."""
        with self._lock:
            self._frozen = self._view()
            self._lanes, self._runs = {}, ()
            return self._frozen

    def thaw(self, kept: Samples) -> None:
        """Let go of what was frozen but for what is kept."""
        with self._lock:
            if len(kept):
                self._runs = _with(self._runs, settled(kept))
            self._frozen = View()
            self._count = len(self._view())

    def _view(self) -> View:
        lanes = tuple(lane.rows() for lane in self._lanes.values())
        return View(lanes + self._frozen.lanes, self._runs + self._frozen.runs)

    def _add_rows(self, rows: RowBatch) -> list[Samples]:
        """Put rows into their lane; return what is left."""
        if not len(rows):
            return []
        lane = self._lane(rows.key, rows.ids)
        if lane is None:
            return [rows.samples()]
        left = [n for n, at_ms in enumerate(rows.times.tolist()) if not lane.add(at_ms, rows.table[n])]
        return [rows.samples(left)] if left else []

    def _into_lane(self, samples: Samples) -> bool:
        """Put samples of one time into their lane, if they have one or can have one."""
        if (samples.at_ms != samples.at_ms[0]).any():
            return False
        lane = self._lane(samples.ids.tobytes(), samples.ids)
        return lane is not None and lane.add(int(samples.at_ms[0]), samples.values)

    def _lane(self, key: bytes, unsorted: Ints) -> Lane | None:
        lane = self._lanes.get(key)
        if lane is None:
            order = np.argsort(unsorted, kind="stable")
            ids = unsorted[order]
            if (ids[1:] == ids[:-1]).any() or len(self._lanes) >= LANES_MAX:
                return None
            lane = self._lanes[key] = Lane(ids, order)
        return lane


def newest_of(runs: Sequence[Samples], ids: Ints) -> Samples:
    """Return the newest sample in sorted runs of each of the series (ascending) that has one."""
    at_ms = np.full(len(ids), -1, np.int64)
    values = np.zeros(len(ids))
    for run in runs:
        if not len(run):
            continue
        last = np.searchsorted(run.ids, ids, side="right") - 1
        newer = (last >= 0) & (run.ids[last] == ids) & (run.at_ms[last] >= at_ms)
        where = last[newer]
        # Two values for one moment: the larger stays, as everywhere.
        larger = (run.at_ms[where] > at_ms[newer]) | (run.values[where] > values[newer])
        chosen = np.flatnonzero(newer)[larger]
        at_ms[chosen], values[chosen] = run.at_ms[where[larger]], run.values[where[larger]]
    known = at_ms >= 0
    return Samples(ids[known], at_ms[known], values[known])


def _by_time(samples: Samples) -> list[Samples]:
    """Return a batch taken apart where its time changes."""
    changes = np.flatnonzero(samples.at_ms[1:] != samples.at_ms[:-1]) + 1
    if not len(changes) or len(changes) >= TIMES_SPLIT_MAX:
        return [samples]
    edges = [0, *changes.tolist(), len(samples)]
    return [samples.where(slice(a, b)) for a, b in pairwise(edges)]


def _of_run(run: Samples, ids: Ints, start_ms: int, end_ms: int) -> Samples:
    starts = np.searchsorted(run.ids, ids, side="left")
    ends = np.searchsorted(run.ids, ids, side="right")
    sizes = ends - starts
    if not sizes.any():
        return NOTHING
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes)
    found = run.where(offsets + np.arange(len(offsets)))
    inside = (found.at_ms >= start_ms) & (found.at_ms < end_ms)
    return found if inside.all() else found.where(inside)


def _with(runs: tuple[Samples, ...], added: Samples) -> tuple[Samples, ...]:
    """Return runs with one more; eight of a size become one."""
    grown = [*runs, added]
    while (size := _level(grown[-1])) < LEVEL_MAX:
        same = [index for index, run in enumerate(grown) if _level(run) == size]
        if len(same) < RUNS_EACH:
            break
        merged = settled(join([grown[index] for index in same]))
        grown = [run for index, run in enumerate(grown) if index not in same] + [merged]
    return tuple(grown)


def _level(run: Samples) -> int:
    count, level = len(run), 0
    while count >= RUN_BASE * RUNS_EACH:
        count //= RUNS_EACH
        level += 1
    return level
