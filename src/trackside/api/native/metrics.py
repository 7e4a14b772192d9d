"""Knows the rows of Trackside's own API that tell what was measured."""

import msgspec
import orjson

from trackside.api.native import PREFIX
from trackside.api.operation import Call, Operation, Param, Raw
from trackside.domain.errors import Invalid

POINTS_MAX = 11_000
LATEST_JOBS_MAX = 1_000
RAW_MS_MAX = 3_600_000  # of single samples at once: a series seldom has one every second


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One series: means of each step that has samples."""

    task: str
    metric: str
    card: int | None
    labels: dict[str, str]
    points: list[tuple[int, float]]


class SeriesList(msgspec.Struct, frozen=True, kw_only=True):
    """The series of a job."""

    series: list[Series]


class LatestValue(msgspec.Struct, frozen=True, kw_only=True):
    """The newest sample of a series."""

    job_id: str
    task: str
    card: int | None
    labels: tuple[tuple[str, str], ...]
    at_ms: int
    value: float


class LatestList(msgspec.Struct, frozen=True, kw_only=True):
    """The newest samples of a metric."""

    metric: str
    values: list[LatestValue]


async def show_series(call: Call) -> SeriesList:
    """Return the job's series, averaged over steps."""
    start, end = _number(call, "start_ms"), _number(call, "end_ms")
    raw = call.query_one("raw") == "true"
    step = 1 if raw else int(call.query_one("step_ms") or 60_000)
    if end <= start or (end - start) // step > (RAW_MS_MAX if raw else POINTS_MAX):
        raise Invalid(
            f"end_ms must come after start_ms, and at most {POINTS_MAX:,} steps fit between them,"
            " or an hour of single samples"
        )
    found = await call.services.metrics.series(
        call.caller,
        call.path["job_id"],
        task=call.query_one("task"),
        start_ms=start,
        end_ms=end,
        step_ms=step,
    )
    series = [
        Series(
            task=key.task,
            metric=key.metric,
            card=key.card,
            labels=dict(key.labels),
            points=sorted(points.items()),
        )
        for key, points in found.items()
    ]
    return SeriesList(series=series)


async def list_latest(call: Call) -> Raw:
    """Return the newest value of a metric of every task of some jobs."""
    metric, jobs = call.query_one("metric") or "", call.query.get("job_id", [])
    if len(jobs) > LATEST_JOBS_MAX:
        raise Invalid(f"at most {LATEST_JOBS_MAX:,} jobs may be asked for at once, not {len(jobs):,}")
    found = await call.services.metrics.latest(
        call.caller, jobs, metric=metric, since_ms=_number(call, "since_ms")
    )
    # As plain values: there may be tens of thousands.
    values = [
        {
            "job_id": job_id,
            "task": key.task,
            "card": key.card,
            "labels": key.labels,
            "at_ms": at_ms,
            "value": value,
        }
        for job_id, newest in found.items()
        for key, at_ms, value in zip(newest.keys, newest.at_ms, newest.values, strict=True)
    ]
    return Raw(content=orjson.dumps({"metric": metric, "values": values}))


def _number(call: Call, name: str) -> int:
    value = call.query_one(name)
    if value is None:
        raise Invalid(f"{name} is needed")
    return int(value)


OPERATIONS = (
    Operation(
        name="ShowJobSeries",
        method="GET",
        path=f"{PREFIX}/jobs/{{job_id}}/metrics",
        action="trackside:job:get",
        handler=show_series,
        summary="Return a job's series, averaged over steps",
        response=SeriesList,
        query=(
            Param(name="task", max_length=128),
            Param(name="start_ms", type=int, required=True, minimum=0, maximum=2**53),
            Param(name="end_ms", type=int, required=True, minimum=0, maximum=2**53),
            Param(name="step_ms", type=int, minimum=1000, maximum=86_400_000),
            Param(name="raw", type=bool, description="every sample as it was measured"),
        ),
    ),
    Operation(
        name="ListLatest",
        method="GET",
        path=f"{PREFIX}/latest",
        action="trackside:job:get",
        handler=list_latest,
        prompt=True,
        summary="Return the newest value of a metric of every task of some jobs",
        response=LatestList,
        query=(
            Param(name="job_id", repeated=True, required=True, max_length=128),
            Param(name="metric", required=True, max_length=128),
            Param(name="since_ms", type=int, required=True, minimum=0, maximum=2**53),
        ),
    ),
)
