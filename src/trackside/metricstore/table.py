"""Knows means as a table: a row per series, a column per step, counts and sums in its cells.

Knows neither blocks nor memory; what they have is added to it span by span.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trackside.metricstore.columns import Floats, Ints
from trackside.metricstore.layout import SPAN_MS
from trackside.metricstore.samples import Cells

AT_MS_MAX = 1 << 53  # beyond any clock; what a float still tells exactly


@dataclass(frozen=True, slots=True)
class Window:
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
        steps: list[int] = []
        for own in windows:
            known = 1 if steps and steps[-1] == own.first_step else 0  # a step of two spans is one column
            self._columns.append(slice(len(steps) - known, len(steps) - known + own.steps))
            steps.extend(range(own.first_step + known, own.last_step + 1))
        self.steps = np.array(steps, np.int64)
        self._count = np.zeros((series, len(steps)), np.int64)
        self._total = np.zeros((series, len(steps)))

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
