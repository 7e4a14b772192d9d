import json
import uuid
from dataclasses import replace
from typing import Any

import numpy as np

from tests.unit.api.modelarts_v2.samples import (
    DOCUMENTED_METRICS,
    body_with,
    flavor_of,
    job_of,
    spec_of,
)
from trackside.api.encoded import ENTRY_OVERHEAD_BYTES, EncodedCache
from trackside.api.modelarts_v2 import render
from trackside.domain.job import Job, JobId, Record
from trackside.domain.metric import Metric
from trackside.domain.phase import Phase
from trackside.domain.resources import Flavor
from trackside.service.metrics import MinuteGrid

T0 = 1_700_000_000_000


def a_job(**fields: Any) -> Job:
    body = body_with(command='echo "duration":-1', environments={"duration": "-1"})
    body["spec"] = {"auto_stop": {"time_unit": "HOURS", "duration": 7}}
    return replace(job_of(spec_of(body), **fields), id=JobId(str(uuid.uuid4())))


def told(job: Job, now_ms: int = T0) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(render.details(job, flavor_of=flavor_of, now_ms=now_ms))
    return answer


def test_the_duration_of_a_running_job_grows_between_stored_changes() -> None:
    job = a_job(phase=Phase.RUNNING, records=(Record(number=1, queued_at_ms=T0, running_at_ms=T0),))
    first, second = told(job, T0 + 1000), told(job, T0 + 5000)
    assert (first["status"]["duration"], second["status"]["duration"]) == (1000, 5000)
    assert second["spec"]["auto_stop"]["duration"] == 7
    assert second["algorithm"]["command"] == 'echo "duration":-1'
    first["status"]["duration"] = 5000
    assert first == second


def test_a_stored_change_is_told_at_once() -> None:
    job = a_job()
    assert told(job)["status"]["phase"] == "Pending"
    assert told(replace(job, phase=Phase.RUNNING, revision=1))["status"]["phase"] == "Running"


def test_a_flavor_that_changes_is_told_at_once() -> None:
    job = a_job()
    before = told(job)["spec"]["resource"]["flavor_detail"]["flavor_info"]["max_num"]

    def grown(flavor_id: str) -> Flavor | None:
        found = flavor_of(flavor_id)
        return replace(found, nodes_max=before + 1) if found else None

    answer = json.loads(render.details(job, flavor_of=grown, now_ms=T0))
    assert answer["spec"]["resource"]["flavor_detail"]["flavor_info"]["max_num"] == before + 1


def test_metrics_read_as_documented() -> None:
    documented = {row["metric"]: row["value"] for row in DOCUMENTED_METRICS["metrics"]}
    values = {
        metric: np.array([np.nan if value == -1 else value for value in documented[name]])
        for name, metric in render.METRIC_OF.items()
    }
    content = render.metrics(("j", "worker-0"), 1, MinuteGrid(start_ms=T0, values=values))
    assert json.loads(content) == DOCUMENTED_METRICS
    assert render.cached_metrics(("j", "worker-0"), 1) == content
    assert render.cached_metrics(("j", "worker-0"), 2) is None


def test_numbers_json_does_not_have_are_no_sample_and_the_rest_has_three_decimals() -> None:
    values = dict.fromkeys(render.METRIC_OF.values(), np.empty(0))
    values[Metric.CPU_PERCENT] = np.array([float("nan"), float("inf"), 1.23456, 0.0])
    answer = json.loads(render.metrics(("k", "worker-0"), 1, MinuteGrid(start_ms=T0, values=values)))
    assert answer["metrics"][0] == {"metric": "cpuUsage", "value": [-1, -1, 1.235, 0.0]}
    assert [row["value"] for row in answer["metrics"][1:]] == [[]] * 5


def test_the_cache_drops_the_least_recently_used() -> None:
    room = 8 * (ENTRY_OVERHEAD_BYTES + 100)
    cache: EncodedCache[str] = EncodedCache(room)
    for number in range(8):
        cache.put(number, 1, str(number), size_bytes=100)
    assert cache.get(0, 1) == "0"
    cache.put(8, 1, "8", size_bytes=100)
    assert cache.get(1, 1) is None, "the one that was not asked for longest"
    assert cache.get(0, 1) == "0"
    assert len(cache) == 8


def test_the_cache_replaces_an_older_version_and_keeps_no_giants() -> None:
    cache: EncodedCache[str] = EncodedCache(80_000)
    cache.put("k", 1, "old", size_bytes=100)
    cache.put("k", 2, "new", size_bytes=100)
    assert (cache.get("k", 1), cache.get("k", 2), len(cache)) == (None, "new", 1)
    cache.put("k", 3, "giant", size_bytes=10_001)
    assert len(cache) == 0
