"""Knows how much the jobs of a pool used over time, as a share of the pool; knows no HTTP.

What is told is what Trackside measures: the tasks of the caller's jobs in the pool. What else runs on the
machines is not in it, except on their disks, which are told whole.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trackside.api.modelarts_v2.wire_pools import (
    DataPoint,
    Dimension,
    MonitorMetric,
    MonitorSeries,
    MonitorStatistic,
)
from trackside.domain.errors import Invalid
from trackside.domain.job import Job
from trackside.domain.metric import MINUTE_MS, Metric
from trackside.domain.resources import Accelerator, Capacity, Resources
from trackside.ports import SeriesKey
from trackside.service.node_disks import Disk

NO_SAMPLE = -1.0
POINTS_MAX = 1440
PERIODS = ("60", "300", "900", "3600")
VALUE_DECIMALS = 3
NAMESPACE = "trackside"
DEFAULT_RANGE = "-1.-1.60"
_RANGE = re.compile(r"(-1|[0-9]{1,15})\.(-1|[0-9]{1,15})\.(-1|[0-9]{1,9})\Z")

METRIC_OF: dict[str, Metric] = {
    "cpuUsage": Metric.CPU_PERCENT,
    "memUsedRate": Metric.MEMORY_PERCENT,
    "gpuUtil": Metric.GPU_PERCENT,
    "gpuMemUsage": Metric.GPU_MEMORY_PERCENT,
    "npuUtil": Metric.NPU_PERCENT,
    "npuMemUsage": Metric.NPU_MEMORY_PERCENT,
}
MEGABYTE = 1024 * 1024
DISK_VALUE_OF: dict[str, tuple[str, Callable[[Disk], float]]] = {
    "diskCapacity": ("Megabytes", lambda disk: disk.total_bytes / MEGABYTE),
    "diskAvailableCapacity": ("Megabytes", lambda disk: disk.free_bytes / MEGABYTE),
    "diskUsedRate": ("Percent", lambda disk: 100 * (1 - disk.free_bytes / disk.total_bytes)),
}
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "maximum": max,
    "minimum": min,
    "sum": sum,
    "average": lambda values: sum(values) / len(values),
    "sampleCount": len,
}

# What a task has, and what the pool has, of the thing a metric is percent of.
_SHARE_OF: dict[Metric, tuple[Callable[[Resources], float], Callable[[Capacity], float]]] = {
    Metric.CPU_PERCENT: (lambda task: task.cpu_cores, lambda pool: pool.cpu_cores),
    Metric.MEMORY_PERCENT: (lambda task: task.memory_bytes, lambda pool: pool.memory_bytes),
    Metric.GPU_PERCENT: (lambda task: _cards(task, Accelerator.GPU), lambda pool: pool.gpus),
    Metric.GPU_MEMORY_PERCENT: (lambda task: _cards(task, Accelerator.GPU), lambda pool: pool.gpus),
    Metric.NPU_PERCENT: (lambda task: _cards(task, Accelerator.NPU), lambda pool: pool.npus),
    Metric.NPU_MEMORY_PERCENT: (lambda task: _cards(task, Accelerator.NPU), lambda pool: pool.npus),
}

Means = Mapping[SeriesKey, Mapping[int, float]]


def steps(time_range: str, period: str, now_ms: int) -> range:
    """Return the starts of the steps a query asks for: whole ones, the last complete one at the end."""
    found = _RANGE.match(time_range)
    if not found:
        raise Invalid(f"time_range must look like startMs.endMs.minutes, not {time_range[:64]!r}")
    if period not in PERIODS:
        raise Invalid(f"period must be one of [{' '.join(PERIODS)}], not {period[:64]!r}")
    start, end, minutes = (int(part) for part in found.groups())
    span = minutes * MINUTE_MS
    if minutes < 1 and -1 in (start, end):
        raise Invalid("time_range needs minutes of at least 1 where it does not give both start and end")
    if end == -1:
        end = now_ms if start == -1 else start + span
    start = end - span if start == -1 else start
    step = int(period) * 1000
    if end <= start:
        raise Invalid("time_range: the end must come after the start")
    if (end - start) // step > POINTS_MAX:
        raise Invalid(f"time_range: at most {POINTS_MAX} points are told; take a longer period")
    return range(start // step * step, end // step * step or step, step)


@dataclass(slots=True)
class PoolMonitor:
    """Adds up what tasks used, minute by minute."""

    pool_id: str
    capacity: Capacity
    steps: range
    disks: Mapping[int, Disk] = field(default_factory=dict)  # of the pool's machines together, by minute
    _sums: dict[tuple[Metric, int], float] = field(default_factory=lambda: defaultdict(float))

    def add(self, job: Job, means: Means) -> None:
        """Take in one-minute means of a job's tasks."""
        sizes: dict[str, Resources] = {task.name: task.resources for task in (*job.past_tasks, *job.tasks)}
        for key, row in means.items():
            metric = _known(key)
            size = sizes.get(key.task)
            if metric is None or size is None:
                continue
            of_task, of_pool = _SHARE_OF[metric]
            there = of_pool(self.capacity)
            if there:
                for minute, value in row.items():
                    self._sums[metric, minute] += value * of_task(size) / there

    def answer(self, statistic: str) -> Iterator[MonitorSeries]:
        """Yield every metric, each step as the statistic of its minutes."""
        for name, metric in METRIC_OF.items():
            used = {minute: value for (of, minute), value in self._sums.items() if of is metric}
            yield self._series(name, "Percent", statistic, used)
        for name, (unit, value_of) in DISK_VALUE_OF.items():
            told = {minute: value_of(disk) for minute, disk in self.disks.items() if disk.total_bytes}
            yield self._series(name, unit, statistic, told)

    def _series(self, name: str, unit: str, statistic: str, by_minute: Mapping[int, float]) -> MonitorSeries:
        points = []
        for at_ms in self.steps:
            minutes: Iterable[int] = range(at_ms, at_ms + self.steps.step, MINUTE_MS)
            values = [by_minute[minute] for minute in minutes if minute in by_minute]
            value = MonitorStatistic(statistic=statistic, value=_value(statistic, values))
            points.append(DataPoint(timestamp=at_ms, unit=unit, statistics=[value]))
        dimensions = [Dimension(name="clusterId", value=self.pool_id)]
        return MonitorSeries(
            metric=MonitorMetric(dimensions=dimensions, metric_name=name, namespace=NAMESPACE),
            data_points=points,
        )


def _known(key: SeriesKey) -> Metric | None:
    """Return the metric of a series that stands for a whole task."""
    if key.card is not None or key.labels:
        return None
    return next((metric for metric in _SHARE_OF if metric == key.metric), None)


def _value(statistic: str, values: Sequence[float]) -> float:
    return round(STATISTICS[statistic](values), VALUE_DECIMALS) if values else NO_SAMPLE


def _cards(task: Resources, family: Accelerator) -> int:
    return task.cards if task.accelerator is family else 0
