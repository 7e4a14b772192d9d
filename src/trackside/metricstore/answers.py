"""Knows what the store in one file is asked and the form its answers have; knows not how samples come in."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.domain.metric import MINUTE_MS
from trackside.metricstore.catalog import Asked
from trackside.metricstore.reading import Answer, Means, Reading
from trackside.metricstore.table import AT_MS_MAX, Window
from trackside.ports import LatestColumns, MeanColumns, SeriesKey

_NONE = MeanColumns((), (0,), np.empty(0, np.int64), None, np.empty(0))


class Extremes(NamedTuple):
    """What the samples of a step come to; lowest and highest are not numbers where they were lost."""

    mean: float
    low: float
    high: float
    samples: int


class Answers:
    """The part of a MetricStore that only reads."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def means(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, dict[int, float]]:
        """Return, per series, the mean of each step [t, t+step) that has samples, keyed by t.

        Steps are whole multiples of `step_ms` since the epoch; one that is only partly in the window has
        the samples that are.
        """
        found = self._means(job_id, _asked(task, metric), _window(start_ms, end_ms, step_ms))
        return {key: dict(zip(steps, means, strict=True)) for key, steps, means in _series(found)}

    def means_columns(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metrics: Sequence[str],
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> MeanColumns:
        """Return the means of tasks as a whole (series of cards and with labels are left out)."""
        return self._means(
            job_id, Asked(task, tuple(metrics), whole=True), _window(start_ms, end_ms, step_ms)
        )

    def latest(
        self, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        """Return the newest sample (time, value) of every series that has one since then."""
        return {
            job: dict(zip(found.keys, zip(found.at_ms, found.values, strict=True), strict=True))
            for job, found in self._latest(job_ids, None, since_ms).items()
        }

    def latest_of(
        self, metric: str, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, LatestColumns]:
        """Return the newest samples of every series of a metric that has one since then."""
        return self._latest(job_ids, metric, since_ms)

    def extremes(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, dict[int, Extremes]]:
        """Return, per series, what the samples of each step come to, lowest and highest included."""
        window = _window(start_ms, end_ms, step_ms)
        answer = self._reading.cells(job_id, _asked(task, metric), window, extremes=True)
        if answer is None:
            return {}
        cells = answer.cells
        assert cells.low is not None, "they were asked for"
        assert cells.high is not None, "they were asked for"
        steps = (cells.steps * window.step_ms).tolist()
        columns = (cells.total / cells.count, cells.low, cells.high, cells.count)
        told = [Extremes(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
        bounds = _bounds(answer)
        return {
            key: dict(zip(steps[first:last], told[first:last], strict=True))
            for key, first, last in zip(answer.chosen.keys, bounds, bounds[1:], strict=False)
            if last > first
        }

    def _means(self, job_id: JobId, asked: Asked, window: Window) -> MeanColumns:
        if window.step_ms % MINUTE_MS == 0:
            return _joined(self._reading.means(job_id, asked, window), window.step_ms)
        answer = self._reading.cells(job_id, asked, window, extremes=False)
        if answer is None:
            return _NONE
        steps, which = np.unique(answer.cells.steps, return_inverse=True)
        means = answer.cells.total / answer.cells.count
        return MeanColumns(answer.chosen.keys, _bounds(answer), steps * window.step_ms, which, means)

    def _latest(
        self, job_ids: Sequence[JobId], metric: str | None, since_ms: int
    ) -> dict[JobId, LatestColumns]:
        return {
            JobId(job): LatestColumns(found.keys, found.at_ms.tolist(), found.values.tolist())
            for job, found in self._reading.newest(job_ids, metric, _clamped(since_ms))
        }


def _asked(task: str | None, metric: str | None) -> Asked:
    return Asked(task, None if metric is None else (metric,))


def _window(start_ms: int, end_ms: int, step_ms: int) -> Window:
    if step_ms <= 0:
        raise Invalid(f"a step must be positive, not {step_ms} ms")
    return Window(_clamped(start_ms), _clamped(end_ms), min(step_ms, AT_MS_MAX))


def _clamped(at_ms: int) -> int:
    return min(max(at_ms, 0), AT_MS_MAX)


def _bounds(answer: Answer) -> list[int]:
    """Return where the cells of each series begin, and where the last ones end."""
    return [*np.searchsorted(answer.cells.ids, answer.chosen.ids).tolist(), len(answer.cells)]


def _joined(parts: Sequence[Means], step_ms: int) -> MeanColumns:
    """Return the parts of an answer as one."""
    if not parts:
        return _NONE
    if len(parts) == 1:
        (part,) = parts
        bounds = _bounds_of(part)
        return MeanColumns(part.keys, bounds, part.steps * step_ms, part.flat.which, part.flat.means)
    bounds = [0, *np.concatenate([part.flat.sizes for part in parts]).cumsum().tolist()]
    keys = [key for part in parts for key in part.keys]
    steps = np.unique(np.concatenate([part.steps for part in parts]))
    which = np.concatenate([np.searchsorted(steps, part.steps)[_which(part)] for part in parts])
    return MeanColumns(
        keys, bounds, steps * step_ms, which, np.concatenate([part.flat.means for part in parts])
    )


def _bounds_of(part: Means) -> list[int]:
    if part.flat.which is None:  # every series has every step
        return [number * len(part.steps) for number in range(len(part.keys) + 1)]
    return [0, *part.flat.sizes.cumsum().tolist()]


def _which(part: Means) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    if part.flat.which is not None:
        return part.flat.which
    return np.tile(np.arange(len(part.steps)), len(part.keys))


def _series(found: MeanColumns) -> Iterator[tuple[SeriesKey, list[int], list[float]]]:
    """Yield the steps and means of each series that has any."""
    means, all_steps = found.means.tolist(), found.steps_ms.tolist()
    steps = None if found.which is None else found.steps_ms[found.which].tolist()
    for key, first, last in zip(found.keys, found.bounds, found.bounds[1:], strict=False):
        if last > first:
            yield key, all_steps if steps is None else steps[first:last], means[first:last]
