"""Knows how measurements read in ModelArts v1: eight names, one text per minute, KB/s.

Knows neither how samples are kept nor what was asked over HTTP. A KB is 1024 bytes.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from trackside.api.modelarts_v1.wire_response import Series, SystemMetrics
from trackside.domain.errors import Invalid
from trackside.domain.job import Job
from trackside.domain.metric import MINUTE_MS, Metric
from trackside.ports import SeriesKey

NO_SAMPLE = "-1"
KB = 1024
VALUE_DECIMALS = 3
STATISTIC_TYPES = ("all", "each")
TASK_MINUTES_MAX = 50_000  # of a version's system_metric_list; more is told in longer intervals


class Shown(NamedTuple):
    """One metric of the dialect: what it is here, and how many of our units make one of its."""

    metric: Metric
    unit: int
    adds_up: bool  # over tasks: rates do, percentages do not
    per_card: bool


METRIC_OF: dict[str, Shown] = {
    "cpuUsage": Shown(Metric.CPU_PERCENT, 1, adds_up=False, per_card=False),
    "memUsage": Shown(Metric.MEMORY_PERCENT, 1, adds_up=False, per_card=False),
    "diskReadRate": Shown(Metric.DISK_READ_BYTES_PER_SECOND, KB, adds_up=True, per_card=False),
    "diskWriteRate": Shown(Metric.DISK_WRITE_BYTES_PER_SECOND, KB, adds_up=True, per_card=False),
    "recvBytesRate": Shown(Metric.NETWORK_RECEIVE_BYTES_PER_SECOND, KB, adds_up=True, per_card=False),
    "sendBytesRate": Shown(Metric.NETWORK_SEND_BYTES_PER_SECOND, KB, adds_up=True, per_card=False),
    "gpuUtil": Shown(Metric.GPU_PERCENT, 1, adds_up=False, per_card=True),
    "gpuMemUsage": Shown(Metric.GPU_MEMORY_PERCENT, 1, adds_up=False, per_card=True),
}
_BY_FOLDED = {name.casefold(): name for name in METRIC_OF}
DOCUMENTED_NAMES = tuple(name[0].upper() + name[1:] for name in METRIC_OF)


def asked_names(text: str | None) -> list[str]:
    """Return the metrics that are asked for, each once; all when none is named."""
    parts = [part.strip() for part in re.split("[,，]", text or "") if part.strip()]  # noqa: RUF001
    unknown = [part for part in parts if part.casefold() not in _BY_FOLDED]
    if unknown:
        raise Invalid(
            f"metrics: {unknown[0][:64]!r} is not a metric; there are {', '.join(DOCUMENTED_NAMES)}"
        )
    return list(dict.fromkeys(_BY_FOLDED[part.casefold()] for part in parts)) or list(METRIC_OF)


def series(name: str, means: Iterable[float | None], card: int | None = None) -> Series:
    """Return one metric of the answer."""
    return Series(metric=name, value=texts(name, means), card=card)


def texts(name: str, means: Iterable[float | None]) -> list[str]:
    """Return values as the dialect writes them."""
    unit = METRIC_OF[name].unit
    return [NO_SAMPLE if mean is None else _text(mean / unit) for mean in means]


def job_steps(job: Job, now_ms: int, *, task_minutes_max: int = TASK_MINUTES_MAX) -> tuple[range, int]:
    """Return the steps of a version's life and their length in minutes: 1, unless there were too many.

    They begin with the minute in which the first task started. While the version runs they end with the last
    complete one; once it is over, with the one in which the last task ended.
    """
    tasks = (*job.past_tasks, *job.tasks)
    starts = [task.started_at_ms for task in tasks if task.started_at_ms is not None]
    if not starts:
        return range(0), 1
    first, end = min(starts), now_ms // MINUTE_MS * MINUTE_MS
    if job.final:
        end = max((task.ended_at_ms for task in tasks if task.ended_at_ms is not None), default=first) + 1
    minutes = max(0, end - first) // MINUTE_MS + 1
    interval = max(1, math.ceil(minutes * job.spec.node_count / max(1, task_minutes_max)))
    step_ms = interval * MINUTE_MS
    return range(first // step_ms * step_ms, end, step_ms), interval


def system_metrics(
    found: Mapping[SeriesKey, Mapping[int, float]], steps: range, interval: int
) -> SystemMetrics:
    """Return how much all tasks of a version used: the mean of percentages, the sum of rates."""
    values = {
        name: texts(name, _joined([row for key, row in found.items() if _is_of(key, shown)], steps, shown))
        for name, shown in METRIC_OF.items()
    }
    return msgspec.convert({**values, "interval": interval}, SystemMetrics)


def _is_of(key: SeriesKey, shown: Shown) -> bool:
    return key.metric == shown.metric and key.card is None


def _joined(rows: Sequence[Mapping[int, float]], steps: range, shown: Shown) -> Iterable[float | None]:
    for step in steps:
        values = [row[step] for row in rows if step in row]
        if not values:
            yield None
        else:
            yield sum(values) if shown.adds_up else sum(values) / len(values)


def _text(value: float) -> str:
    if not math.isfinite(value):
        return NO_SAMPLE
    text = f"{max(0.0, value):.{VALUE_DECIMALS}f}".rstrip("0").rstrip(".")
    return text or "0"
