"""Pod and node metrics, and the documented example (seed 000) word for word."""

import json
import time
from typing import Any

import pytest

from tests.unit.api.modelarts_v1.harness import NODE, Api
from trackside.api.modelarts_v1.metrics import (
    METRIC_OF,
    asked_names,
    job_steps,
    series,
    system_metrics,
    texts,
)
from trackside.domain.errors import Invalid
from trackside.domain.metric import MINUTE_MS, Metric
from trackside.domain.phase import Phase
from trackside.ports import SeriesKey

START = 28_400_000 * MINUTE_MS
DOCUMENTED = {"metrics": [{"metric": "gpuUtil", "value": ["1", "22", "33"]}], "interval": 1}
DOCUMENTED_FAILURE = {"error_msg", "error_code"}


def pod(number: int, name: str) -> str:
    return f"training-jobs/{number}/versions/{number}/pod/{name}/metric-statistic"


@pytest.fixture
def tenth(api: Api) -> Any:
    """Job 10 of the project, which ran for three minutes on two cards."""
    for number in range(1, 10):
        api.make(f"before-{number}")
    assert api.make("teseJob", spec_id=2)["version_id"] == 10
    job = api.lived(10, Phase.SUCCEEDED, (START + 5_000, START + 2 * MINUTE_MS + 1_000), cards=(0, 1))
    for minute, value in enumerate((1, 22, 33)):
        at_ms = START + minute * MINUTE_MS + (10_000 if minute == 0 else 500)
        api.measure(job, "worker-0", Metric.GPU_PERCENT, {at_ms: value})
        api.measure(job, "worker-0", Metric.GPU_PERCENT, {at_ms: value / 2}, card=0)
        api.measure(job, "worker-0", Metric.GPU_PERCENT, {at_ms: value * 1.5}, card=1)
    api.measure(job, "worker-0", Metric.CPU_PERCENT, {START + 6_000: 10.0, START + 7_000: 20.0})
    api.measure(job, "worker-0", Metric.DISK_READ_BYTES_PER_SECOND, {START + 6_000: 2048.0})
    api.measure(job, "worker-0", Metric.NETWORK_SEND_BYTES_PER_SECOND, {START + 61_000: 1.0})
    return job


# The example of the source document


def test_the_documented_example(api: Api, tenth: Any) -> None:
    assert api.get(pod(10, "teseJob.0"), metrics="gpuUtil") == DOCUMENTED


def test_the_documented_failure(api: Api, tenth: Any) -> None:
    status, body = api.call("GET", pod(10, "log1.log"), metrics="gpuUtil")
    assert status == 404
    assert set(body) >= DOCUMENTED_FAILURE
    assert "teseJob.0" in body["error_msg"], "it says which there are"


# Names


def test_all_eight_when_none_is_asked(api: Api, tenth: Any) -> None:
    for query in ({}, {"metrics": ""}, {"metrics": " \uff0c "}):
        answer = api.get(pod(10, "teseJob.0"), **query)
        assert [entry["metric"] for entry in answer["metrics"]] == list(METRIC_OF)
        assert {len(entry["value"]) for entry in answer["metrics"]} == {3}
    values = {entry["metric"]: entry["value"] for entry in answer["metrics"]}
    assert values["cpuUsage"] == ["15", "-1", "-1"]
    assert values["diskReadRate"] == ["2", "-1", "-1"], "KB of 1024 bytes"
    assert values["sendBytesRate"] == ["-1", "0.001", "-1"]
    assert values["memUsage"] == ["-1", "-1", "-1"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("CpuUsage,MemUsage", ["cpuUsage", "memUsage"]),
        ("CpuUsage\uff0cMemUsage", ["cpuUsage", "memUsage"]),
        ("GPUUTIL", ["gpuUtil"]),
        (" recvbytesrate , ,gpuUtil,RecvBytesRate", ["recvBytesRate", "gpuUtil"]),
        (None, list(METRIC_OF)),
    ],
)
def test_names_match_in_any_case_and_both_commas_separate(text: str | None, names: list[str]) -> None:
    assert asked_names(text) == names


def test_unknown_names_are_refused_with_the_valid_ones(api: Api, tenth: Any) -> None:
    status, code, message = api.refused("GET", pod(10, "teseJob.0"), metrics="gpuUtil,npuUtil")
    assert (status, code) == (400, "ModelArts.2788")
    assert "npuUtil" in message
    assert all(f"{name[0].upper()}{name[1:]}" in message for name in METRIC_OF)


def test_asked_names_refuses_a_name_with_another_comma() -> None:
    with pytest.raises(Invalid):
        asked_names("CpuUsage;MemUsage")


# Cards


def test_each_card_by_itself(api: Api, tenth: Any) -> None:
    answer = api.get(pod(10, "teseJob.0"), metrics="gpuUtil,cpuUsage", statistic_type="each")
    assert answer["metrics"] == [
        {"metric": "gpuUtil", "value": ["0.5", "11", "16.5"], "card": 0},
        {"metric": "gpuUtil", "value": ["1.5", "33", "49.5"], "card": 1},
        {"metric": "cpuUsage", "value": ["15", "-1", "-1"]},
    ]


def test_a_card_that_said_nothing_is_there(api: Api, tenth: Any) -> None:
    answer = api.get(pod(10, "worker-0"), metrics="GpuMemUsage", statistic_type="each")
    assert answer["metrics"] == [
        {"metric": "gpuMemUsage", "value": ["-1"] * 3, "card": card} for card in (0, 1)
    ]


def test_a_task_without_cards_has_no_entry_per_card(api: Api) -> None:
    api.make("plain")
    assert api.get(pod(1, "plain.0"), metrics="gpuUtil", statistic_type="each")["metrics"] == []
    assert api.get(pod(1, "plain.0"), metrics="gpuUtil")["metrics"] == [{"metric": "gpuUtil", "value": []}]


def test_a_statistic_type_that_is_none_is_refused(api: Api, tenth: Any) -> None:
    status, _, message = api.refused("GET", pod(10, "teseJob.0"), statistic_type="some")
    assert status == 400
    assert "all" in message
    assert "each" in message


# Values


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("cpuUsage", 0.0, "0"),
        ("cpuUsage", 99.9996, "100"),
        ("cpuUsage", 3.1, "3.1"),
        ("cpuUsage", None, "-1"),
        ("cpuUsage", float("nan"), "-1"),
        ("cpuUsage", float("inf"), "-1"),
        ("cpuUsage", -0.0, "0"),
        ("diskReadRate", 94_014_535.68, "91811.07"),
        ("recvBytesRate", 1024.0, "1"),
    ],
)
def test_values_are_texts(name: str, value: float | None, text: str) -> None:
    assert texts(name, [value]) == [text]
    assert series(name, [value]).value == [text]


# A version's own list


def test_system_metrics_take_the_mean_of_percentages_and_the_sum_of_rates() -> None:
    steps = range(START, START + 2 * MINUTE_MS, MINUTE_MS)
    found = {
        SeriesKey("worker-0", Metric.CPU_PERCENT): {START: 10.0, START + MINUTE_MS: 50.0},
        SeriesKey("worker-1", Metric.CPU_PERCENT): {START: 30.0},
        SeriesKey("worker-0", Metric.DISK_READ_BYTES_PER_SECOND): {START: 1024.0},
        SeriesKey("worker-1", Metric.DISK_READ_BYTES_PER_SECOND): {START: 3072.0},
        SeriesKey("worker-1", Metric.GPU_PERCENT, 0): {START: 99.0},
        SeriesKey("worker-1", "loss"): {START: 1.0},
    }
    told = system_metrics(found, steps, 1)
    assert told.cpu_usage == ["20", "50"]
    assert told.disk_read_rate == ["4", "-1"]
    assert told.gpu_util == ["-1", "-1"], "a card's own series is no task's"
    assert told.interval == 1


def test_the_detail_has_an_object_and_the_list_a_text(api: Api, tenth: Any) -> None:
    detail = api.get("training-jobs/10/versions/10")["system_metric_list"]
    assert detail == {name: detail[name] for name in METRIC_OF} | {"interval": 1}
    assert detail["gpuUtil"] == ["1", "22", "33"]
    assert detail["cpuUsage"] == ["15", "-1", "-1"]
    (listed,) = api.get("training-jobs/10/versions")["versions"]
    assert json.loads(listed["system_metric_list"]) == detail


def test_steps_grow_when_there_would_be_too_many(api: Api) -> None:
    api.make("long")
    job = api.lived(1, Phase.SUCCEEDED, (START, START + 99 * MINUTE_MS))
    assert job_steps(job, 0) == (range(START, START + 99 * MINUTE_MS + 1, MINUTE_MS), 1)
    steps, interval = job_steps(job, 0, task_minutes_max=10)
    assert interval == 10
    assert steps.step == 10 * MINUTE_MS
    assert len(steps) <= 11
    assert steps.start <= START


def test_only_complete_minutes_while_it_runs(api: Api) -> None:
    api.make("going")
    now_ms = START + 2 * MINUTE_MS + 59_000
    job = api.lived(1, Phase.RUNNING, (START + 30_000, None))
    assert list(job_steps(job, now_ms)[0]) == [START, START + MINUTE_MS]
    assert list(job_steps(job, START + 45_000)[0]) == []


def test_nothing_before_it_starts(api: Api) -> None:
    api.make("waits")
    told = api.get("training-jobs/1/versions/1")["system_metric_list"]
    assert told == {name: [] for name in METRIC_OF} | {"interval": 1}


# Nodes


def node(ip: str = NODE.ip, pool: str = "default") -> str:
    return f"pools/{pool}/nodes/{ip}/metric-statistic"


def test_a_node_adds_up_its_tasks(api: Api) -> None:
    minute = time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS
    for name, spec in (("small", 1), ("large", 2)):
        api.make(name, spec_id=spec)
    small = api.lived(1, Phase.SUCCEEDED, (minute + 1, minute + MINUTE_MS + 1))
    large = api.lived(2, Phase.RUNNING, (minute + 1, None), cards=(0, 1))
    api.measure(small, "worker-0", Metric.CPU_PERCENT, {minute + 2: 100.0})
    api.measure(large, "worker-0", Metric.CPU_PERCENT, {minute + 2: 50.0, minute + 2 * MINUTE_MS: 50.0})
    api.measure(small, "worker-0", Metric.MEMORY_PERCENT, {minute + 2: 50.0})
    for job in (small, large):
        api.measure(job, "worker-0", Metric.DISK_WRITE_BYTES_PER_SECOND, {minute + 2: 1024.0})
    api.measure(large, "worker-0", Metric.GPU_PERCENT, {minute + 2: 50.0})
    api.measure(large, "worker-0", Metric.GPU_PERCENT, {minute + 2: 20.0}, card=0)
    api.measure(large, "worker-0", Metric.GPU_PERCENT, {minute + 2: 80.0}, card=1)
    answer = api.get(node())
    values = {entry["metric"]: entry["value"] for entry in answer["metrics"]}
    assert list(values) == list(METRIC_OF)
    assert {len(row) for row in values.values()} == {60}

    def measured(name: str) -> list[str]:
        return [value for value in values[name] if value != "-1"]

    assert measured("cpuUsage") == ["37.5", "25"], "(1 core of 1 + half of 4) of 8, then half of 4"
    assert measured("memUsage") == ["3.125"], "1 GB of 32"
    assert measured("diskWriteRate") == ["2"]
    assert measured("gpuUtil") == ["50"]
    each = api.get(node(), metrics="gpuUtil", statistic_type="each")["metrics"]
    assert [(entry["card"], max(entry["value"], key=float)) for entry in each] == [(0, "20"), (1, "80")]


def test_a_node_nobody_used_measured_nothing(api: Api) -> None:
    answer = api.get(node(), metrics="CpuUsage")
    assert answer == {"metrics": [{"metric": "cpuUsage", "value": ["-1"] * 60}], "interval": 1}


def test_old_tasks_and_other_nodes_are_not_in_it(api: Api) -> None:
    api.make("old")
    job = api.lived(1, Phase.SUCCEEDED, (START, START + MINUTE_MS))
    api.measure(job, "worker-0", Metric.CPU_PERCENT, {START + 1: 100.0})
    assert set(api.get(node(), metrics="CpuUsage")["metrics"][0]["value"]) == {"-1"}


def test_pools_and_nodes_that_are_not_there(api: Api) -> None:
    assert api.refused("GET", node(pool="poolabcd"))[:2] == (404, "ModelArts.50015001")
    status, _, message = api.refused("GET", node("10.0.0.9"))
    assert status == 404
    assert NODE.ip in message
