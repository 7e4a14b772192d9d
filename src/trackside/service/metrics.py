"""Knows how samples become what callers see: the one-minute grid of a task."""

import asyncio
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from trackside.domain.errors import TaskNotFound
from trackside.domain.identity import Caller
from trackside.domain.job import Job, JobId, Task, task_names
from trackside.domain.metric import MINUTE_MS, Metric, minute_grid
from trackside.ports import (
    Clock,
    LatestColumns,
    LatestOfMetric,
    MeanColumns,
    MeansInColumns,
    MetricStore,
    SeriesKey,
)
from trackside.service.jobs import Jobs

REMOTE_STEP_MS = 1_000  # what a remote store can be asked for at the finest

P = ParamSpec("P")
T = TypeVar("T")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteGrid:
    """One mean per whole clock minute since a task first started; not a number where nothing was measured."""

    start_ms: int | None  # None: it never started
    values: dict[Metric, Floats]

    def told(self, metric: Metric) -> list[float | None]:
        """Return the means of a metric one by one."""
        return [None if math.isnan(mean) else mean for mean in self.values[metric].tolist()]


class Metrics:
    """Answer how much a task used."""

    def __init__(self, jobs: Jobs, store: MetricStore, clock: Clock) -> None:
        self._jobs = jobs
        self._store = store
        self._clock = clock
        # Asked once: whether a class has what a protocol names takes long to find out.
        self._column_store = store if isinstance(store, MeansInColumns) else None
        self._newest_store = store if isinstance(store, LatestOfMetric) else None

    @property
    def finest_step_ms(self) -> int:
        """Return the step that gives every sample by itself; a remote store is asked second by second."""
        return REMOTE_STEP_MS if self._store.remote else 1

    async def minutes(
        self, caller: Caller, job_id: str, task_name: str, metrics: Sequence[Metric]
    ) -> MinuteGrid:
        """Return the one-minute means of some metrics of a task."""
        job = self._jobs.show(caller, job_id)
        span = grid_span(job, task_name, self._clock.now_ms())
        if span is None:
            return MinuteGrid(start_ms=None, values={metric: np.empty(0) for metric in metrics})
        grid = minute_grid(*span) if span[1] > span[0] else range(0)
        start = span[0] // MINUTE_MS * MINUTE_MS
        found = await self._columns(
            job, task=task_name, metrics=metrics, start_ms=start, end_ms=span[1], step_ms=MINUTE_MS
        )
        values = {metric: np.full(len(grid), np.nan) for metric in metrics}
        minutes = (found.steps_ms - start) // MINUTE_MS
        for key, first, last in zip(found.keys, found.bounds, found.bounds[1:], strict=False):
            if last > first:
                where = minutes if found.which is None else minutes[found.which[first:last]]
                values[Metric(key.metric)][where] = found.means[first:last]
        return MinuteGrid(start_ms=start, values=values)

    async def series(
        self,
        caller: Caller,
        job_id: str,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, dict[int, float]]:
        """Return the means of each step that has samples, for every series that is asked for."""
        job = self._jobs.show(caller, job_id)
        return await self._ask(
            self._store.means,
            job.id,
            task=task,
            metric=metric,
            start_ms=start_ms,
            end_ms=end_ms,
            step_ms=step_ms,
        )

    async def columns(
        self, caller: Caller, job_id: str, *, metric: str, start_ms: int, end_ms: int, step_ms: int
    ) -> MeanColumns:
        """Return the means of a metric, of every task as a whole, of each step that has samples."""
        return await self._columns(
            self._jobs.show(caller, job_id),
            task=None,
            metrics=(metric,),
            start_ms=start_ms,
            end_ms=end_ms,
            step_ms=step_ms,
        )

    async def latest(
        self, caller: Caller, job_ids: Sequence[str], *, metric: str, since_ms: int
    ) -> dict[JobId, LatestColumns]:
        """Return the newest value of a metric, since then, of every series of some jobs."""
        ids = [self._jobs.show(caller, job_id).id for job_id in job_ids]
        if self._newest_store is not None:
            return await self._ask(self._newest_store.latest_of, metric, ids, since_ms=since_ms)
        found = await self._ask(self._store.latest, ids, since_ms=since_ms)
        return {job_id: _newest_of(metric, newest) for job_id, newest in found.items()}

    async def _columns(
        self, job: Job, *, task: str | None, metrics: Sequence[str], start_ms: int, end_ms: int, step_ms: int
    ) -> MeanColumns:
        window = {"start_ms": start_ms, "end_ms": end_ms, "step_ms": step_ms}
        if self._column_store is not None:
            ask = self._column_store.means_columns
            return await self._ask(ask, job.id, task=task, metrics=metrics, **window)
        metric = metrics[0] if len(metrics) == 1 else None
        found = await self._ask(self._store.means, job.id, task=task, metric=metric, **window)
        return _as_columns({key: one for key, one in found.items() if _whole(key) and key.metric in metrics})

    async def _ask(self, query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query here if it only reads a file, and beside the event loop if it waits for a machine."""
        if self._store.remote:
            return await asyncio.to_thread(query, *args, **kwargs)
        return query(*args, **kwargs)

    def revision(self, caller: Caller, job_id: str, task_name: str) -> tuple[int, ...]:
        """Return a value that differs whenever `minutes` would answer something else."""
        job = self._jobs.show(caller, job_id)
        span = grid_span(job, task_name, self._clock.now_ms())
        return (*self.version(job), span[1] if span else 0)

    def version(self, job: Job) -> tuple[int, int]:
        """Return a value that differs whenever the job or its samples do; take it before reading them."""
        return (job.revision, self._store.revision(job.id))


def grid_span(job: Job, task_name: str, now_ms: int) -> tuple[int, int] | None:
    """Return [start, end) of the minutes to show: complete ones while it runs, all once it has ended."""
    if task_name not in task_names(job.spec):
        raise TaskNotFound(
            f"job {job.id} has no task {task_name!r}; it has {', '.join(task_names(job.spec)[:8])}"
        )
    runs = [task for task in (*job.past_tasks, *job.tasks) if task.name == task_name]
    starts = [task.started_at_ms for task in runs if task.started_at_ms is not None]
    if not starts:
        return None
    first = min(starts)
    return first, max(first, _end(runs[-1], job, now_ms))


def _end(latest: Task, job: Job, now_ms: int) -> int:
    if latest.ended_at_ms is not None and job.final:
        return latest.ended_at_ms + 1
    return now_ms // MINUTE_MS * MINUTE_MS  # the minute that is going on is not complete yet


def _whole(key: SeriesKey) -> bool:
    return key.card is None and not key.labels


def _as_columns(found: Mapping[SeriesKey, Mapping[int, float]]) -> MeanColumns:
    """Return means that came one by one as columns."""
    rows = [(key, sorted(means)) for key, means in found.items()]
    every = np.array([at_ms for _, steps in rows for at_ms in steps], np.int64)
    means = np.array([found[key][at_ms] for key, steps in rows for at_ms in steps], np.float64)
    steps_ms, which = np.unique(every, return_inverse=True)
    bounds = [0, *itertools.accumulate(len(steps) for _, steps in rows)]
    return MeanColumns([key for key, _ in rows], bounds, steps_ms, which, means)


def _newest_of(metric: str, newest: Mapping[SeriesKey, tuple[int, float]]) -> LatestColumns:
    own = [(key, *sample) for key, sample in newest.items() if key.metric == metric]
    keys, at_ms, values = zip(*own, strict=True) if own else ((), (), ())
    return LatestColumns(keys, at_ms, values)
