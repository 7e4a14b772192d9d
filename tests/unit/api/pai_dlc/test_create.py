"""What CreateJob asks for: roles, sizes, policies, data; and what it refuses."""

from typing import Any

import pytest

from tests.unit.api.pai_dlc.harness import WORKER, Api, body
from trackside.api.pai_dlc.roles import RESTARTS_MAX
from trackside.domain.job import RestartPolicy, SuccessPolicy
from trackside.domain.resources import GIB, Accelerator


def roles(*specs: dict[str, Any], job_type: str = "TFJob") -> dict[str, Any]:
    return {"JobType": job_type, "JobSpecs": list(specs)}


def test_a_job_of_one_worker_has_the_smallest_size(api: Api) -> None:
    job = api.job(api.make())
    (role,) = job.spec.roles
    assert (role.name, role.count, role.flavor_id) == ("worker", 1, "cpu.1c2g")
    assert (role.resources.cpu_cores, role.resources.memory_bytes) == (1, 2 * GIB)
    assert (role.restart, role.restarts_max) == (RestartPolicy.NEVER, 0)
    assert (job.spec.kind, job.spec.priority, job.spec.success) == ("PyTorchJob", 0, SuccessPolicy.ALL)
    assert job.spec.framework is None


def test_the_chief_is_rank_0_and_servers_come_last(api: Api) -> None:
    specs = [{"Type": "PS"}, {"Type": "Worker", "PodCount": 2}, {"Type": "Evaluator"}, {"Type": "Chief"}]
    job = api.job(api.make(**roles(*specs), SuccessPolicy="ChiefWorker"))
    assert [(role.name, role.count) for role in job.spec.roles] == [
        ("chief", 1),
        ("worker", 2),
        ("ps", 1),
        ("evaluator", 1),
    ]
    assert [role.chief for role in job.spec.roles] == [True, False, False, False]
    assert [role.service for role in job.spec.roles] == [False, False, True, False]
    assert (job.spec.framework, job.spec.success) == ("tensorflow", SuccessPolicy.CHIEF)


@pytest.mark.parametrize(
    ("specs", "job_type", "first"),
    [
        ([{"Type": "Worker"}, {"Type": "Master"}], "PyTorchJob", "master"),
        ([{"Type": "Worker"}, {"Type": "Head"}], "RayJob", "head"),
        ([{"Type": "Worker-a"}, {"Type": "Head"}], "RayJob", "head"),
        ([{"Type": "PS"}, {"Type": "Worker"}], "TFJob", "worker"),
        ([{"Type": "PS"}, {"Type": "Worker", "IsChief": True}], "TFJob", "worker"),
        ([{"Type": "Evaluator"}, {"Type": "Worker", "IsCheif": True}], "TFJob", "worker"),
        ([{"Type": "Launcher"}, {"Type": "Worker"}], "MPIJob", "launcher"),
    ],
)
def test_rank_0_is_the_one_who_leads(
    api: Api, specs: list[dict[str, Any]], job_type: str, first: str
) -> None:
    assert api.job(api.make(**roles(*specs, job_type=job_type))).spec.roles[0].name == first


@pytest.mark.parametrize(
    ("given", "cpu", "memory", "cards"),
    [
        ({"CPU": "2", "Memory": "4Gi"}, 2, 4 * GIB, 0),
        ({"CPU": "0.5", "Memory": "256Mi"}, 0.5, 256 * 2**20, 0),
        ({"CPU": "500m", "Memory": "1G"}, 0.5, 10**9, 0),
        ({"Memory": "1048576"}, 1, 2**20, 0),
        ({"CPU": "2", "Memory": "4Gi", "GPU": "0", "SharedMemory": "1Gi"}, 2, 4 * GIB, 0),
        ({"GPU": "2"}, 1, 2 * GIB, 2),
        ({"GPU": "1", "GPUType": "V100"}, 1, 2 * GIB, 1),
        ({"CPU": "", "Memory": "", "GPU": ""}, 1, 2 * GIB, 0),
    ],
)
def test_sizes_are_read_as_kubernetes_writes_them(
    api: Api, given: dict[str, str], cpu: float, memory: int, cards: int
) -> None:
    resources = api.job(api.make(JobSpecs=[{**WORKER, "ResourceConfig": given}])).spec.roles[0].resources
    assert (resources.cpu_cores, resources.memory_bytes, resources.cards) == (cpu, memory, cards)
    assert resources.accelerator is (Accelerator.GPU if cards else Accelerator.NONE)


def test_an_ecs_spec_is_a_flavor_and_a_resource_config_changes_it(api: Api) -> None:
    (role,) = api.job(api.make(JobSpecs=[{**WORKER, "EcsSpec": "gpu.2x"}])).spec.roles
    assert (role.flavor_id, role.resources.cards, role.resources.card_model) == ("gpu.2x", 2, "V100")
    changed = {**WORKER, "EcsSpec": "gpu.2x", "ResourceConfig": {"Memory": "8Gi"}}
    (role,) = api.job(api.make(JobSpecs=[changed])).spec.roles
    assert (role.flavor_id, role.resources.cards, role.resources.memory_bytes) == ("gpu.2x", 2, 8 * GIB)


@pytest.mark.parametrize(
    ("policy", "inside"),
    [
        ("Always", RestartPolicy.ALWAYS),
        ("OnFailure", RestartPolicy.ON_FAILURE),
        ("ExitCode", RestartPolicy.EXIT_CODE),
    ],
)
def test_a_restart_policy_allows_ten_restarts(api: Api, policy: str, inside: RestartPolicy) -> None:
    (role,) = api.job(api.make(JobSpecs=[{**WORKER, "RestartPolicy": policy}])).spec.roles
    assert (role.restart, role.restarts_max) == (inside, RESTARTS_MAX)


def test_what_else_a_job_is_given(api: Api) -> None:
    given = {
        "Envs": {"A": "1"},
        "CustomEnvs": [{"Key": "B", "Value": "2"}],
        "JobMaxRunningTimeMinutes": 3,
        "Priority": 9,
        "ResourceId": "mine",
        "WorkspaceId": "w1",
        "Description": "why",
        "Settings": {"Tags": {"team": "a"}},
    }
    spec = api.job(api.make(**given)).spec
    assert (spec.environments, spec.max_seconds) == ({"A": "1", "B": "2"}, 180)
    assert (spec.priority, spec.pool_id, spec.workspace_id, spec.description) == (3, "mine", "w1", "why")
    assert spec.tags == {"team": "a"}


def test_a_command_and_an_image_per_role(api: Api) -> None:
    specs = [
        {"Type": "Master", "UserCommand": "lead", "Image": "a:1"},
        {"Type": "Worker", "UserCommand": "follow", "Image": "b:1"},
    ]
    spec = api.job(api.make(JobSpecs=specs, UserCommand="")).spec
    assert [(role.command, role.image) for role in spec.roles] == [("lead", "a:1"), ("follow", "b:1")]
    assert (spec.command, spec.runtime.image) == (None, "a:1")


def test_data_that_is_read_must_exist_and_data_that_is_written_need_not(api: Api) -> None:
    api.put("obs://bucket/in/a")
    sources = [
        {"Uri": "oss://bucket.oss-cn-x.aliyuncs.com/in/", "MountPath": "/mnt/data", "MountAccess": "RO"},
        {"Uri": "oss://bucket/new/", "MountPath": "/mnt/out"},
        {"Uri": "oss://bucket/in/", "MountAccess": "RW"},
    ]
    spec = api.job(api.make(DataSources=sources)).spec
    assert [(one.name, one.url, one.local_dir) for one in spec.inputs] == [
        ("DATA_SOURCE_0", "oss://bucket/in/", "/mnt/data"),
        ("DATA_SOURCE_2", "oss://bucket/in/", "/mnt/data_source_2"),
    ]
    assert [(one.name, one.url, one.local_dir) for one in spec.outputs] == [
        ("DATA_SOURCE_1_OUT", "oss://bucket/new/", "/mnt/out"),
        ("DATA_SOURCE_2_OUT", "oss://bucket/in/", "/mnt/data_source_2"),
    ]
    gone = [{"Uri": "oss://bucket/nothing/", "MountAccess": "RO"}]
    assert api.refused("POST", "jobs", body(DataSources=gone))[:2] == (400, "DataSourceNotFound")


def test_what_is_not_acted_on_is_told_as_an_event(api: Api) -> None:
    job_id = api.make(ThirdpartyLibs=["numpy==1.26"], Settings={"EnableSanityCheck": True})
    events = "\n".join(api.get(f"jobs/{job_id}/events")["Events"])
    assert "Warning ThirdpartyLibs were not installed: numpy==1.26" in events
    assert "health checks are not run here" in events


def test_every_image_that_is_not_used_is_told_once(api: Api) -> None:
    specs = [{"Type": "Master", "Image": "a:1"}, {"Type": "Worker", "Image": "b:1"}]
    events = api.get(f"jobs/{api.make(JobSpecs=specs)}/events")["Events"]
    assert sum("the image a:1 was not used" in line for line in events) == 1
    assert sum("the image b:1 was not used" in line for line in events) == 1


def test_the_sdks_habitual_empty_arrays_are_fine(api: Api) -> None:
    empty = {"ElasticSpotSpecs": [], "LocalMountSpecs": [], "StartupDependencies": []}
    given = api.job(api.make(JobSpecs=[{**WORKER, **empty}], CustomEnvs=[], DataSources=[])).spec
    without = api.job(api.make(JobSpecs=[WORKER])).spec
    assert (given.roles, given.environments) == (without.roles, without.environments)
    assert (given.inputs, given.outputs) == ((), ())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"DisplayName": ""}, "DisplayName is missing"),
        ({"DisplayName": None}, "DisplayName is missing"),
        ({"DisplayName": "a b"}, "letters, digits, underscores, dots and hyphens"),
        ({"JobType": None}, "JobType is missing"),
        ({"JobType": "pytorchjob"}, "JobType must be one of TFJob, PyTorchJob"),
        ({"JobSpecs": []}, "JobSpecs is missing"),
        ({"UserCommand": None}, "UserCommand is missing"),
        ({"JobSpecs": [{"Type": "PS"}]}, "JobSpecs[0].Type of a PyTorchJob must be one of Master, Worker"),
        ({"JobSpecs": [WORKER, {"Type": "worker"}]}, "must differ"),
        ({"JobSpecs": [{**WORKER, "IsChief": True}, {"Type": "Master"}]}, "only one role may be the chief"),
        ({"JobSpecs": [{**WORKER, "RestartPolicy": "Sometimes"}]}, "Always, Never, OnFailure, ExitCode"),
        ({"JobSpecs": [{**WORKER, "PodCount": 0}]}, "JobSpecs[0].PodCount"),
        ({"JobSpecs": [{**WORKER, "PodCount": "1"}]}, "JobSpecs[0].PodCount"),
        ({"JobSpecs": [{**WORKER, "ResourceConfig": {"Memory": "4"}}]}, "write the unit, such as 4Gi"),
        ({"JobSpecs": [{**WORKER, "ResourceConfig": {"Memory": "much"}}]}, "ResourceConfig.Memory must be"),
        ({"JobSpecs": [{**WORKER, "ResourceConfig": {"CPU": "-1"}}]}, "ResourceConfig.CPU must be"),
        ({"JobSpecs": [{**WORKER, "ResourceConfig": {"CPU": "0"}}]}, "more than 0 cores"),
        ({"JobSpecs": [{**WORKER, "ResourceConfig": {"GPU": "0.5"}}]}, "whole number of cards"),
        ({"JobSpecs": [{**WORKER, "ResourceConfig": {"GPU": "1", "GPUType": "H9"}}]}, "there are cards V100"),
        ({"SuccessPolicy": "Any"}, "ChiefWorker, AllWorkers"),
        ({"Accessibility": "SECRET"}, "PUBLIC, PRIVATE"),
        ({"Priority": 0}, "Priority"),
        ({"Priority": 10}, "Priority"),
        ({"JobMaxRunningTimeMinutes": 0}, "JobMaxRunningTimeMinutes"),
        ({"CodeSource": {"CodeSourceId": "code-1"}}, "CodeSourceId names a code source of the cloud"),
        ({"DataSources": [{"DataSourceId": "d-1"}]}, "DataSourceId names a dataset of the cloud"),
        ({"DataSources": [{"MountPath": "/a"}]}, "DataSources[0].Uri is missing"),
        ({"DataSources": [{"Uri": "nas://x/"}]}, "must begin with oss://"),
        ({"DataSources": [{"Uri": "oss://b/../c"}]}, "no object store URL"),
        ({"DataSources": [{"Uri": "oss://bb/c", "MountAccess": "WO"}]}, "RO, RW"),
        ({"CustomEnvs": [{"Value": "1"}]}, "CustomEnvs[0].Key is missing"),
        ({"Envs": {"A": 1}}, "Envs"),
        ({"Envs": {"1A": "x"}}, "not a name for an environment variable"),
        ({"Settings": {"Tags": {"a": 1}}}, "Settings.Tags must be an object of texts"),
    ],
)
def test_bad_input_says_what_is_wrong(api: Api, fields: dict[str, Any], message: str) -> None:
    status, code, told = api.refused("POST", "jobs", body(**fields))
    assert (status, code) == (400, "InvalidParameter"), told
    assert message in told


def test_other_refusals_have_codes_of_their_own(api: Api, tmp_path: Any) -> None:
    unknown = [{**WORKER, "EcsSpec": "ecs.none"}]
    status, code, message = api.refused("POST", "jobs", body(JobSpecs=unknown))
    assert (status, code) == (400, "EcsSpecNotFound")
    assert "cpu.1c2g, gpu.2x" in message
    assert api.refused("POST", "jobs", b"{")[:2] == (400, "InvalidRequestBody")
    assert api.refused("POST", "jobs")[:2] == (400, "InvalidRequestBody")
    assert api.refused("GET", "jobs/dlcnothing")[:2] == (404, "JobNotFound")
    assert api.refused("GET", "jobs/other")[:2] == (404, "JobNotFound")
    assert api.refused("GET", "nothing")[:2] == (404, "ResourceNotFound")


def test_a_strict_server_refuses_images_it_does_not_know(strict_api: Api) -> None:
    specs = [{"Type": "Worker", "Image": "nobody/knows:1"}]
    assert strict_api.refused("POST", "jobs", body(JobSpecs=specs))[:2] == (400, "ImageNotFound")
