"""Knows how details and metrics become bytes, and when bytes of an earlier answer still hold.

The one number in a job's details that changes without the job being stored anew is the duration of a
running one. The bytes are therefore kept in two parts, and the duration is written between them.
"""

from dataclasses import dataclass

import msgspec

from trackside.api.digits import list_of
from trackside.api.encoded import EncodedCache
from trackside.api.modelarts_v2.sizes import FlavorLookup
from trackside.api.modelarts_v2.translate_job import from_job
from trackside.domain.job import Job
from trackside.domain.metric import Metric
from trackside.domain.timing import running_time
from trackside.service.metrics import MinuteGrid

METRIC_OF = {
    "cpuUsage": Metric.CPU_PERCENT,
    "memUsage": Metric.MEMORY_PERCENT,
    "gpuUtil": Metric.GPU_PERCENT,
    "gpuMemUsage": Metric.GPU_MEMORY_PERCENT,
    "npuUtil": Metric.NPU_PERCENT,
    "npuMemUsage": Metric.NPU_MEMORY_PERCENT,
}

# No other field of the answer is called duration and negative, and quotes inside texts are escaped.
_UNKNOWN_DURATION = -1
_GAP = b'"duration":-1'


@dataclass(frozen=True, slots=True)
class _Details:
    """The bytes around a job's duration, and what the duration is made of."""

    before: bytes
    after: bytes
    done_ms: int
    since_ms: int | None


_details: EncodedCache[_Details] = EncodedCache()
_metrics: EncodedCache[bytes] = EncodedCache()


def details(job: Job, *, flavor_of: FlavorLookup, now_ms: int) -> bytes:
    """Return the job's details as JSON."""
    version = (job.revision, *(flavor_of(role.flavor_id) for role in job.spec.roles if role.flavor_id))
    known = _details.get(job.id, version)
    if known is None:
        known = _encode(job, flavor_of)
        _details.put(job.id, version, known, size_bytes=len(known.before) + len(known.after))
    duration = known.done_ms if known.since_ms is None else known.done_ms + max(0, now_ms - known.since_ms)
    return b"%b%d%b" % (known.before, duration, known.after)


def cached_metrics(key: tuple[str, str], version: object) -> bytes | None:
    """Return the metrics of a task if they are still what was told last."""
    return _metrics.get(key, version)


def metrics(key: tuple[str, str], version: object, grid: MinuteGrid) -> bytes:
    """Return the metrics of a task as JSON, and keep them for this version."""
    series = [
        b'{"metric":"%b","value":%b}' % (name.encode(), list_of(grid.values[metric]))
        for name, metric in METRIC_OF.items()
    ]
    content = b'{"metrics":[%b]}' % b",".join(series)
    _metrics.put(key, version, content, size_bytes=len(content))
    return content


def _encode(job: Job, flavor_of: FlavorLookup) -> _Details:
    answer = from_job(job, flavor_of=flavor_of, now_ms=job.created_at_ms)
    answer.status.duration = _UNKNOWN_DURATION
    before, gap, after = msgspec.json.encode(answer).partition(_GAP)
    assert gap, "details always tell a duration"
    done_ms, since_ms = running_time(job)
    return _Details(before + b'"duration":', after, done_ms, since_ms)
