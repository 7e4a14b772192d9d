"""The unmodified PAI-DLC SDKs, the current one and an old one, drive a live server over every operation."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import LiveServer
from tests.e2e.dlc_sdk import CURRENT, OLD, Refused, Sdk, opened, python_with_sdk, role
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

BUSY = "python3 -c 'while True: pass'"


@pytest.fixture(scope="module", params=[CURRENT, OLD])
def sdk(request: pytest.FixtureRequest, server: LiveServer) -> Iterator[Sdk]:
    """A client of each version."""
    python = python_with_sdk(request.config, request.param)
    with opened(python, request.param, server) as client:
        yield client


@pytest.fixture(scope="module")
def new_sdk(request: pytest.FixtureRequest, server: LiveServer) -> Iterator[Sdk]:
    """A client that knows the operations the old one does not."""
    with opened(python_with_sdk(request.config, CURRENT), CURRENT, server) as client:
        yield client


def logs(sdk: Sdk, job_id: str, task: str) -> list[str]:
    lines: list[str] = sdk("get_pod_logs", job_id, f"{job_id}-{task}")["Logs"]
    return lines


def test_a_job_from_creation_to_deletion(sdk: Sdk) -> None:
    name = f"life-{sdk.version}"
    job_id = sdk.create("echo hello; echo there", DisplayName=name, Envs={"A": "1"}, Priority=3)
    job = sdk.wait(job_id)
    assert (job["Status"], job["ReasonCode"], job["DisplayName"]) == ("Succeeded", "JobSucceeded", name)
    assert (job["Envs"], job["Priority"], job["JobType"]) == ({"A": "1"}, 3, "PyTorchJob")
    spec = job["JobSpecs"][0]
    assert (spec["Type"], spec["PodCount"]) == ("Worker", 1)
    assert spec["ResourceConfig"] == {"CPU": "0.2", "Memory": "256Mi"}
    order = [job[f"Gmt{one}Time"] for one in ("Create", "Submitted", "Running", "Successed")]
    assert order == sorted(order)
    assert job["GmtFinishTime"] == job["GmtSuccessedTime"]
    statuses = [one["Status"] for one in job["StatusHistory"]]
    assert statuses == ["Creating", "Queuing", "EnvPreparing", "Running", "Succeeded"]
    (pod,) = job["Pods"]
    assert (pod["PodId"], pod["Type"], pod["Status"]) == (f"{job_id}-worker-0", "Worker", "Succeeded")
    assert logs(sdk, job_id, "worker-0") == ["hello", "there"]
    assert sdk("get_pod_logs", job_id, pod["PodId"], MaxLines=1, PodUid=pod["PodUid"])["Logs"] == ["there"]
    page = sdk("list_jobs", DisplayName=name.upper(), ShowOwn=True, PageSize=10)
    assert (page["TotalCount"], page["Jobs"][0]["JobId"]) == (1, job_id)
    assert sdk("delete_job", job_id)["JobId"] == job_id
    with pytest.raises(Refused) as refused:
        sdk("get_job", job_id)
    assert (refused.value.status, refused.value.code) == (404, "JobNotFound")
    assert refused.value.request_id


def test_a_running_job_is_watched_and_stopped(sdk: Sdk) -> None:
    job_id = sdk.create(BUSY, JobSpecs=[role("Worker", 2)])
    sdk.wait(job_id, "Running")

    def used() -> Any:
        answer = sdk("get_job_metrics", job_id, MetricType="CpuCoreUsage", TimeStep="30s")
        pods = {one["PodId"]: one["Metrics"] for one in answer["PodMetrics"]}
        assert set(pods) == {f"{job_id}-worker-{index}" for index in range(2)}
        return all(pods.values()) and pods

    pods = eventually(used, "no sample came")
    point = next(iter(pods.values()))[0]
    assert isinstance(point["Time"], int)
    assert point["Time"] % 30_000 == 0
    assert point["Value"] >= 0
    assert sdk("stop_job", job_id)["JobId"] == job_id
    job = sdk.wait(job_id, "Stopped")
    assert (job["ReasonCode"], job["GmtStoppedTime"]) == ("JobStoppedByUser", job["GmtFinishTime"])
    assert [one["Status"] for one in job["StatusHistory"]][-2:] == ["Stopping", "Stopped"]
    events = sdk("get_job_events", job_id, MaxEventsNum=100)["Events"]
    assert any("stopping: stopped by" in line for line in events)
    pod_events = sdk("get_pod_events", job_id, f"{job_id}-worker-1")["Events"]
    assert pod_events
    assert all("worker-1" in line for line in pod_events)


def test_every_metric_type_is_answered(sdk: Sdk) -> None:
    job_id = sdk.create("head -c 4000000 /dev/urandom > out; sync; sleep 1")
    sdk.wait(job_id)
    for name in ("CpuCoreUsage", "MemoryUsage", "DiskReadRate", "DiskWriteRate", "NetworkInputRate"):
        (pod,) = sdk("get_job_metrics", job_id, MetricType=name, TimeStep="1h")["PodMetrics"]
        assert pod["PodId"] == f"{job_id}-worker-0"
        assert all(one["Value"] >= 0 for one in pod["Metrics"])
    with pytest.raises(Refused, match="GpuCoreUsage, GpuMemoryUsage, CpuCoreUsage") as refused:
        sdk("get_job_metrics", job_id)
    assert (refused.value.status, refused.value.code) == (400, "InvalidParameter")
    for bad in ({"TimeStep": "soon"}, {"StartTime": "x"}, {"StartTime": "2999-01-01T00:00:00Z"}):
        with pytest.raises(Refused):
            sdk("get_job_metrics", job_id, MetricType="MemoryUsage", **bad)


def test_torch_finds_its_variables(sdk: Sdk) -> None:
    command = 'echo "$RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"'
    job_id = sdk.create(command, JobSpecs=[role("Worker", 2), role("Master")])
    assert sdk.wait(job_id)["Status"] == "Succeeded"
    told = [logs(sdk, job_id, task)[0].split() for task in ("master-0", "worker-0", "worker-1")]
    assert [one[:2] for one in told] == [["0", "3"], ["1", "3"], ["2", "3"]]
    assert len({tuple(one[2:]) for one in told}) == 1
    assert int(told[0][3]) > 0


def test_tensorflow_finds_its_cluster(sdk: Sdk) -> None:
    specs = [role("PS"), role("Worker", 2), role("Chief"), role("Evaluator")]
    # A server of parameters never ends by itself: it is stopped when the others are done.
    command = 'echo "$TF_CONFIG"; case "$TF_CONFIG" in *\'"type": "ps"\'*) sleep 600;; esac'
    job_id = sdk.create(command, JobType="TFJob", JobSpecs=specs)
    assert sdk.wait(job_id)["Status"] == "Succeeded"
    config = json.loads(logs(sdk, job_id, "worker-1")[0])
    assert config["task"] == {"type": "worker", "index": 1}
    assert {name: len(members) for name, members in config["cluster"].items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 1,
    }
    assert json.loads(logs(sdk, job_id, "evaluator-0")[0])["task"]["type"] == "evaluator"


def test_the_job_is_over_with_its_chief(sdk: Sdk) -> None:
    command = 'case "$TF_CONFIG" in *\'"type": "chief"\'*) exit 0;; esac; sleep 600'
    specs = [role("Chief"), role("Worker")]
    job_id = sdk.create(command, JobType="TFJob", JobSpecs=specs, SuccessPolicy="ChiefWorker")
    assert sdk.wait(job_id)["Status"] == "Succeeded"


def test_a_job_that_fails_says_why(sdk: Sdk) -> None:
    job_id = sdk.create("echo oh no; exit 3")
    job = sdk.wait(job_id)
    assert (job["Status"], job["ReasonCode"]) == ("Failed", "JobFailed")
    assert job["ReasonMessage"] == "worker-0 exited with code 3"
    assert job["GmtFailedTime"] == job["GmtFinishTime"]
    assert logs(sdk, job_id, "worker-0") == ["oh no"]


def test_lists_are_filtered_sorted_and_paged(sdk: Sdk) -> None:
    prefix = f"list-{sdk.version}"
    ids = [sdk.create(DisplayName=f"{prefix}-{n}", WorkspaceId=prefix) for n in range(3)]
    for job_id in ids:
        sdk.wait(job_id)
    mine = {"WorkspaceId": prefix, "SortBy": "DisplayName", "Order": "asc"}
    assert [one["JobId"] for one in sdk("list_jobs", **mine)["Jobs"]] == ids
    second = sdk("list_jobs", **mine, PageSize=2, PageNumber=2)
    assert (second["TotalCount"], [one["JobId"] for one in second["Jobs"]]) == (3, ids[2:])
    assert sdk("list_jobs", **mine, Status="Succeeded")["TotalCount"] == 3
    assert sdk("list_jobs", **mine, Status="Running")["TotalCount"] == 0
    assert sdk("list_jobs", **mine, JobType="TFJob")["TotalCount"] == 0
    assert sdk("list_jobs", JobId=ids[1])["Jobs"][0]["DisplayName"] == f"{prefix}-1"
    with pytest.raises(Refused, match="Creating, Queuing, EnvPreparing"):
        sdk("list_jobs", Status="Sleeping")


def test_a_job_is_changed(sdk: Sdk) -> None:
    job_id = sdk.create("sleep 600")
    sdk.wait(job_id, "Running")
    assert sdk("update_job", job_id, Priority=1)["JobId"] == job_id
    with pytest.raises(Refused, match="only be changed while the job is queued"):
        sdk("update_job", job_id, Priority=9)
    sdk("stop_job", job_id)
    sdk.wait(job_id, "Stopped")


def test_sizes_tokens_and_health_checks(sdk: Sdk) -> None:
    specs = sdk("list_ecs_specs", AcceleratorType="CPU", SortBy="CPU", Order="asc")
    assert specs["TotalCount"] == len(specs["EcsSpecs"]) > 0
    assert specs["EcsSpecs"][0]["Cpu"] <= specs["EcsSpecs"][-1]["Cpu"]
    job_id = sdk.create(JobSpecs=[{"Type": "Worker", "EcsSpec": specs["EcsSpecs"][0]["InstanceType"]}])
    sdk.wait(job_id)
    token = sdk("get_token", TargetId=job_id, TargetType="job", ExpireTime=60)["Token"]
    (pod,) = sdk("get_job_metrics", job_id, MetricType="CpuCoreUsage", Token=token)["PodMetrics"]
    assert pod["PodId"] == f"{job_id}-worker-0"
    assert sdk("get_job_sanity_check_result", job_id, SanityCheckNumber=1)["SanityCheckResult"] == []
    assert sdk("list_job_sanity_check_results", job_id)["TotalCount"] == 0


def test_a_task_that_fails_is_started_again(new_sdk: Sdk, open_dir: Path) -> None:
    mark = open_dir / "tried"
    command = f"if [ -e {mark} ]; then echo again; exit 0; fi; touch {mark}; exit 7"
    job_id = new_sdk.create(command, JobSpecs=[role("Worker", RestartPolicy="OnFailure")])
    job = new_sdk.wait(job_id)
    assert (job["Status"], job["RestartTimes"]) == ("Succeeded", "1/10")
    (record,) = job["RestartRecord"]
    assert (record["Reason"], record["RestartStatus"]) == ("worker-0 exited with code 7", "Succeeded")
    assert [one["Status"] for one in job["Pods"][0]["HistoryPods"]] == ["Failed"]
    assert "Restarting" in [one["Status"] for one in job["StatusHistory"]]
    assert logs(new_sdk, job_id, "worker-0") == ["again"]


def test_a_role_has_a_command_of_its_own(new_sdk: Sdk) -> None:
    specs = [role("Master", UserCommand="echo lead"), role("Worker", UserCommand="echo follow")]
    job_id = new_sdk.create("", JobSpecs=specs)
    new_sdk.wait(job_id)
    assert logs(new_sdk, job_id, "master-0") == ["lead"]
    assert logs(new_sdk, job_id, "worker-0") == ["follow"]


def test_data_is_fetched_and_stored_again(new_sdk: Sdk, server: LiveServer) -> None:
    bucket = server.data_dir / "obs" / "dlc-data"
    (bucket / "in").mkdir(parents=True)
    (bucket / "in" / "word").write_text("hello\n")
    sources = [
        {"Uri": "oss://dlc-data/in/", "MountPath": "/mnt/in", "MountAccess": "RO"},
        {"Uri": "oss://dlc-data/out/", "MountPath": "/mnt/out", "MountAccess": "RW"},
    ]
    command = 'cat "$DATA_SOURCE_0/word" > "$DATA_SOURCE_1_OUT/copy"'
    job = new_sdk.wait(new_sdk.create(command, DataSources=sources))
    assert job["Status"] == "Succeeded", job
    assert (bucket / "out" / "copy").read_text() == "hello\n"
    assert job["DataSources"][1] == {"MountPath": "/mnt/out", "Uri": "oss://dlc-data/out/"}


def test_the_operations_only_the_current_sdk_knows(new_sdk: Sdk, server: LiveServer) -> None:
    sdk = new_sdk
    job_id = sdk.create("sleep 600")
    sdk.wait(job_id, "Running")
    dashboard = sdk("get_dashboard", job_id)
    assert dashboard["url"].startswith(f"{server.endpoint}/jobs/")

    def measured() -> Any:
        found = sdk("get_metrics", JobId=job_id, Namespace="acs_pai_dlc", MetricName="JOB_MEMORY_UTIL")
        assert (found["Code"], found["Success"], found["Period"]) == ("200", True, "60")
        return json.loads(found["DataPoints"])

    point = eventually(measured, "no sample came")[0]
    assert (point["jobId"], point["timestamp"] % 60_000) == (job_id, 0)
    tag = {"ResourceType": "Job", "RegionId": "local", "ResourceId": [job_id]}
    assert sdk("tag_resources", **tag, Tag=[{"Key": "crew", "Value": "a"}])["RequestId"]
    assert sdk("list_jobs", Tags={"crew": "a"})["Jobs"][0]["JobId"] == job_id
    assert sdk("untag_resources", ResourceType="Job", ResourceId=[job_id], TagKey=["crew"])["RequestId"]
    assert sdk("list_jobs", Tags={"crew": "a"})["TotalCount"] == 0
    target = {"Scope": "pods", "PodNames": [f"{job_id}-worker-0"]}
    signal = sdk("create_signal", job_id, Signal="SIGUSR1", Target=target)
    assert signal["Status"] == "Failed"
    assert "not delivered" in sdk("get_signal", job_id, signal["SignalId"])["Message"]
    page = sdk("list_signals", job_id, PageSize="5")
    assert [one["SignalId"] for one in page["Signals"]] == [signal["SignalId"]]
    sdk("update_job", job_id, Description="changed", Accessibility="PUBLIC")
    job = sdk("get_job", job_id)
    assert (job["Description"], job["Accessibility"]) == ("changed", "PUBLIC")
    sdk("stop_job", job_id)


def test_a_job_is_made_from_a_template(new_sdk: Sdk) -> None:
    content = {"JobType": "PyTorchJob", "UserCommand": "echo made", "JobSpecs": [role("Worker")]}
    made = new_sdk("create_job_template", TemplateName="small", WorkspaceId="0", Content=json.dumps(content))
    template = made["TemplateId"]
    job_id = str(new_sdk("create_job", DisplayName="from-template", TemplateId=template)["JobId"])
    assert new_sdk.wait(job_id)["UserCommand"] == "echo made"
    assert logs(new_sdk, job_id, "worker-0") == ["made"]
    new = json.dumps({**content, "UserCommand": "echo new"})
    assert new_sdk("update_job_template", template, Content=new)["VersionCreated"] is True
    assert new_sdk("set_job_template_default_version", template, Version=2)["DefaultVersion"] == 2
    found = new_sdk("get_job_template", template)
    assert found["Versions"][0]["Content"]["UserCommand"] == "echo new"
    assert found["LastUsedTime"]
    listed = new_sdk("list_job_templates", WorkspaceId="0", TemplateName="SMALL")
    assert [one["TemplateId"] for one in listed["JobTemplates"]] == [template]
    assert new_sdk("delete_job_template", template)["TemplateId"] == template
    with pytest.raises(Refused) as refused:
        new_sdk("get_job_template", template)
    assert (refused.value.status, refused.value.code) == (404, "ResourceNotFound")


def test_keys_that_are_not_known_are_refused(request: pytest.FixtureRequest, server: LiveServer) -> None:
    for version in (CURRENT, OLD):
        python = python_with_sdk(request.config, version)
        for wrong in ({"access_key_secret": "wrong"}, {"access_key_id": "nobody"}):
            with opened(python, version, server, **wrong) as client, pytest.raises(Refused) as refused:
                client("list_jobs")
            assert (refused.value.status, refused.value.code) == (401, "InvalidCredentials")


def test_the_current_sdk_may_sign_the_old_way(request: pytest.FixtureRequest, server: LiveServer) -> None:
    python = python_with_sdk(request.config, CURRENT)
    with opened(python, CURRENT, server, signature_algorithm="v2") as client:
        assert client("list_ecs_specs")["TotalCount"] > 0


def test_a_bearer_token_will_do(request: pytest.FixtureRequest, server: LiveServer) -> None:
    python = python_with_sdk(request.config, CURRENT)
    keys: dict[str, Any] = {"access_key_id": None, "access_key_secret": None, "bearer_token": server.token}
    with opened(python, CURRENT, server, **keys) as client:
        assert client("list_ecs_specs")["TotalCount"] > 0
