import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.unit.api.modelarts_v2.samples import (
    DOCUMENTED_DETAILS,
    GPU,
    SMALL,
    body_with,
    contains,
    flavor_of,
    job_of,
    spec_of,
)
from tests.unit.api.modelarts_v2.whole_body import whole_body
from trackside.api.modelarts_v2.phases import PHASE_OF, PHASES_CALLED
from trackside.api.modelarts_v2.translate_job import from_job
from trackside.domain.job import (
    Access,
    Channel,
    Job,
    JobSpec,
    MetricSource,
    Role,
    RuntimeChoice,
)
from trackside.domain.phase import Phase


def details(job: Job, now_ms: int = 1_700_000_100_000) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        msgspec.json.encode(from_job(job, flavor_of=flavor_of, now_ms=now_ms))
    )
    return answer


def test_every_phase_has_a_name_and_every_name_is_documented() -> None:
    assert set(PHASE_OF) == set(Phase)
    documented = {"Creating", "Pending", "Running", "Failed", "Completed", "Terminating", "Terminated"}
    assert set(PHASES_CALLED) == documented | {"Abnormal"}
    assert frozenset().union(*PHASES_CALLED.values()) == set(Phase)


def test_the_documented_job_comes_back_whole() -> None:
    answer = details(job_of(spec_of(DOCUMENTED_DETAILS)))
    given = json.loads(json.dumps(DOCUMENTED_DETAILS))
    # The server says these itself; billing and card memory are not known here.
    del given["status"], given["spec"]["resource"]["flavor_detail"]["billing"]
    del given["spec"]["resource"]["main_container_allocated_resources"]
    del given["spec"]["resource"]["flavor_detail"]["flavor_info"]["gpu"]["memory"]
    for own in ("id", "create_time", "user_name"):
        del given["metadata"][own]
    assert contains(answer, given)
    assert answer["metadata"]["user_name"] == "ada"
    assert answer["spec"]["resource"]["main_container_allocated_resources"] == {
        "cpu_arch": answer["spec"]["resource"]["flavor_detail"]["flavor_info"]["cpu"]["arch"],
        "cpu_core_num": 8.0,
        "mem_size": 64.0,
        "accelerator_num": 1.0,
        "accelerator_type": "nvidia-v100",
    }


def test_every_field_of_the_create_body_comes_back() -> None:
    body = whole_body()
    answer = details(job_of(spec_of(body)))
    expected = json.loads(json.dumps(body))
    expected["algorithm"]["environments"] = [body["algorithm"]["environments"]]  # a list in the answer
    (task,) = expected["tasks"]
    for channels in ("inputs", "outputs"):  # one object in the answer
        (task["algorithm"][channels],) = task["algorithm"][channels]
    assert contains(answer, expected)


def test_what_was_changed_since_is_told_as_it_is_now() -> None:
    body = body_with(command="true")
    body["spec"] = {"schedule_policy": {"priority": 2, "required_affinity": {"affinity_type": "cabinet"}}}
    spec = spec_of(body)
    answer = details(
        job_of(replace(spec, description="new", priority=3, preemptible=True, annotations={"a": "b"}))
    )
    assert answer["metadata"]["description"] == "new"
    assert answer["metadata"]["annotations"] == {"a": "b"}
    assert answer["spec"]["schedule_policy"] == {
        "required_affinity": {"affinity_type": "cabinet"},
        "priority": 3,
        "preemptible": True,
    }


def test_a_job_of_another_dialect_is_told_in_these_words() -> None:
    spec = JobSpec(
        name="dlc-made",
        roles=(Role(resources=SMALL.resources, flavor_id=SMALL.id, count=2),),
        code_dir="obs://b/code",
        boot_file="train.py",
        parameters=(("lr", "1"),),
        environments={"A": "b"},
        inputs=(Channel(name="data", url="obs://b/d", access=Access.ENV),),
        outputs=(Channel(name="out", url="obs://b/o"),),
        runtime=RuntimeChoice(image="swr/torch"),
        max_seconds=7200,
        log_export_url="obs://b/logs",
        custom_metrics=(MetricSource(command=("cat", "m")), MetricSource(path="/m", port=9)),
    )
    answer = details(job_of(spec))
    assert answer["algorithm"] == {
        "code_dir": "obs://b/code",
        "boot_file": "obs://b/code/train.py",
        "parameters": [{"name": "lr", "value": "1"}],
        "environments": [{"A": "b"}],
        "inputs": [{"name": "data", "access_method": "env", "remote": {"obs": {"obs_url": "obs://b/d"}}}],
        "outputs": [
            {"name": "out", "access_method": "parameter", "remote": {"obs": {"obs_url": "obs://b/o"}}}
        ],
        "engine": {"image_url": "swr/torch"},
    }
    assert answer["spec"]["auto_stop"] == {"time_unit": "HOURS", "duration": 2}
    assert answer["spec"]["resource"]["node_count"] == 2
    assert answer["spec"]["custom_metrics"] == [
        {"exec": {"command": ["cat", "m"]}},
        {"http_get": {"path": "/m", "port": 9}},
    ]
    assert "tasks" not in answer


def test_a_body_that_todays_bounds_refuse_does_not_hide_the_job() -> None:
    spec = replace(spec_of(body_with(command="true")), declared={"modelarts_v2": {"metadata": {"name": ""}}})
    assert details(job_of(spec))["algorithm"] == {"command": "true"}


def test_several_roles_of_another_dialect_are_tasks() -> None:
    roles = (
        Role(name="ps", resources=SMALL.resources, command="serve"),
        Role(name="worker", resources=GPU.resources, flavor_id=GPU.id, count=2),
    )
    answer = details(job_of(JobSpec(name="j", roles=roles, max_seconds=90)))
    assert [task["role"] for task in answer["tasks"]] == ["ps", "worker"]
    assert answer["tasks"][1]["task_resource"]["node_count"] == 2
    assert answer["tasks"][1]["task_resource"]["flavor_type"] == "GPU"
    assert answer["status"]["tasks"] == ["ps-0", "worker-0", "worker-1"]
    assert "auto_stop" not in answer["spec"], "half hours have no word here"


def test_a_flavor_that_is_gone_is_still_named() -> None:
    role = Role(resources=SMALL.resources, flavor_id="was-here")
    resource = details(job_of(JobSpec(name="j", roles=(role,), command="true")))["spec"]["resource"]
    assert resource["flavor_id"] == resource["flavor_name"] == "was-here"
    assert "flavor_detail" not in resource


def test_several_inputs_of_a_role_come_back_as_a_list() -> None:
    place = {"remote": {"obs": {"obs_url": "obs://b/d"}}}
    inputs = [{"name": "a", **place}, {"name": "b", **place}]
    body = body_with(command="true")
    body["tasks"] = [{"role": "worker", "algorithm": {"inputs": inputs}}]
    assert details(job_of(spec_of(body)))["tasks"][0]["algorithm"]["inputs"] == inputs


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_is_told(phase: Phase) -> None:
    status = details(job_of(spec_of(body_with(command="true")), phase))["status"]
    assert (status["phase"], status["secondary_phase"]) == PHASE_OF[phase]
