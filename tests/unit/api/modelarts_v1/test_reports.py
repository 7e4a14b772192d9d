"""Logs, sizes, engines and configurations."""

from typing import Any

import pytest

from tests.unit.api.modelarts_v1.harness import COMMAND, Api

LOG = "training-jobs/1/versions/1/aom-log"


@pytest.fixture
def printed(api: Api) -> Api:
    """A job whose task printed a hundred lines."""
    api.make("talks")
    path = api.parts.places.logs.path(api.job(1).id, 1, "worker-0")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"line {number}\n" for number in range(1, 101)))
    return api


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ({}, 51, 100),
        ({"lines": 2}, 99, 100),
        ({"lines": 2, "base_line": 51}, 49, 50),
        ({"lines": 2, "order": "asc"}, 1, 2),
        ({"lines": 2, "order": "asc", "base_line": 50}, 51, 52),
        ({"lines": 500}, 1, 100),
    ],
)
def test_lines_of_a_log(printed: Api, query: dict[str, Any], first: int, last: int) -> None:
    for file in ("talks.0", "worker-0"):
        answer = printed.get(LOG, log_file=file, **query)
        assert answer == {
            "is_success": True,
            "content": "".join(f"line {number}\n" for number in range(first, last + 1)),
            "lines": last - first + 1,
            "start_line": str(first),
            "end_line": str(last),
        }


def test_no_lines_at_all(printed: Api) -> None:
    answer = printed.get(LOG, log_file="talks.0", lines=0)
    assert (answer["content"], answer["lines"]) == ("", 0)


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ({}, 400, "log_file"),
        ({"log_file": "talks.1"}, 404, "talks.0"),
        ({"log_file": "other.0"}, 404, "talks.0"),
        ({"log_file": "talks.0", "lines": 501}, 400, "lines"),
        ({"log_file": "talks.0", "lines": -1}, 400, "lines"),
        ({"log_file": "talks.0", "base_line": "x"}, 400, "base_line"),
        ({"log_file": "talks.0", "order": "up"}, 400, "order"),
    ],
)
def test_logs_that_cannot_be_had(printed: Api, query: dict[str, Any], status: int, told: str) -> None:
    found, _, message = printed.refused("GET", LOG, **query)
    assert found == status
    assert told in message


def test_sizes_on_offer(api: Api) -> None:
    answer = api.get("job/resource-specs", job_type="train", engine_id=0, project_type=0)
    assert (answer["is_success"], answer["spec_total_count"]) == (True, 3)
    assert answer["specs"][1] == {
        "spec_id": 2,
        "core": "4",
        "cpu": "16",
        "gpu_num": 2,
        "gpu_type": "V100",
        "npu_num": 0,
        "spec_code": "gpu.2x",
        "max_num": 64,
        "unit_num": 1,
        "storage": "",
        "interface_type": 1,
        "no_resource": False,
    }
    assert api.get("job/resource-specs", job_type="inference")["specs"] == []
    assert api.refused("GET", "job/resource-specs", job_type="cook")[0] == 400


def test_engines_on_offer(api: Api) -> None:
    assert api.get("job/ai-engines", job_type="train") == {
        "is_success": True,
        "engines": [
            {
                "engine_type": 1,
                "engine_name": "TensorFlow",
                "engine_id": 1,
                "engine_version": "TF-1.4.0-python2.7",
            },
            {"engine_name": "Mine", "engine_id": 2, "engine_version": "3"},
        ],
    }
    assert api.get("job/ai-engines", job_type="inference")["engines"] == []


# Configurations

SETTINGS: dict[str, Any] = {
    "worker_server_num": 2,
    "app_url": "/usr/app/",
    "boot_file_url": "/usr/app/boot.py",
    "parameter": [{"label": "lr", "value": "0.01"}],
    "spec_id": 2,
    "engine_id": 1,
    "data_url": "/usr/data/",
    "train_url": "/usr/train/",
    "log_url": "/usr/log/",
}


def test_a_configuration_from_creation_to_deletion(api: Api) -> None:
    made = api.ok("POST", "training-job-configs", {"config_name": "c1", "config_desc": "d", **SETTINGS})
    assert made == {"is_success": True}
    detail = api.get("training-job-configs/c1")
    assert {name: detail[name] for name in SETTINGS} == SETTINGS
    assert (detail["config_name"], detail["config_desc"], detail["is_success"]) == ("c1", "d", True)
    assert (detail["spec_code"], detail["gpu_num"], detail["engine_name"]) == ("gpu.2x", 2, "TensorFlow")
    assert api.ok("PUT", "training-job-configs/c1", {**SETTINGS, "worker_server_num": 3}) == {
        "is_success": True
    }
    changed = api.get("training-job-configs/c1")
    assert (changed["worker_server_num"], changed["config_desc"]) == (3, "")
    assert changed["create_time"] == detail["create_time"]
    assert api.ok("DELETE", "training-job-configs/c1") == {"is_success": True}
    assert api.refused("GET", "training-job-configs/c1")[:2] == (404, "APIGW.0101")
    assert api.refused("DELETE", "training-job-configs/c1")[0] == 404
    assert api.refused("PUT", "training-job-configs/c1", SETTINGS)[0] == 404


def test_configurations_are_listed(api: Api) -> None:
    for name in ("beta", "alpha", "gamma"):
        api.ok("POST", "training-job-configs", {"config_name": name, **COMMAND})
    answer = api.get("training-job-configs")
    assert [config["config_name"] for config in answer["configs"]] == ["gamma", "beta", "alpha"]
    assert answer["config_total_count"] == 3
    assert answer["configs"][0]["user_command"] == "true"

    def listed(**query: Any) -> list[str]:
        return [config["config_name"] for config in api.get("training-job-configs", **query)["configs"]]

    assert listed(order="asc", per_page=1, page=2) == ["beta"]
    assert listed(search_content="ALP") == ["alpha"]
    assert listed(config_type="sample") == []
    assert api.refused("GET", "training-job-configs/alpha", config_type="sample")[0] == 404
    assert len(listed(sortBy="create_time")) == 3
    assert api.refused("GET", "training-job-configs", sortBy="colour")[0] == 400


@pytest.mark.parametrize(
    "settings", [{"model_id": 3}, {"boot_file_url": ""}, {"dataset_id": "x"}, {"worker_server_num": 0}]
)
def test_configurations_that_could_never_run(api: Api, settings: dict[str, Any]) -> None:
    body = {"config_name": "bad", **SETTINGS, **settings}
    assert api.refused("POST", "training-job-configs", body)[:2] == (400, "ModelArts.2788")
    assert api.get("training-job-configs")["configs"] == []


def test_a_configuration_is_named_once(api: Api) -> None:
    api.ok("POST", "training-job-configs", {"config_name": "c", **COMMAND})
    taken = api.refused("POST", "training-job-configs", {"config_name": "c", **COMMAND})
    assert taken[:2] == (409, "ModelArts.0103")
    assert api.refused("POST", "training-job-configs", {"config_name": "a b", **COMMAND})[0] == 400


def test_sizes_and_engines_that_are_gone_are_left_out(api: Api) -> None:
    body = {"config_name": "old", **SETTINGS, "spec_id": 44, "engine_id": 55}
    api.ok("POST", "training-job-configs", body)
    detail = api.get("training-job-configs/old")
    assert detail["engine_id"] == 55
    assert "spec_code" not in detail
