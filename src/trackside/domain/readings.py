"""Knows how many samples are told in few bytes: which series, once, and their values in rows.

The series of a node's tasks are grids: all tasks of a job that have the same series. Packed they are a few
hundred bytes that stay the same from tick to tick, so whoever reads them can recognise them by their bytes.
"""

import json
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.domain.metric import VALUE_MAX, Sample

SERIES_TEXT_BYTES_MAX = 32 * 1024**2  # unpacked; a few bytes may claim to be very many
LAYOUTS_REMEMBERED_MAX = 32
GRIDS_REMEMBERED_MAX = 1_024  # one entry for each node, more where tasks come and go

SeriesName = tuple[str, int | None, tuple[tuple[str, str], ...]]  # metric, card, labels
Key = tuple[JobId, str, SeriesName]  # with the job and the task


@dataclass(frozen=True, slots=True)
class Grid:
    """Tasks of a job that have the same series."""

    job_id: JobId
    tasks: tuple[str, ...]
    series: tuple[SeriesName, ...]

    def __len__(self) -> int:
        return len(self.tasks) * len(self.series)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The same series at one or more times: a row of values for each time."""

    series: bytes  # packed grids; `grids_of` tells them
    times_ms: tuple[int, ...]
    values: bytes  # f64, little-endian, row by row: grid by grid, task by task, series by series

    @property
    def count(self) -> int:
        """Return how many samples these are."""
        return len(self.values) // 8


def readings_of(samples: Iterable[Sample]) -> tuple[Readings, ...]:
    """Return samples as readings, without what is no measurement; rows of the same series stand together.

    Of two values of a series for one moment the larger stays, as it does wherever samples are kept.
    """
    rows: dict[int, dict[Key, float]] = {}
    for one in samples:
        if abs(one.value) <= VALUE_MAX:
            row = rows.setdefault(one.at_ms, {})
            key = (one.job_id, one.task, (one.metric, one.card, one.labels))
            row[key] = max(row.get(key, one.value), one.value)
    found: dict[bytes, tuple[list[int], array[float]]] = {}
    for at_ms, row in rows.items():
        series, order = _layout(tuple(row))
        times, values = found.setdefault(series, ([], array("d")))
        times.append(at_ms)
        own = list(row.values())
        values.extend([own[position] for position in order])
    return tuple(
        Readings(series=series, times_ms=tuple(times), values=_little_endian(values).tobytes())
        for series, (times, values) in found.items()
    )


def samples_of(readings: Readings) -> Iterator[Sample]:
    """Yield the samples one by one, time by time."""
    every = [
        (grid.job_id, task, name) for grid in checked(readings) for task in grid.tasks for name in grid.series
    ]
    values = iter(_little_endian(array("d", readings.values)))
    for at_ms in readings.times_ms:
        for (job_id, task, (metric, card, labels)), value in zip(every, values, strict=False):
            yield Sample(job_id, task, metric, at_ms, value, card, labels)


def checked(readings: Readings) -> tuple[Grid, ...]:
    """Return the grids of readings; raise Invalid if there are not as many values as they ask for."""
    jobs_of(readings)
    return grids_of(readings.series)


def jobs_of(readings: Readings) -> frozenset[JobId]:
    """Return whose readings these are; raise Invalid as `checked` does."""
    jobs, width = _shape(readings.series)
    if len(readings.values) != 8 * len(readings.times_ms) * width:
        raise Invalid("readings need one value of eight bytes for each time and series")
    return jobs


def without(readings: Readings, jobs: frozenset[JobId]) -> Readings | None:
    """Return the readings without some jobs; None if nothing is left."""
    grids = checked(readings)
    left = tuple(grid for grid in grids if grid.job_id not in jobs)
    if len(left) == len(grids):
        return readings
    if not left:
        return None
    kept, at, width = [], 0, 8 * sum(map(len, grids))
    for grid in grids:
        if grid.job_id not in jobs:
            kept.append(slice(at, at + 8 * len(grid)))
        at += 8 * len(grid)
    rows = (readings.values[row * width : (row + 1) * width] for row in range(len(readings.times_ms)))
    values = b"".join(row[part] for row in rows for part in kept)
    return Readings(series=pack(left), times_ms=readings.times_ms, values=values)


def pack(grids: Sequence[Grid]) -> bytes:
    """Return grids as bytes: the same grids are the same bytes."""
    rows = [[grid.job_id, grid.tasks, grid.series] for grid in grids]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode())


@lru_cache(maxsize=GRIDS_REMEMBERED_MAX)
def grids_of(series: bytes) -> tuple[Grid, ...]:
    """Return packed grids; raise Invalid if they are none."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(series, SERIES_TEXT_BYTES_MAX)
        if not unpacking.eof:
            raise Invalid("packed series are cut off or too many")
        return tuple(_grid(*row) for row in json.loads(text))
    except (zlib.error, ValueError, TypeError, RecursionError) as error:
        raise Invalid(f"packed series cannot be read: {error}") from None


@lru_cache(maxsize=GRIDS_REMEMBERED_MAX)
def _shape(series: bytes) -> tuple[frozenset[JobId], int]:
    grids = grids_of(series)
    return frozenset(grid.job_id for grid in grids), sum(map(len, grids))


def _grid(job_id: Any, tasks: Any, series: Any) -> Grid:
    return Grid(
        JobId(_text(job_id)),
        tuple(map(_text, tasks)),
        tuple((_text(metric), _card(card), tuple(map(_label, labels))) for metric, card, labels in series),
    )


def _label(pair: Any) -> tuple[str, str]:
    name, value = pair
    return _text(name), _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a name is not text")
    return value


def _card(value: Any) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError("a card is not a number")
    return value


@lru_cache(maxsize=LAYOUTS_REMEMBERED_MAX)
def _layout(keys: tuple[Key, ...]) -> tuple[bytes, tuple[int, ...]]:
    """Return keys as packed grids, and which key stands where in them."""
    of_task: dict[tuple[JobId, str], list[int]] = {}
    for position, (job_id, task, _) in enumerate(keys):
        of_task.setdefault((job_id, task), []).append(position)
    alike: dict[tuple[JobId, tuple[SeriesName, ...]], dict[str, list[int]]] = {}
    for (job_id, task), positions in of_task.items():
        names = tuple(keys[position][2] for position in positions)
        alike.setdefault((job_id, names), {})[task] = positions
    grids = [Grid(job_id, tuple(tasks), names) for (job_id, names), tasks in alike.items()]
    order = chain.from_iterable(positions for tasks in alike.values() for positions in tasks.values())
    return pack(grids), tuple(order)


def _little_endian(values: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values
