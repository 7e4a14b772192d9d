"""What GetJob tells: what was given, word for word, and what became of it, by the domain's own rules."""

from typing import Any

from tests.unit.api.dialect_api import CALLER, ELSEWHERE
from tests.unit.api.pai_dlc.harness import WORKER, Api, body
from trackside.api.pai_dlc.checks import time_text
from trackside.domain import rules
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import JobSpec, NodeId, Role
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.resources import GIB, Resources

WHOLE = {
    "Accessibility": "PUBLIC",
    "CustomEnvs": [{"Key": "B", "Value": "2", "Visible": "public"}],
    "Description": "a whole job",
    "ElasticSpec": {"EnableElasticTraining": False},
    "Envs": {"A": "1"},
    "JobMaxRunningTimeMinutes": 5,
    "Options": "a=b",
    "Priority": 5,
    "ResourceId": "quota",
    "SchedulingStrategy": "FIFO",
    "Settings": {"Driver": "535", "Tags": {"team": "a"}, "AdvancedSettings": {"x": [1, 2.5]}},
    "SuccessPolicy": "AllWorkers",
    "ThirdpartyLibDir": "/root/code",
    "ThirdpartyLibs": ["numpy"],
    "UserVpc": {"VpcId": "vpc-1", "ExtendedCIDRs": ["10.0.0.0/8"], "DefaultRoute": "eth0"},
    "WorkspaceId": "w1",
    "CredentialConfig": {"EnableCredentialInject": True},
}
SPECS = [
    {
        "Type": "Master",
        "PodCount": 1,
        "Image": "registry/torch:2",
        "ResourceConfig": {"CPU": "1", "Memory": "1Gi", "SharedMemory": "1Gi"},
        "RestartPolicy": "OnFailure",
        "SpotSpec": {"SpotStrategy": "SpotAsPriceGo"},
        "ExtraPodSpec": {"PodLabels": {"a": "b"}},
    },
    {"Type": "Worker", "PodCount": 2, "Image": "registry/torch:2", "EcsSpec": "cpu.1c2g"},
]


def at(job: dict[str, Any], name: str) -> str:
    return str(job[f"Gmt{name}Time"])


def history(job: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    return [(one["Status"], one["StartTime"], one.get("EndTime")) for one in job["StatusHistory"]]


def test_everything_given_comes_back(api: Api) -> None:
    job = api.get(f"jobs/{api.make(JobSpecs=SPECS, **WHOLE)}")
    for name, value in body(JobSpecs=SPECS, **WHOLE).items():
        if name == "UserVpc":
            assert job[name].pop("ExtendedCidrs") == ["10.0.0.0/8"]
        assert job[name] == value, name
    assert (job["RequestCPU"], job["RequestGPU"], job["RequestMemory"]) == (3, 0.0, 5.0 * GIB)
    assert (job["UserId"], job["TenantId"], job["WorkspaceName"]) == ("ada", "p1", "w1")
    assert job["RequestId"]


def test_a_queued_job_has_no_pods_and_says_so(api: Api) -> None:
    job = api.get(f"jobs/{api.make()}")
    assert (job["Status"], job["ReasonCode"], job["Pods"], job["Duration"]) == (
        "Queuing",
        "JobEnqueued",
        [],
        0,
    )
    assert job["JobReplicaStatuses"] == [{"Type": "Worker", "Active": 0, "Queuing": 1, "Dequeued": 0}]
    assert [one["Status"] for one in job["StatusHistory"]] == ["Creating", "Queuing"]
    assert "GmtRunningTime" not in job
    assert job["RestartTimes"] == "0/0"


def test_a_job_that_succeeds_has_true_times(api: Api) -> None:
    job_id = api.make(JobSpecs=[{**WORKER, "PodCount": 2}])
    made = api.job(job_id).created_at_ms
    api.place(job_id, made + 1000)
    assert api.get(f"jobs/{job_id}")["Status"] == "EnvPreparing"
    api.start(job_id, "worker-0", made + 2000)
    api.start(job_id, "worker-1", made + 3000)
    running = api.get(f"jobs/{job_id}")
    assert (running["Status"], running["ReasonCode"]) == ("Running", "JobRunning")
    assert [pod["Status"] for pod in running["Pods"]] == ["Running", "Running"]
    assert running["JobReplicaStatuses"][0]["Active"] == 2
    api.end(job_id, "worker-0", made + 63_000, duration_ms=61_000)
    api.end(job_id, "worker-1", made + 64_500, duration_ms=61_500)
    job = api.get(f"jobs/{job_id}")
    assert (job["Status"], job["ReasonCode"]) == ("Succeeded", "JobSucceeded")
    assert job["ReasonMessage"] == "every task exited 0"
    times = [time_text(made + ms) for ms in (0, 0, 1000, 3000, 64_500)]
    assert [at(job, name) for name in ("Create", "Submitted", "Running", "Successed", "Finish")] == [
        times[0],
        times[2],
        times[3],
        times[4],
        times[4],
    ]
    assert "GmtFailedTime" not in job
    assert "GmtStoppedTime" not in job
    assert history(job) == [
        ("Creating", times[0], times[1]),
        ("Queuing", times[1], times[2]),
        ("EnvPreparing", times[2], times[3]),
        ("Running", times[3], times[4]),
        ("Succeeded", times[4], None),
    ]
    assert job["Duration"] == 61
    first = job["Pods"][0]
    assert (first["PodId"], first["Type"], first["Status"]) == (f"{job_id}-worker-0", "Worker", "Succeeded")
    assert (first["GmtStartTime"], first["Duration"]) == (time_text(made + 2000), 61.0)
    assert (first["Ip"], first["PodIps"][0]["Ip"], first["NodeName"]) == ("10.0.0.1", "10.0.0.1", "n1")


def test_a_job_that_fails_says_why(api: Api) -> None:
    job_id = api.make()
    made = api.job(job_id).created_at_ms
    api.place(job_id, made)
    api.start(job_id, "worker-0", made + 1000)
    api.end(job_id, "worker-0", made + 2000, exit_code=3)
    job = api.get(f"jobs/{job_id}")
    assert (job["Status"], job["ReasonCode"]) == ("Failed", "JobFailed")
    assert job["ReasonMessage"] == "worker-0 exited with code 3"
    assert at(job, "Failed") == at(job, "Finish") == time_text(made + 2000)
    assert job["StatusHistory"][-1]["ReasonMessage"] == job["ReasonMessage"]
    assert job["Pods"][0]["Status"] == "Failed"


def test_a_restart_is_in_the_history_and_the_records(api: Api) -> None:
    job_id = api.make(JobSpecs=[{**WORKER, "RestartPolicy": "OnFailure"}])
    made = api.job(job_id).created_at_ms
    api.place(job_id, made)
    api.start(job_id, "worker-0", made + 1000)
    api.end(job_id, "worker-0", made + 5000, exit_code=1)
    waiting = api.get(f"jobs/{job_id}")
    assert (waiting["Status"], waiting["RestartTimes"]) == ("Restarting", "1/10")
    assert waiting["RestartRecord"][0]["RestartStatus"] == "Restarting"
    assert waiting["Pods"][0]["Status"] == "Pending"
    assert waiting["Pods"][0]["GmtCreateTime"] == time_text(made + 5000)
    api.start(job_id, "worker-0", made + 7000)
    api.end(job_id, "worker-0", made + 9000)
    job = api.get(f"jobs/{job_id}")
    assert [one[0] for one in history(job)] == [
        *("Creating", "Queuing", "EnvPreparing", "Running", "Restarting", "Running", "Succeeded"),
    ]
    assert history(job)[4] == ("Restarting", time_text(made + 5000), time_text(made + 7000))
    (record,) = job["RestartRecord"]
    assert (record["JobRestartCount"], record["RestartStatus"]) == (1, "Succeeded")
    assert (record["OccurPhase"], record["OccurTime"]) == ("Running", time_text(made + 5000))
    assert record["RestartDurationInSec"] == 2
    assert record["Reason"] == "worker-0 exited with code 1"
    assert record["DetailErrorInfoList"][0]["Pod"] == f"{job_id}-worker-0"
    (pod,) = job["Pods"]
    assert (pod["Status"], [one["Status"] for one in pod["HistoryPods"]]) == ("Succeeded", ["Failed"])
    assert pod["PodUid"] != pod["HistoryPods"][0]["PodUid"]


def test_restarts_that_overlap_are_one_stretch(api: Api) -> None:
    job_id = api.make(JobSpecs=[{**WORKER, "PodCount": 2, "RestartPolicy": "Always"}])
    made = api.job(job_id).created_at_ms
    api.place(job_id, made)
    for task in ("worker-0", "worker-1"):
        api.start(job_id, task, made + 1000)
    api.end(job_id, "worker-0", made + 5000, exit_code=1)
    api.end(job_id, "worker-1", made + 6000, exit_code=1)
    api.start(job_id, "worker-0", made + 7000)
    api.start(job_id, "worker-1", made + 8000)
    job = api.get(f"jobs/{job_id}")
    assert history(job)[4:] == [
        ("Restarting", time_text(made + 5000), time_text(made + 8000)),
        ("Running", time_text(made + 8000), None),
    ]
    assert job["RestartTimes"] == "2/20"


def test_a_restart_before_all_were_up_lasts_until_they_are(api: Api) -> None:
    job_id = api.make(JobSpecs=[{**WORKER, "PodCount": 2, "RestartPolicy": "Always"}])
    made = api.job(job_id).created_at_ms
    api.place(job_id, made)
    api.start(job_id, "worker-0", made + 1000)
    api.end(job_id, "worker-0", made + 2000, exit_code=1)
    api.start(job_id, "worker-0", made + 3000)
    assert api.get(f"jobs/{job_id}")["Status"] == "Restarting"
    api.start(job_id, "worker-1", made + 5000)
    assert history(api.get(f"jobs/{job_id}"))[2:] == [
        ("EnvPreparing", time_text(made), time_text(made + 2000)),
        ("Restarting", time_text(made + 2000), time_text(made + 5000)),
        ("Running", time_text(made + 5000), None),
    ]


def test_a_stopped_job_was_stopping_for_a_while(api: Api) -> None:
    job_id = api.make()
    made = api.job(job_id).created_at_ms
    api.place(job_id, made)
    api.start(job_id, "worker-0", made)
    assert api.ok("POST", f"jobs/{job_id}/stop")["JobId"] == job_id
    stopping = api.get(f"jobs/{job_id}")
    assert (stopping["Status"], stopping["StatusHistory"][-1]["Status"]) == ("Stopping", "Stopping")
    api.end(job_id, "worker-0", made + 60_000, exit_code=143)
    job = api.get(f"jobs/{job_id}")
    assert (job["Status"], job["ReasonCode"]) == ("Stopped", "JobStoppedByUser")
    assert job["ReasonMessage"] == "stopped by ada"
    assert at(job, "Stopped") == at(job, "Finish") == time_text(made + 60_000)
    assert [one[0] for one in history(job)][-3:] == ["Running", "Stopping", "Stopped"]
    assert api.ok("POST", f"jobs/{job_id}/stop")["JobId"] == job_id


def test_a_job_stopped_in_the_queue_never_ran(api: Api) -> None:
    job_id = api.make()
    api.ok("POST", f"jobs/{job_id}/stop")
    job = api.get(f"jobs/{job_id}")
    assert [one[0] for one in history(job)] == ["Creating", "Queuing", "Stopped"]
    assert "GmtRunningTime" not in job


def test_a_lost_node_is_told_by_the_reason(api: Api) -> None:
    job_id = api.make()
    made = api.job(job_id).created_at_ms
    api.place(job_id, made)
    api.start(job_id, "worker-0", made)

    def lose(job: Any) -> rules.Change:
        changed = rules.lose_node(job, NodeId("n1"), at_ms=made + 1000)
        assert changed is not None
        return changed

    api.change(job_id, lose)
    job = api.get(f"jobs/{job_id}")
    assert (job["Status"], job["ReasonCode"]) == ("Running", "NodeUnreachable")
    assert job["Pods"][0]["Status"] == "Unknown"


def test_a_job_that_seems_to_hang_is_told_by_the_reason_and_runs(api: Api) -> None:
    job_id = api.make()
    made = api.job(job_id).created_at_ms
    api.place(job_id, made)
    api.start(job_id, "worker-0", made)
    stuck = Reason(text="seems to hang", code=ReasonCode.HANGED)

    def suspect(job: Any) -> rules.Change:
        changed = rules.suspect(job, stuck, at_ms=made + 1000)
        assert changed is not None
        return changed

    api.change(job_id, suspect)
    job = api.get(f"jobs/{job_id}")
    assert (job["Status"], job["ReasonCode"], job["ReasonMessage"]) == ("Running", "JobHanged", stuck.text)


def test_without_detail_neither_pods_nor_history(api: Api) -> None:
    job = api.get(f"jobs/{api.make()}", NeedDetail="False")
    assert not {"Pods", "StatusHistory", "RestartRecord"} & set(job)
    assert job["JobSpecs"]
    assert api.refused("GET", f"jobs/{api.make()}", NeedDetail="maybe")[0] == 400


def test_a_job_of_another_api_is_told_in_these_words(api: Api) -> None:
    role = Role(name="worker", count=2, resources=Resources(cpu_cores=1.5, memory_bytes=GIB // 2))
    made = api.submit(JobSpec(name="other", roles=(role,), command="run", max_seconds=90, priority=2))
    job = api.get(f"jobs/dlc{made.short_id}")
    assert (job["DisplayName"], job["JobType"], job["UserCommand"]) == ("other", "PyTorchJob", "run")
    (spec,) = job["JobSpecs"]
    assert (spec["Type"], spec["PodCount"]) == ("Worker", 2)
    assert spec["ResourceConfig"] == {"CPU": "1.5", "Memory": "512Mi"}
    assert (job["Priority"], job["JobMaxRunningTimeMinutes"], job["RequestCPU"]) == (6, 2, 3)
    assert [one["JobId"] for one in api.get("jobs", JobType="PyTorchJob")["Jobs"]] == [job["JobId"]]


def test_another_project_sees_nothing(api: Api) -> None:
    job_id = api.make()
    api.caller = Caller(user="eve", project_id=ELSEWHERE, role=UserRole.ADMIN)
    assert api.refused("GET", f"jobs/{job_id}")[:2] == (404, "JobNotFound")
    assert api.refused("DELETE", f"jobs/{job_id}")[:2] == (404, "JobNotFound")
    assert api.get("jobs")["TotalCount"] == 0
    api.caller = CALLER
    assert api.get("jobs")["TotalCount"] == 1


def test_a_job_is_changed(api: Api) -> None:
    job_id = api.make(Priority=1)
    change = {"Description": "new", "Priority": 2, "Accessibility": "PUBLIC", "JobSpecs": []}
    assert api.ok("PUT", f"jobs/{job_id}", change)["JobId"] == job_id
    job = api.get(f"jobs/{job_id}")
    assert (job["Description"], job["Priority"], job["Accessibility"]) == ("new", 2, "PUBLIC")
    assert (job["JobSpecs"], job["UserCommand"]) == ([WORKER], "true")
    api.ok("PUT", f"jobs/{job_id}", {"UserCommand": "true", "JobSpecs": [WORKER]})
    for bad, message in (
        ({"UserCommand": "rm"}, "UserCommand cannot be changed"),
        ({"JobSpecs": [{"Type": "Worker", "PodCount": 2}]}, "JobSpecs cannot be changed"),
        ({"Accessibility": "PRIVATE"}, "can only be widened"),
        ({"Priority": 11}, "Priority"),
    ):
        assert message in api.refused("PUT", f"jobs/{job_id}", bad)[2]
    api.place(job_id, api.job(job_id).created_at_ms)
    assert "only be changed while" in api.refused("PUT", f"jobs/{job_id}", {"Priority": 9})[2]


def test_a_deleted_job_is_gone_with_its_signals(api: Api) -> None:
    job_id = api.make()
    api.ok("POST", f"jobs/{job_id}/signals", {"Signal": "SIGUSR1"})
    job = api.job(job_id)
    assert api.ok("DELETE", f"jobs/{job_id}")["JobId"] == job_id
    assert api.refused("GET", f"jobs/{job_id}")[:2] == (404, "JobNotFound")
    kept = api.run(api.parts.services.documents.list(CALLER, f"pai_dlc.signal.{job.short_id}"))
    assert kept == []
