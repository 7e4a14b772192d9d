"""GetJobMetrics and GetMetrics: types, steps, windows, units, pods; and the documented example."""

import json
from typing import Any

import pytest

from tests.unit.api.pai_dlc.harness import WORKER, Api
from trackside.api.pai_dlc.checks import now_ms, time_text
from trackside.api.pai_dlc.measured import METRIC_TYPES
from trackside.domain.metric import Metric
from trackside.domain.resources import GIB

HOUR_MS = 3_600_000
MB = 1024 * 1024
# A whole hour in the past, so that steps of all sizes begin there.
BASE = (now_ms() - 5 * HOUR_MS) // HOUR_MS * HOUR_MS
WINDOW = {"StartTime": time_text(BASE), "EndTime": time_text(BASE + HOUR_MS)}


@pytest.fixture
def job_id(api: Api) -> str:
    return api.make(JobSpecs=[{**WORKER, "PodCount": 2}])


def points(api: Api, job_id: str, **query: str) -> dict[str, list[tuple[int, float]]]:
    answer = api.get(f"jobs/{job_id}/metrics", **query)
    assert set(answer) == {"JobId", "PodMetrics", "RequestId"}
    return {
        pod["PodId"].removeprefix(f"{job_id}-"): [(one["Time"], one["Value"]) for one in pod["Metrics"]]
        for pod in answer["PodMetrics"]
    }


def test_the_documented_example_is_answered_in_its_shape(api: Api, job_id: str) -> None:
    """Seed 001: GpuMemoryUsage at 5m between two moments."""
    at_ms = BASE + 1000
    api.measure(job_id, "worker-0", Metric.GPU_MEMORY_PERCENT, {at_ms: 23.45})
    query = {**WINDOW, "TimeStep": "5m", "MetricType": "GpuMemoryUsage", "Token": "eyXXXX-XXXX.XXXXX"}
    answer = api.get(f"jobs/{job_id}/metrics", **query)
    request_id = answer.pop("RequestId")
    assert isinstance(request_id, str)
    assert answer == {
        "JobId": job_id,
        "PodMetrics": [
            {"PodId": f"{job_id}-worker-0", "Metrics": [{"Time": BASE, "Value": 23.45}]},
            {"PodId": f"{job_id}-worker-1", "Metrics": []},
        ],
    }
    assert isinstance(answer["PodMetrics"][0]["Metrics"][0]["Time"], int)


def test_the_same_question_is_answered_anew_once_there_are_new_samples(api: Api, job_id: str) -> None:
    asked = {"MetricType": "CpuCoreUsage", **WINDOW}
    assert points(api, job_id, **asked) == points(api, job_id, **asked) == {"worker-0": [], "worker-1": []}
    api.measure(job_id, "worker-0", Metric.CPU_PERCENT, {BASE: 2.0})
    assert points(api, job_id, **asked)["worker-0"] == [(BASE, 2.0)]
    api.measure(job_id, "worker-0", Metric.CPU_PERCENT, {BASE + 1000: 4.0})
    assert points(api, job_id, **asked)["worker-0"] == [(BASE, 3.0)]
    assert points(api, job_id, **{**asked, "MetricType": "MemoryUsage"})["worker-0"] == []


@pytest.mark.parametrize("name", METRIC_TYPES)
def test_every_type_has_its_unit(api: Api, job_id: str, name: str) -> None:
    metric, _ = METRIC_TYPES[name]
    rate = name.endswith("Rate")
    api.measure(job_id, "worker-1", metric, {BASE: 3.5 * MB if rate else 3.5})
    found = points(api, job_id, MetricType=name, **WINDOW)
    assert found == {"worker-0": [], "worker-1": [(BASE, 3.5)]}


def test_gpu_usage_is_that_of_the_task_and_not_of_a_card(api: Api, job_id: str) -> None:
    api.measure(job_id, "worker-0", Metric.GPU_PERCENT, {BASE: 40.0})
    api.measure(job_id, "worker-0", Metric.GPU_PERCENT, {BASE: 80.0}, card=0)
    assert points(api, job_id, MetricType="GpuCoreUsage", **WINDOW)["worker-0"] == [(BASE, 40.0)]


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (None, [(0, 2.0), (1_800_000, 5.0)]),
        ("5", [(0, 2.0), (1_800_000, 5.0)]),
        ("5m", [(0, 2.0), (1_800_000, 5.0)]),
        ("30s", [(0, 1.0), (60_000, 3.0), (1_800_000, 5.0)]),
        ("1h", [(0, 3.0)]),
        ("24h", None),
    ],
)
def test_a_step_is_a_mean_stamped_with_its_start(
    api: Api, job_id: str, step: str | None, found: list[tuple[int, float]] | None
) -> None:
    values = {BASE + 1000: 1.0, BASE + 61_000: 3.0, BASE + 1_801_000: 5.0}
    api.measure(job_id, "worker-0", Metric.CPU_PERCENT, values)
    query = {"TimeStep": step} if step else {}
    told = points(api, job_id, MetricType="CpuCoreUsage", **WINDOW, **query)["worker-0"]
    if found is None:
        assert told == [(BASE // (24 * HOUR_MS) * 24 * HOUR_MS, 3.0)]
    else:
        assert told == [(BASE + offset, value) for offset, value in found]


def test_the_window_is_the_last_hour_and_steps_are_whole(api: Api, job_id: str) -> None:
    now = now_ms()
    api.measure(job_id, "worker-0", Metric.CPU_PERCENT, {now - 2 * HOUR_MS: 1.0, now - 60_000: 2.0})
    told = points(api, job_id, MetricType="CpuCoreUsage")["worker-0"]
    assert told == [((now - 60_000) // 300_000 * 300_000, 2.0)]
    # A window that begins within a step is told of the whole of it.
    api.measure(job_id, "worker-1", Metric.CPU_PERCENT, {BASE + 1000: 1.0, BASE + 200_000: 2.0})
    late = {"StartTime": time_text(BASE + 100_000), "EndTime": time_text(BASE + 150_000)}
    assert points(api, job_id, MetricType="CpuCoreUsage", **late)["worker-1"] == [(BASE, 1.5)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "MetricType is missing; it may be GpuCoreUsage, GpuMemoryUsage, CpuCoreUsage"),
        ({"MetricType": "cpu"}, "DiskReadRate, DiskWriteRate, not 'cpu'"),
        *(
            ({"MetricType": "MemoryUsage", "TimeStep": step}, "TimeStep must be minutes such as 5")
            for step in ("0", "x", "5d", "-1", "1.5m", "25h", "m", "99999999999")
        ),
        ({"MetricType": "MemoryUsage", "StartTime": "now"}, "StartTime must be a UTC time"),
        ({"MetricType": "MemoryUsage", "EndTime": "32 May"}, "EndTime must be a UTC time"),
        ({"MetricType": "MemoryUsage", "StartTime": "2999-01-01T00:00:00Z"}, "lies in the future"),
        (
            {
                "MetricType": "MemoryUsage",
                "StartTime": "2022-01-02T00:00:00Z",
                "EndTime": "2022-01-01T00:00:00Z",
            },
            "StartTime 2022-01-02T00:00:00Z must be before EndTime 2022-01-01T00:00:00Z",
        ),
        (
            {
                "MetricType": "MemoryUsage",
                "StartTime": "2022-01-01T00:00:00Z",
                "EndTime": "2022-01-02T00:00:00Z",
                "TimeStep": "1s",
            },
            "has 86,400 steps; at most 11,000 are told at once: ask for a shorter window, or for steps of at "
            "least 8s",
        ),
    ],
)
def test_bad_input_says_what_to_do(api: Api, job_id: str, query: dict[str, str], message: str) -> None:
    status, code, told = api.refused("GET", f"jobs/{job_id}/metrics", **query)
    assert (status, code) == (400, "InvalidParameter")
    assert message in told


def test_eleven_thousand_points_are_told(api: Api, job_id: str) -> None:
    end = BASE + 11_000_000
    window = {"StartTime": time_text(BASE), "EndTime": time_text(end), "TimeStep": "1s"}
    api.measure(job_id, "worker-0", Metric.CPU_PERCENT, {BASE: 1.0, end - 11_000: 2.0})
    told = points(api, job_id, MetricType="CpuCoreUsage", **window)["worker-0"]
    assert [value for _, value in told] == [1.0, 2.0]


def test_an_unknown_job_has_no_metrics(api: Api) -> None:
    found = api.refused("GET", "jobs/dlc0/metrics", MetricType="MemoryUsage")
    assert found[:2] == (404, "JobNotFound")


def cms(api: Api, **query: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    answer = api.get("cms/metrics", **{**WINDOW, **query})
    assert (answer["Code"], answer["Success"]) == ("200", True)
    assert answer["RequestId"]
    return json.loads(answer["DataPoints"]), answer


def test_the_monitoring_service_tells_the_mean_over_pods(api: Api, job_id: str) -> None:
    api.measure(job_id, "worker-0", Metric.MEMORY_PERCENT, {BASE: 25.0, BASE + 60_000: 50.0})
    api.measure(job_id, "worker-1", Metric.MEMORY_PERCENT, {BASE: 75.0})
    job = {"JobId": job_id, "Namespace": "acs_pai_dlc"}
    told, answer = cms(api, **job, MetricName="JOB_MEMORY_UTIL")
    assert answer["Period"] == "60"
    assert told == [
        {"timestamp": BASE, "jobId": job_id, "Average": 50.0},
        {"timestamp": BASE + 60_000, "jobId": job_id, "Average": 50.0},
    ]
    pod = json.dumps([{"jobId": job_id, "pod": f"{job_id}-worker-0"}])
    told, _ = cms(api, Dimensions=pod, MetricName="JOB_MEMORY_FREE", Period="3600")
    assert told == [
        {
            "timestamp": BASE,
            "jobId": job_id,
            "pod": f"{job_id}-worker-0",
            "Average": 2.0 * GIB * (1 - 0.375),
        }
    ]


def test_the_monitoring_service_tells_cards_and_pages(api: Api, job_id: str) -> None:
    for card in (0, 1):
        api.measure(job_id, "worker-0", Metric.GPU_PERCENT, {BASE: 10.0 * card, BASE + 60_000: 5.0}, card)
    query = {"JobId": job_id, "MetricName": "CARD_GPU_ACCELERATOR_DUTTY_UTIL", "Length": "3"}
    told, answer = cms(api, **query)
    assert [(one["gpu"], one["Average"]) for one in told] == [(0, 0.0), (1, 10.0), (0, 5.0)]
    told, last = cms(api, **query, NextToken=answer["NextToken"])
    assert [(one["gpu"], one["Average"]) for one in told] == [(1, 5.0)]
    assert "NextToken" not in last


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "MetricName must be one of JOB_CPU_UTIL"),
        ({"MetricName": "JOB_CPU_UTIL"}, "give one JobId"),
        (
            {"MetricName": "JOB_CPU_UTIL", "JobId": "dlca", "Dimensions": '{"jobId":"dlcb"}'},
            "JobId and Dimensions differ",
        ),
        ({"MetricName": "JOB_CPU_UTIL", "Dimensions": "x"}, "Dimensions must be one JSON object"),
        ({"MetricName": "JOB_CPU_UTIL", "Dimensions": "[{},{}]"}, "ask once for every pod"),
        ({"MetricName": "JOB_CPU_UTIL", "Period": "5"}, "15, 60, 900, 3600"),
        ({"MetricName": "JOB_CPU_UTIL", "Namespace": "acs_ecs"}, "acs_pai_dlc"),
    ],
)
def test_the_monitoring_service_refuses_what_it_does_not_know(
    api: Api, query: dict[str, str], message: str
) -> None:
    status, code, told = api.refused("GET", "cms/metrics", **query)
    assert (status, code) == (400, "InvalidParameter")
    assert message in told
