"""Keeps the newest samples in memory, ready to be asked for; knows nothing of files.

Batches become sorted runs; eight runs of a size become one. Readers take the runs as they are, without a
lock: a run never changes, and a tuple of runs is replaced whole.
"""

from collections.abc import Iterable

import numpy as np

from trackside.metricstore.columns import Ints
from trackside.metricstore.samples import NOTHING, Samples, join, settled

RUNS_EACH = 8  # of one size, before they become one
RUN_BASE = 1024
RUN_SAMPLES_MAX = 1 << 18

Runs = tuple[Samples, ...]


class Head:
    """The samples that are in the file's tail only. One writer at a time; any number of readers."""

    def __init__(self) -> None:
        # Those that come in and those being compacted, in one tuple: a sample that moves from one to the
        # other must never be seen in neither.
        self._state: tuple[Runs, Runs] = ((), ())

    @property
    def count(self) -> int:
        """Return how many samples wait to be compacted, repeats included."""
        return sum(map(len, self.runs()))

    @property
    def oldest_ms(self) -> int | None:
        """Return the time of the oldest sample that waits."""
        return min((int(run.at_ms.min()) for run in self.runs()), default=None)

    def runs(self) -> Runs:
        """Return all samples as sorted runs; the same sample may be in two."""
        coming, frozen = self._state
        return coming + frozen

    def add(self, samples: Samples) -> None:
        """Take a batch."""
        coming, frozen = self._state
        self._state = (_with(coming, samples), frozen)

    def freeze(self) -> Runs:
        """Set everything apart for compaction and return it; it can still be read."""
        runs = self.runs()
        self._state = ((), runs)
        return runs

    def thaw(self, kept: Samples) -> None:
        """Let go of what was frozen but for what is kept."""
        self._state = (_with(self._state[0], kept), ())

    def restore(self) -> None:
        """Put what was frozen back: the compaction came to nothing."""
        self._state = (self.runs(), ())


def of_series(runs: Iterable[Samples], ids: Ints) -> Samples:
    """Return the samples of some series (ascending), run by run."""
    found = [_slices(run, ids) for run in runs]
    return join([part for part in found if len(part)])


def newest_of(runs: Iterable[Samples], ids: Ints) -> Samples:
    """Return the newest sample of each of the series (ascending) that has one."""
    at_ms = np.full(len(ids), -1, np.int64)
    values = np.zeros(len(ids))
    for run in runs:
        last = np.searchsorted(run.ids, ids, side="right") - 1
        newer = (last >= 0) & (run.ids[last] == ids) & (run.at_ms[last] >= at_ms)
        where = last[newer]
        # Two values for one moment: the larger stays, as everywhere.
        larger = (run.at_ms[where] > at_ms[newer]) | (run.values[where] > values[newer])
        chosen = np.flatnonzero(newer)[larger]
        at_ms[chosen], values[chosen] = run.at_ms[where[larger]], run.values[where[larger]]
    known = at_ms >= 0
    return Samples(ids[known], at_ms[known], values[known])


def _slices(run: Samples, ids: Ints) -> Samples:
    starts = np.searchsorted(run.ids, ids, side="left")
    ends = np.searchsorted(run.ids, ids, side="right")
    sizes = ends - starts
    if not sizes.any():
        return NOTHING
    if int(sizes.sum()) == int(ends[-1] - starts[0]):  # they stand side by side
        return run.where(slice(int(starts[0]), int(ends[-1])))
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes)
    return run.where(offsets + np.arange(len(offsets)))


def _with(runs: Runs, samples: Samples) -> Runs:
    if not len(samples):
        return runs
    grown = [*runs, settled(samples)]
    while (level := _level(grown[-1])) < _level_of(RUN_SAMPLES_MAX):
        same = [index for index, run in enumerate(grown) if _level(run) == level]
        if len(same) < RUNS_EACH:
            break
        merged = settled(join([grown[index] for index in same]))
        grown = [run for index, run in enumerate(grown) if index not in same] + [merged]
    return tuple(grown)


def _level(run: Samples) -> int:
    return _level_of(len(run))


def _level_of(count: int) -> int:
    level = 0
    while count >= RUN_BASE * RUNS_EACH:
        count //= RUNS_EACH
        level += 1
    return level
