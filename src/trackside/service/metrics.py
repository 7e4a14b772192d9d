"""Knows how samples become what callers see: the one-minute grid of a task."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from trackside.domain.errors import TaskNotFound
from trackside.domain.identity import Caller
from trackside.domain.job import Job, JobId, Task, task_names
from trackside.domain.metric import MINUTE_MS, Metric, minute_grid
from trackside.ports import Clock, LatestOfMetric, MeansInColumns, MetricStore, SeriesKey
from trackside.service.jobs import Jobs

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MinuteGrid:
    """One mean per whole clock minute since a task first started; None where nothing was measured."""

    start_ms: int | None  # None: it never started
    values: dict[Metric, list[float | None]]


class Metrics:
    """Answer how much a task used."""

    def __init__(self, jobs: Jobs, store: MetricStore, clock: Clock) -> None:
        self._jobs = jobs
        self._store = store
        self._clock = clock

    async def minutes(self, caller: Caller, job_id: str, task_name: str) -> MinuteGrid:
        """Return the one-minute means of every metric of a task."""
        job = self._jobs.show(caller, job_id)
        span = grid_span(job, task_name, self._clock.now_ms())
        if span is None:
            return MinuteGrid(start_ms=None, values={metric: [] for metric in Metric})
        grid = minute_grid(*span) if span[1] > span[0] else range(0)
        found = await self._ask(
            self._store.means,
            job.id,
            task=task_name,
            start_ms=span[0] // MINUTE_MS * MINUTE_MS,
            end_ms=span[1],
            step_ms=MINUTE_MS,
        )
        values = {metric: _row(found.get(SeriesKey(task_name, metric)), grid) for metric in Metric}
        return MinuteGrid(start_ms=span[0] // MINUTE_MS * MINUTE_MS, values=values)

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
    ) -> dict[SeriesKey, tuple[list[int], list[float]]]:
        """Return, per series of a metric, the steps that have samples, ascending, and their means."""
        window = {"start_ms": start_ms, "end_ms": end_ms, "step_ms": step_ms}
        if isinstance(self._store, MeansInColumns):
            job = self._jobs.show(caller, job_id)
            return await self._ask(self._store.means_columns, job.id, task=None, metric=metric, **window)
        found = await self.series(caller, job_id, task=None, metric=metric, **window)
        return {key: (sorted(means), [means[at] for at in sorted(means)]) for key, means in found.items()}

    async def latest(
        self, caller: Caller, job_ids: Sequence[str], *, metric: str, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        """Return the newest value of a metric, since then, of every series of some jobs."""
        ids = [self._jobs.show(caller, job_id).id for job_id in job_ids]
        if isinstance(self._store, LatestOfMetric):
            return await self._ask(self._store.latest_of, metric, ids, since_ms=since_ms)
        found = await self._ask(self._store.latest, ids, since_ms=since_ms)
        return {
            job_id: {key: value for key, value in newest.items() if key.metric == metric}
            for job_id, newest in found.items()
        }

    async def _ask(self, query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query here if it only reads a file, and beside the event loop if it waits for a machine."""
        if self._store.remote:
            return await asyncio.to_thread(query, *args, **kwargs)
        return query(*args, **kwargs)

    def revision(self, caller: Caller, job_id: str, task_name: str) -> tuple[int, ...]:
        """Return a value that differs whenever `minutes` would answer something else."""
        job = self._jobs.show(caller, job_id)
        span = grid_span(job, task_name, self._clock.now_ms())
        return (job.revision, self._store.revision(job.id), span[1] if span else 0)


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


def _row(found: dict[int, float] | None, grid: range) -> list[float | None]:
    return [None] * len(grid) if not found else [found.get(minute) for minute in grid]
