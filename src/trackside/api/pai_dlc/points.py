"""Knows how the points of many series are written: column by column, for a job may have 300,000 of them."""

import numpy as np
import orjson

from trackside.api.digits import Floats, Words, rows_of, words_of
from trackside.ports import MeanColumns

VALUE_DECIMALS = 6
POINTS_AT_ONCE = 8192  # what is worked on stays in the processor's cache
FEW_POINTS = 512  # up to so many are written sooner one by one
Piece = bytes | memoryview

_ABSENT = b"null"
_NUMPY = orjson.OPT_SERIALIZE_NUMPY


class PointTexts:
    """Writes the points of one series after the other, some series ahead."""

    def __init__(self, found: MeanColumns, divisor: float) -> None:
        self._found = found
        self._divisor = divisor
        self._before = [b',{"Time":%d,"Value":' % at_ms for at_ms in found.steps_ms.tolist()]
        self._before_words: Words | None = None
        self._few = self._numbers(0, len(found.means)) if len(found.means) <= FEW_POINTS else None
        self._first = self._last = 0  # the points that are written
        self._text: memoryview | None = None  # None: they cannot be written in columns
        self._width = 0

    def of(self, series: int) -> Piece:
        """Return the points of a series, with commas between them."""
        first, last = self._found.bounds[series], self._found.bounds[series + 1]
        if first == last:
            return b""
        if self._few is not None:
            return self._one_by_one(first, last, self._few[first:last])
        if first < self._first or last > self._last:
            self._write(series)
        if self._text is None:
            return self._one_by_one(first, last, self._numbers(first, last))
        return self._text[(first - self._first) * self._width + 1 : (last - self._first) * self._width]

    def _write(self, series: int) -> None:
        """Write the points of a series, and of those after it that fit."""
        bounds = self._found.bounds
        self._first, until = bounds[series], series + 1
        while until < len(bounds) - 1 and bounds[until + 1] - self._first <= POINTS_AT_ONCE:
            until += 1
        self._last = bounds[until]
        values = self._values(self._first, self._last)
        if self._before_words is None:
            self._before_words = words_of(self._before)
        before = self._before_words
        steps, words = before.shape
        rows = rows_of(values, before=words, end="}")
        self._text = None
        if rows is None:
            return
        if self._found.which is None:
            rows.reshape(-1, steps, rows.shape[1])[:, :, :words] = before
        else:
            rows[:, :words] = before[self._found.which[self._first : self._last]]
        self._text, self._width = rows.data.cast("B"), rows.shape[1] * rows.itemsize

    def _values(self, first: int, last: int) -> Floats:
        means = self._found.means[first:last]
        return means if self._divisor == 1 else means / self._divisor

    def _numbers(self, first: int, last: int) -> list[bytes]:
        """Return the texts of some values; of what is not finite it is null."""
        rounded = np.round(self._values(first, last), VALUE_DECIMALS)
        return orjson.dumps(rounded, option=_NUMPY)[1:-1].split(b",")

    def _one_by_one(self, first: int, last: int, numbers: list[bytes]) -> bytes:
        """Return points one after the other; those that are not finite are left out."""
        before = self._before
        if self._found.which is not None:
            before = [before[step] for step in self._found.which[first:last].tolist()]
        if _ABSENT in numbers:
            known = [number for number, text in enumerate(numbers) if text != _ABSENT]
            before, numbers = [before[number] for number in known], [numbers[number] for number in known]
        both = [b"}"] * (3 * len(numbers))
        both[::3], both[1::3] = before, numbers
        return b"".join(both)[1:]
