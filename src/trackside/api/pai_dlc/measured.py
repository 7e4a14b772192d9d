"""Knows how samples read in PAI-DLC: metric types, steps, windows, units."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from trackside.api.operation import Call
from trackside.api.pai_dlc.checks import SHOWN_CHARACTERS_MAX, window
from trackside.api.pai_dlc.ids import job_id, pod_id
from trackside.api.pai_dlc.points import VALUE_DECIMALS, Piece, PointTexts
from trackside.domain.errors import Invalid
from trackside.domain.job import Job, task_names
from trackside.domain.metric import Metric
from trackside.domain.resources import Resources
from trackside.ports import MeanColumns, SeriesKey

HOUR_MS = 3600 * 1000
MB_BYTES = 1024 * 1024
STEP_MS_DEFAULT = 5 * 60 * 1000
STEP_MS_MAX = 24 * HOUR_MS
POINTS_MAX = 11_000  # of one pod in one answer
NAMESPACE = "acs_pai_dlc"
PERIODS = ("15", "60", "900", "3600")

Unit = Callable[[float, Resources], float]
Means = Mapping[SeriesKey, Mapping[int, float]]
Point = dict[str, Any]  # as it is written


def _as_is(value: float, _: Resources) -> float:
    return value


def _over(divisor: float) -> Unit:
    return lambda value, _: value / divisor


def _free_bytes(value: float, given: Resources) -> float:
    return given.memory_bytes * max(0.0, 100.0 - value) / 100.0


METRIC_TYPES: dict[str, tuple[Metric, float]] = {  # and how many of our units make one of theirs
    "GpuCoreUsage": (Metric.GPU_PERCENT, 1),
    "GpuMemoryUsage": (Metric.GPU_MEMORY_PERCENT, 1),
    "CpuCoreUsage": (Metric.CPU_PERCENT, 1),
    "MemoryUsage": (Metric.MEMORY_PERCENT, 1),
    "NetworkInputRate": (Metric.NETWORK_RECEIVE_BYTES_PER_SECOND, MB_BYTES),
    "NetworkOutputRate": (Metric.NETWORK_SEND_BYTES_PER_SECOND, MB_BYTES),
    "DiskReadRate": (Metric.DISK_READ_BYTES_PER_SECOND, MB_BYTES),
    "DiskWriteRate": (Metric.DISK_WRITE_BYTES_PER_SECOND, MB_BYTES),
}


@dataclass(frozen=True, slots=True)
class CmsMetric:
    """A name of the monitoring service: what it measures, and whether card by card."""

    metric: Metric
    unit: Unit = _as_is
    cards: bool = False


CMS_METRICS: dict[str, CmsMetric] = {
    "JOB_CPU_UTIL": CmsMetric(Metric.CPU_PERCENT),
    "JOB_MEMORY_UTIL": CmsMetric(Metric.MEMORY_PERCENT),
    "JOB_MEMORY_FREE": CmsMetric(Metric.MEMORY_PERCENT, _free_bytes),
    "JOB_GPU_ACCELERATOR_DUTTY_UTIL": CmsMetric(Metric.GPU_PERCENT),  # the vendor's own spelling
    "JOB_GPU_MEMORY_UTIL": CmsMetric(Metric.GPU_MEMORY_PERCENT),
    "CARD_GPU_ACCELERATOR_DUTTY_UTIL": CmsMetric(Metric.GPU_PERCENT, cards=True),
    "CARD_GPU_MEMORY_UTIL": CmsMetric(Metric.GPU_MEMORY_PERCENT, cards=True),
} | {name: CmsMetric(metric, _over(divisor)) for name, (metric, divisor) in METRIC_TYPES.items()}

_STEP = re.compile(r"([0-9]{1,9})([smh]?)")
_STEP_UNITS_MS = {"": 60_000, "s": 1000, "m": 60_000, "h": HOUR_MS}


def metric_type(call: Call) -> str:
    """Return the MetricType of the query, or say which there are."""
    given = call.query_one("MetricType")
    valid = ", ".join(METRIC_TYPES)
    if given is None:
        raise Invalid(f"MetricType is missing; it may be {valid}")
    if given not in METRIC_TYPES:
        raise Invalid(f"MetricType must be one of {valid}, not {given[:SHOWN_CHARACTERS_MAX]!r}")
    return given


def step_ms(call: Call) -> int:
    """Return the TimeStep of the query in milliseconds."""
    given = call.query_one("TimeStep")
    if given is None:
        return STEP_MS_DEFAULT
    match = _STEP.fullmatch(given.strip())
    step = int(match[1]) * _STEP_UNITS_MS[match[2]] if match else 0
    if not 0 < step <= STEP_MS_MAX:
        raise Invalid(
            "TimeStep must be minutes such as 5, or a number with its unit such as 30s, 5m or 1h, of at most "
            f"24h, not {given[:SHOWN_CHARACTERS_MAX]!r}"
        )
    return step


def steps(call: Call, step: int, *, now: int) -> tuple[int, int]:
    """Return the window of the query, widened to whole steps of the epoch."""
    start, end = window(call, now=now, before_ms=HOUR_MS)
    first, last = start // step * step, -(-min(end, now) // step) * step
    points = (last - first) // step
    if points > POINTS_MAX:
        fitting = -(-(last - first) // (POINTS_MAX * 1000))
        raise Invalid(
            f"the window from StartTime to EndTime has {points:,} steps; at most {POINTS_MAX:,} are told at "
            f"once: ask for a shorter window, or for steps of at least {fitting}s"
        )
    return first, last


def pod_metrics(job: Job, found: MeanColumns, name: str) -> Iterator[Piece]:
    """Yield, as pieces of JSON, every pod with its points in the unit of the metric type.

    Steps without samples are left out.
    """
    points = PointTexts(found, METRIC_TYPES[name][1])
    place = {key.task: number for number, key in enumerate(found.keys)}
    begin = b'{"PodId":' + orjson.dumps(pod_id(job, ""))[:-1]
    between = b""
    for task in task_names(job.spec):
        yield b'%b%b%b","Metrics":[' % (between, begin, task.encode())
        number = place.get(task)
        if number is not None:
            yield points.of(number)
        yield b"]}"
        between = b","


def cms_points(job: Job, found: Means, wanted: CmsMetric, task: str | None) -> list[Point]:
    """Return the points as the monitoring service writes them, by time: of one pod, of every card, or of
    the job, which is the mean over its pods."""
    points: list[Point] = []
    for name, resources in _tasks(job):
        if task not in (None, name):
            continue
        for key, means in found.items():
            if key.task == name and key.metric == wanted.metric and (key.card is not None) is wanted.cards:
                card = {"gpu": key.card} if wanted.cards else {}
                for at_ms, value in _told(means, wanted.unit, resources):
                    pod = {"pod": pod_id(job, name)}
                    points.append({"timestamp": at_ms, "jobId": job_id(job), **pod, **card, "Average": value})
    points.sort(key=lambda point: (point["timestamp"], point["pod"], point.get("gpu", 0)))
    return points if wanted.cards or task else list(_of_the_job(points))


def dimensions(call: Call) -> dict[str, str]:
    """Return the Dimensions of the query: one object, or a list of one."""
    text = call.query_one("Dimensions")
    if text is None:
        return {}
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise Invalid(
            'Dimensions must be one JSON object of texts, such as [{"jobId":"dlc…","pod":"dlc…-worker-0"}]; '
            "ask once for every pod"
        )
    return given


def _tasks(job: Job) -> Iterator[tuple[str, Resources]]:
    sizes = {role.name: role.resources for role in job.spec.roles}
    for name in task_names(job.spec):
        yield name, sizes[name.rpartition("-")[0]]


def _told(means: Mapping[int, float], unit: Unit, given: Resources) -> Iterator[tuple[int, float]]:
    for at_ms in sorted(means):
        value = means[at_ms]
        if math.isfinite(value):
            yield at_ms, round(float(unit(value, given)), VALUE_DECIMALS)


def _of_the_job(points: list[Point]) -> Iterator[Point]:
    values: dict[int, list[float]] = {}
    for point in points:
        values.setdefault(point["timestamp"], []).append(point["Average"])
    for at_ms, some in values.items():
        mean = round(sum(some) / len(some), VALUE_DECIMALS)
        yield {"timestamp": at_ms, "jobId": points[0]["jobId"], "Average": mean}
