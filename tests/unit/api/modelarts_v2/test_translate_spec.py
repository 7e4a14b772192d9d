import json
from typing import Any

import msgspec
import pytest

from tests.unit.api.modelarts_v2.samples import DOCUMENTED_DETAILS, GPU, SMALL, body_with, catalog, spec_of
from trackside.api.modelarts_v2.translate_spec import to_spec
from trackside.api.modelarts_v2.wire_create import CreateJobBody
from trackside.domain.errors import FlavorNotFound, Invalid
from trackside.domain.job import Access, Channel, MetricSource
from trackside.domain.resources import GIB, Accelerator, Resources


def refusal(body: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as caught:
        spec_of(body)
    return caught.value.detail


def test_the_documented_job_is_understood() -> None:
    spec = spec_of(DOCUMENTED_DETAILS)
    assert spec.name == "trainjob--py14_mem06-108"
    assert spec.code_dir == "obs://test/economic_test/py_minist/"
    assert spec.boot_file == "minist_common.py"
    assert spec.inputs == (
        Channel(
            name="data_url",
            url="obs://test/data/py_minist/",
            local_dir="/home/ma-user/modelarts/inputs/data_url_0",
        ),
    )
    assert spec.outputs[0].url == "obs://test/train_output/"
    assert spec.runtime.engine_id == "pytorch-cp36-1.4.0-v2"
    assert spec.roles[0].flavor_id == GPU.id
    assert spec.roles[0].resources == GPU.resources
    assert spec.custom_metrics == (
        MetricSource(command=("cat", "/a/b/c.porm")),
        MetricSource(path="/raw_text", port=10001),
    )


def test_a_command_is_enough() -> None:
    spec = spec_of(body_with(command="echo hello"))
    assert (spec.command, spec.boot_file, spec.node_count) == ("echo hello", None, 1)
    assert (spec.workspace_id, spec.pool_id, spec.priority, spec.preemptible) == ("0", "default", 1, False)
    assert spec.roles[0].resources == SMALL.resources, "no flavor named: the smallest"


def test_null_counts_as_absent() -> None:
    body = {
        "kind": None,
        "metadata": {"name": "a", "description": None, "annotations": None},
        "algorithm": {"command": "true", "parameters": None, "inputs": None, "engine": None},
        "tasks": None,
        "spec": {"resource": None, "auto_stop": None, "schedule_policy": None, "custom_metrics": None},
    }
    assert spec_of(body).max_seconds is None


def test_all_that_shapes_the_run_is_carried_over() -> None:
    body = body_with(
        command="python train.py",
        code_dir="/bucket/code",
        local_code_dir="/home/ma-user/code",
        working_dir="/home/ma-user/code",
        parameters=[{"name": "lr", "value": "0.1"}, {"name": "flag"}],
        environments={"A": "1"},
        inputs=[{"name": "DATA", "access_method": "env", "remote": {"dataset": {"obs_url": "/d/x"}}}],
    )
    body["metadata"] |= {"workspace_id": "w", "description": "d", "annotations": {"k": "v"}}
    body["spec"] = {
        "resource": {"node_count": 3, "pool_id": "pool-a"},
        "auto_stop": {"time_unit": "HOURS", "duration": 2},
        "schedule_policy": {"priority": 3, "preemptible": True},
        "log_export_path": {"obs_url": "/logs/here"},
    }
    spec = spec_of(body)
    assert spec.parameters == (("lr", "0.1"), ("flag", ""))
    assert spec.environments == {"A": "1"}
    assert spec.inputs == (Channel(name="DATA", url="obs://d/x", access=Access.ENV),)
    assert (spec.code_dir, spec.local_code_dir) == ("obs://bucket/code", "/home/ma-user/code")
    assert (spec.max_seconds, spec.priority, spec.preemptible) == (7200, 3, True)
    assert (spec.pool_id, spec.node_count, spec.log_export_url) == ("pool-a", 3, "obs://logs/here")
    assert (spec.workspace_id, spec.description, spec.annotations) == ("w", "d", {"k": "v"})


def test_a_customized_flavor_sizes_a_task_freely() -> None:
    body = body_with(command="true")
    free = {"cpu_core_num": 0.5, "mem_size": 1.5, "accelerator_num": 2}
    body["spec"] = {"resource": {"main_container_customized_flavor": free}}
    assert spec_of(body).roles[0].resources == Resources(
        cpu_cores=0.5,
        memory_bytes=int(1.5 * GIB),
        cards=2,
        accelerator=Accelerator.GPU,
        card_model="nvidia-v100",
    )


def test_cards_where_there_are_none_are_refused() -> None:
    body = body_with(command="true")
    body["spec"] = {"resource": {"main_container_customized_flavor": {"accelerator_num": 1}}}
    with pytest.raises(Invalid, match="no machine here has accelerators"):
        to_spec(msgspec.convert(body, CreateJobBody), catalog((SMALL,)))


def test_part_of_a_card_is_refused() -> None:
    body = body_with(command="true")
    body["spec"] = {"resource": {"main_container_customized_flavor": {"accelerator_num": 0.5}}}
    assert "whole number of cards" in refusal(body)


def test_an_unknown_flavor_says_which_there_are() -> None:
    body = body_with(command="true")
    body["spec"] = {"resource": {"flavor_id": "nope"}}
    with pytest.raises(FlavorNotFound, match=r"cpu\.1c2g"):
        spec_of(body)


def test_roles_of_a_heterogeneous_job() -> None:
    body = body_with(command="true")
    body["kind"] = "hetero_job"
    body["tasks"] = [
        {"role": "ps", "task_resource": {"node_count": 2}},
        {
            "role": "worker",
            "task_resource": {"flavor_id": GPU.id},
            "algorithm": {"engine": {"image_url": "i"}},
        },
    ]
    roles = spec_of(body).roles
    assert [(role.name, role.count, role.flavor_id, role.image) for role in roles] == [
        ("ps", 2, SMALL.id, None),
        ("worker", 1, GPU.id, "i"),
    ]


def test_code_given_once_per_role_is_the_jobs_code() -> None:
    code = {"code_dir": "obs://b/c", "boot_file": "train.py"}
    body: dict[str, Any] = {"metadata": {"name": "a"}, "tasks": [{"role": "ps", "algorithm": code}]}
    body["tasks"].append({"role": "worker", "algorithm": code})
    assert spec_of(body).boot_file == "train.py"
    body["tasks"][1] = {"role": "worker", "algorithm": {**code, "boot_file": "other.py"}}
    assert "boot_file differs between roles" in refusal(body)


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ({}, "say what to run"),
        ({"code_dir": "obs://b/c"}, "say what to run"),
        ({"boot_file": "x.py"}, "needs algorithm.code_dir"),
        ({"command": "true", "code_dir": "obs://b/c", "boot_file": "x.py"}, "not both"),
        ({"id": "some-algorithm"}, "algorithm management"),
        ({"subscription_id": "s", "item_version_id": "v"}, "use algorithm.command"),
        ({"code_dir": "obs://b/c", "boot_file": "obs://b/other/x.py"}, "must lie below"),
        ({"code_dir": "obs://b/c", "boot_file": "obs://b/cc/x.py"}, "must lie below"),
        ({"code_dir": "obs://b/c", "boot_file": "../x.py"}, "name a file below"),
        ({"code_dir": "obs://b/c", "boot_file": "a/../../x.py"}, "name a file below"),
        ({"code_dir": "obs://b/c", "boot_file": "dir/"}, "name a file below"),
        ({"command": "true", "inputs": [{"name": "d"}]}, "algorithm.inputs[0].remote.obs.obs_url is missing"),
        (
            {"command": "true", "outputs": [{"name": "d", "access_method": "pipe"}]},
            "algorithm.outputs[0].access_method must be one of [parameter env], not 'pipe'",
        ),
        (
            {
                "command": "true",
                "inputs": [
                    {"name": "a-b", "access_method": "env", "remote": {"obs": {"obs_url": "obs://b/c"}}}
                ],
            },
            "letters, digits and underscores",
        ),
    ],
)
def test_an_algorithm_that_cannot_be_is_refused(algorithm: dict[str, Any], said: str) -> None:
    assert said in refusal(body_with(**algorithm))


def test_rewards_of_a_search_are_read_from_the_log() -> None:
    rewards = [
        {"name": "acc", "mode": "max", "regex": r"acc: (\S+)"},
        {"name": "unread", "mode": "min"},
    ]
    body = body_with(command="true", policies={"auto_search": {"reward_attrs": rewards}})
    assert spec_of(body).log_patterns == (("acc", r"acc: (\S+)"),)
    rewards[0]["regex"] = "("
    assert "reward_attrs[0].regex is not a regular expression" in refusal(body)
    rewards[0] |= {"regex": "x", "name": "n" * 101}
    assert "reward_attrs[0].name" in refusal(body)


def test_other_refusals_name_the_field() -> None:
    assert refusal({**body_with(command="true"), "kind": "edge_job"}).startswith("kind must be one of [job ")
    assert "metadata.name" in refusal({"metadata": {"name": "a\n"}, "algorithm": {"command": "true"}})
    body = body_with(command="true")
    body["spec"] = {"auto_stop": {"time_unit": "DAYS", "duration": 1}}
    assert "spec.auto_stop.time_unit must be one of [HOURS]" in refusal(body)
    body["spec"] = {"custom_metrics": [{"http_get": {"path": "/metrics"}}]}
    assert "spec.custom_metrics[0]" in refusal(body)
    body["spec"] = {}
    body["tasks"] = [{"role": "a"}, {"role": "a"}]
    assert "tasks[].role must differ" in refusal(body)
    body["tasks"] = [{"role": r, "task_resource": {"pool_id": f"pool-{r}"}} for r in ("a", "b")]
    assert "pool_id differs" in refusal(body)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", ""),
        ("metadata.name", "x" * 65),
        ("metadata.name", "a b"),
        ("metadata.name", 7),
        ("metadata.description", "x" * 257),
        ("spec.resource.node_count", 0),
        ("spec.resource.node_count", 1025),
        ("spec.resource.node_count", "2"),
        ("spec.schedule_policy.priority", 4),
        ("spec.auto_stop.duration", 0),
        ("spec.resource.main_container_customized_flavor.cpu_core_num", 0),
        ("algorithm.environments", {"1A": "x"}),
        ("algorithm.environments", {f"A{i}": "x" for i in range(101)}),
        ("algorithm.environments", {"A": "x" * 4097}),
        ("algorithm.parameters", [{"name": "a b"}]),
        ("algorithm.inputs", [{"name": "../x"}]),
    ],
)
def test_values_out_of_bounds_are_refused_by_the_structs_with_their_place(path: str, value: Any) -> None:
    body: dict[str, Any] = {"metadata": {"name": "a"}, "algorithm": {"command": "true"}}
    *parents, last = path.split(".")
    place = body
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    with pytest.raises(msgspec.ValidationError, match=rf"\$\.{path}"):
        msgspec.json.decode(json.dumps(body), type=CreateJobBody)
