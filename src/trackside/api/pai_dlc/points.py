"""Knows how the points of many series are written: column by column, for a job may have 300,000 of them."""

import math

import orjson

from trackside.api.digits import Floats, rows_of, words_of
from trackside.ports import MeanColumns

VALUE_DECIMALS = 6
POINTS_AT_ONCE = 8192  # what is worked on stays in the processor's cache
Piece = bytes | memoryview


class PointTexts:
    """Writes the points of one series after the other, some series ahead."""

    def __init__(self, found: MeanColumns, divisor: float) -> None:
        self._found = found
        self._divisor = divisor
        self._before = words_of([f',{{"Time":{at_ms},"Value":' for at_ms in found.steps_ms.tolist()])
        self._first = self._last = 0  # the points that are written
        self._text: memoryview | None = None  # None: they cannot be written in columns
        self._width = 0

    def of(self, series: int) -> Piece:
        """Return the points of a series, with commas between them."""
        first, last = self._found.bounds[series], self._found.bounds[series + 1]
        if first == last:
            return b""
        if first < self._first or last > self._last:
            self._write(series)
        if self._text is None:
            return self._one_by_one(first, last)
        return self._text[(first - self._first) * self._width + 1 : (last - self._first) * self._width]

    def _write(self, series: int) -> None:
        """Write the points of a series, and of those after it that fit."""
        bounds = self._found.bounds
        self._first, until = bounds[series], series + 1
        while until < len(bounds) - 1 and bounds[until + 1] - self._first <= POINTS_AT_ONCE:
            until += 1
        self._last = bounds[until]
        values = self._values(self._first, self._last)
        steps, words = self._before.shape
        rows = rows_of(values, before=words, end="}")
        self._text = None
        if rows is None:
            return
        if self._found.which is None:
            rows.reshape(-1, steps, rows.shape[1])[:, :, :words] = self._before
        else:
            rows[:, :words] = self._before[self._found.which[self._first : self._last]]
        self._text, self._width = rows.data.cast("B"), rows.shape[1] * rows.itemsize

    def _values(self, first: int, last: int) -> Floats:
        means = self._found.means[first:last]
        return means if self._divisor == 1 else means / self._divisor

    def _one_by_one(self, first: int, last: int) -> bytes:
        """Return points that have numbers which are not written in columns; not finite ones are left out."""
        steps = self._found.steps_ms
        if self._found.which is not None:
            steps = steps[self._found.which[first:last]]
        told = [
            {"Time": at_ms, "Value": round(value, VALUE_DECIMALS)}
            for at_ms, value in zip(steps.tolist(), self._values(first, last).tolist(), strict=True)
            if math.isfinite(value)
        ]
        return orjson.dumps(told)[1:-1]
