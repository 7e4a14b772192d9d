"""Knows means as a table: a row per series, a column per step, counts and sums in its cells.

Knows neither blocks nor memory; what they have is added to it span by span.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trackside.metricstore.columns import Floats, Ints
from trackside.metricstore.layout import SPAN_MS
from trackside.metricstore.samples import Cells

AT_MS_MAX = 1 << 53  # beyond any clock; what a float still tells exactly


class Window(NamedTuple):
    """From when to when, the end left out, in which steps."""

    start_ms: int
    end_ms: int
    step_ms: int

    def inside(self, span: int) -> "Window":
        """Return what of it lies in a span."""
        start, end = max(self.start_ms, span * SPAN_MS), min(self.end_ms, (span + 1) * SPAN_MS)
        return Window(start, end, self.step_ms)

    @property
    def first_step(self) -> int:
        """Return the number, since the epoch, of the first step."""
        return self.start_ms // self.step_ms

    @property
    def last_step(self) -> int:
        """Return the number of the last step."""
        return (self.end_ms - 1) // self.step_ms

    @property
    def steps(self) -> int:
        """Return how many steps it has, whole or in part."""
        return self.last_step - self.first_step + 1


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """What some series come to, those of one series after those of the other; only steps with samples."""

    sizes: Ints  # how many steps each series has
    which: Ints | None  # the step of each mean, by its place; None: every series has every step
    means: Floats


class Table:
    """Counts and sums of some series over the steps of some windows, which follow one another."""

    def __init__(self, series: int, windows: Sequence[Window]) -> None:
        self._columns: list[slice] = []
        pieces: list[Ints] = []
        size, last = 0, -1
        for own in windows:
            first = own.first_step
            known = 1 if last == first else 0  # a step of two spans is one column
            self._columns.append(slice(size - known, size - known + own.steps))
            last = own.last_step
            pieces.append(np.arange(first + known, last + 1))
            size += last + 1 - first - known
        self.steps = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
        self._count = np.zeros((series, size), np.int64)
        self._total = np.zeros((series, size))

    def of(self, number: int) -> tuple[Ints, Floats]:
        """Return the part of the table that a window adds to; its first column is the window's first step."""
        columns = self._columns[number]
        return self._count[:, columns], self._total[:, columns]

    def add_cells(self, ids: Ints, cells: Cells) -> None:
        """Add sorted cells of the series (ascending) of the rows."""
        where = (np.searchsorted(ids, cells.ids), np.searchsorted(self.steps, cells.steps))
        self._count[where] += cells.count
        self._total[where] += cells.total

    def flat(self) -> Flat:
        """Return the means."""
        if self._count.all():
            sizes = np.full(len(self._count), self._count.shape[1])
            return Flat(sizes, None, (self._total / self._count).ravel())
        present = self._count > 0
        sizes = np.count_nonzero(present, axis=1)
        return Flat(sizes, np.nonzero(present)[1], self._total[present] / self._count[present])
