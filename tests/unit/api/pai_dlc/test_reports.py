"""Logs, events, sizes, links, tokens, health checks, tags and signals."""

import asyncio
import json
from typing import Any

import pytest

from tests.unit.api.pai_dlc.harness import WORKER, Api
from trackside.api.pai_dlc.checks import time_text


@pytest.fixture
def running(api: Api) -> str:
    job_id = api.make(JobSpecs=[{**WORKER, "PodCount": 2}])
    made = api.job(job_id).created_at_ms
    api.place(job_id, made)
    api.start(job_id, "worker-0", made)
    return job_id


def write_log(api: Api, job_id: str, text: str, attempt: int = 1) -> None:
    path = api.parts.places.logs.path(api.job(job_id).id, attempt, "worker-0")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_logs_are_the_newest_lines(api: Api, running: str) -> None:
    write_log(api, running, "one\n50%\rdone\n\nlast")
    pod = f"jobs/{running}/pods/{running}-worker-0"
    answer = api.get(f"{pod}/logs")
    assert answer["Logs"] == ["one", "50%\rdone", "", "last"]
    assert (answer["JobId"], answer["PodId"]) == (running, f"{running}-worker-0")
    assert answer["ContainerInfo"] == {"MainContainer": "main", "SidecarContainers": []}
    assert api.get(f"{pod}/logs", MaxLines="2", DownloadToFile="True")["Logs"] == ["", "last"]
    assert api.get(f"{pod}/logs", PodUid=answer["PodUid"])["Logs"]
    assert api.get(f"{pod}/logs", Containers="main,other")["Containers"] == "main,other"
    assert api.get(f"{pod}/logs", Containers="sidecar")["Logs"] == []
    before = {"StartTime": "2020-01-01T00:00:00Z", "EndTime": "2020-01-02T00:00:00Z"}
    assert api.get(f"{pod}/logs", **before)["Logs"] == []
    assert api.get(f"jobs/{running}/pods/{running}-worker-1/logs")["Logs"] == []


def test_the_log_of_an_empty_line_is_one_empty_line(api: Api, running: str) -> None:
    write_log(api, running, "\n")
    assert api.get(f"jobs/{running}/pods/{running}-worker-0/logs")["Logs"] == [""]


@pytest.mark.parametrize(
    ("pod", "query", "status"),
    [
        ("{}-worker-2", {}, 404),
        ("worker-0", {}, 404),
        ("{}-worker-0", {"PodUid": "other"}, 404),
        ("{}-worker-0", {"MaxLines": "0"}, 400),
        ("{}-worker-0", {"StartTime": "x"}, 400),
        ("{}-worker-0", {"DownloadToFile": "maybe"}, 400),
    ],
)
def test_logs_that_cannot_be_had(
    api: Api, running: str, pod: str, query: dict[str, str], status: int
) -> None:
    found, code, message = api.refused("GET", f"jobs/{running}/pods/{pod.format(running)}/logs", **query)
    assert (found, code) == (status, {404: "PodNotFound", 400: "InvalidParameter"}[status])
    if pod == "worker-0":
        assert f"it has {running}-worker-0, {running}-worker-1" in message


def test_events_are_lines_the_oldest_first(api: Api, running: str) -> None:
    events = api.get(f"jobs/{running}/events")["Events"]
    made = time_text(api.job(running).created_at_ms)
    assert events[0] == f"{made} Info submitted by ada"
    assert events[-1] == f"{made} Info worker-0 started"
    assert api.get(f"jobs/{running}/events", MaxEventsNum="1")["Events"] == events[-1:]
    pod = api.get(f"jobs/{running}/pods/{running}-worker-0/events")
    assert pod["Events"] == [f"{made} Info worker-0 started"]
    assert (pod["JobId"], pod["PodId"]) == (running, f"{running}-worker-0")
    assert api.get(f"jobs/{running}/pods/{running}-worker-1/events")["Events"] == []
    before = {"StartTime": "2020-01-01T00:00:00Z", "EndTime": "2020-01-02T00:00:00Z"}
    assert api.get(f"jobs/{running}/events", **before)["Events"] == []


def test_sizes_are_the_flavors(api: Api) -> None:
    answer = api.get("ecsspecs")
    assert answer["TotalCount"] == 2
    assert answer["EcsSpecs"][1] == {
        "InstanceType": "gpu.2x",
        "Cpu": 4,
        "Gpu": 2,
        "GpuType": "V100",
        "Memory": 16,
        "AcceleratorType": "GPU",
        "IsAvailable": True,
        "ResourceType": "ECS",
        "PaymentTypes": ["PrePaid"],
    }

    def names(**query: str) -> list[str]:
        return [one["InstanceType"] for one in api.get("ecsspecs", **query)["EcsSpecs"]]

    assert names(AcceleratorType="CPU") == ["cpu.1c2g"]
    assert names(InstanceTypes="gpu.2x,none") == ["gpu.2x"]
    assert names(SortBy="Memory", Order="desc") == ["gpu.2x", "cpu.1c2g"]
    assert names(SortBy="GPU", Order="asc") == ["cpu.1c2g", "gpu.2x"]
    assert names(ResourceType="Lingjun") == []
    assert names(PageSize="1", PageNumber="2") == ["gpu.2x"]
    assert "CPU, GPU" in api.refused("GET", "ecsspecs", AcceleratorType="TPU")[2]


def test_the_dashboard_is_the_jobs_page(api: Api, running: str) -> None:
    url = f"{api.parts.services.logs.endpoint}/jobs/{api.job(running).id}"
    assert api.get(f"jobs/{running}/dashboard") == {"url": url}
    assert api.get(f"jobs/{running}/dashboard", isShared="True", token="t") == {"url": f"{url}?token=t"}
    assert "token is missing" in api.refused("GET", f"jobs/{running}/dashboard", isShared="true")[2]


def test_a_token_reads_one_job(api: Api, running: str) -> None:
    answer = api.get("tokens", TargetId=running, TargetType="job", ExpireTime="60")
    opened = api.parts.services.tokens.open(answer["Token"])
    assert (opened.job_id, opened.user) == (api.job(running).id, "ada")
    assert "TargetId is missing" in api.refused("GET", "tokens")[2]
    assert "not offered" in api.refused("GET", "tokens", TargetId=running, TargetType="tensorboard")[2]
    assert api.refused("GET", "tokens", TargetId="dlc0")[:2] == (404, "JobNotFound")
    assert api.refused("GET", "tokens", TargetId=running, ExpireTime="0")[0] == 400


def test_no_health_checks_are_run(api: Api, running: str) -> None:
    one = api.get(f"jobs/{running}/sanitycheckresult", SanityCheckNumber="1", SanityCheckPhase="DeviceCheck")
    assert one.pop("RequestID")
    assert one == {"JobId": running, "SanityCheckResult": []}
    every = api.get(f"jobs/{running}/sanitycheckresults", Order="desc")
    assert every.pop("RequestID")
    assert every == {"SanityCheckResults": [], "TotalCount": 0}
    assert "CheckInit" in api.refused("GET", f"jobs/{running}/sanitycheckresult", SanityCheckPhase="x")[2]


def test_tags_come_and_go(api: Api) -> None:
    jobs = [api.make(Settings={"Tags": {"old": "1"}}), api.make()]
    tag = {"ResourceType": "Job", "ResourceId": jobs, "Tag": [{"Key": "team", "Value": "a"}, {"Key": "x"}]}
    assert set(api.ok("POST", "tags", {**tag, "RegionId": "here"})) == {"RequestId"}
    tags = [api.get(f"jobs/{job}")["Settings"]["Tags"] for job in jobs]
    assert tags == [{"old": "1", "team": "a", "x": ""}, {"team": "a", "x": ""}]
    assert api.get("jobs", Tags='{"team":"a"}')["TotalCount"] == 2
    ids = json.dumps(jobs)
    api.ok("DELETE", "tags", ResourceType="Job", ResourceId=ids, TagKey='["x","none"]')
    assert api.get(f"jobs/{jobs[1]}")["Settings"]["Tags"] == {"team": "a"}
    api.ok("DELETE", "tags", ResourceType="Job", ResourceId=ids, All="True")
    assert "Settings" not in api.get(f"jobs/{jobs[0]}")


def test_tags_put_on_at_once_are_all_there(api: Api) -> None:
    job_id = api.make()

    async def tag_all() -> list[tuple[int, Any]]:
        tag = {"ResourceType": "Job", "ResourceId": [job_id]}
        return await asyncio.gather(
            *(api.acall("POST", "tags", {**tag, "Tag": [{"Key": f"k{n}"}]}) for n in range(8))
        )

    assert {status for status, _ in api.run(tag_all())} == {200}
    assert set(api.job(job_id).spec.tags) == {f"k{n}" for n in range(8)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ResourceType": "Pod"}, "ResourceType must be one of Job"),
        ({"ResourceId": []}, "ResourceId is missing"),
        ({"Tag": []}, "Tag is missing"),
        ({"Tag": [{"Value": "a"}]}, "Key"),
        ({"Tag": [{"Key": ""}]}, "Key"),
    ],
)
def test_tags_that_cannot_be(api: Api, change: dict[str, Any], message: str) -> None:
    tag = {"ResourceType": "Job", "ResourceId": [api.make()], "Tag": [{"Key": "a", "Value": "b"}], **change}
    assert message in api.refused("POST", "tags", tag)[2]


def test_nothing_is_tagged_if_one_job_is_not_there(api: Api) -> None:
    job_id = api.make()
    tag = {"ResourceType": "Job", "ResourceId": [job_id, "dlc0"], "Tag": [{"Key": "a", "Value": "b"}]}
    assert api.refused("POST", "tags", tag)[:2] == (404, "JobNotFound")
    assert api.job(job_id).spec.tags == {}
    assert "JSON list" in api.refused("DELETE", "tags", ResourceType="Job", ResourceId=job_id, All="true")[2]
    assert "TagKey is missing" in api.refused("DELETE", "tags", ResourceType="Job", ResourceId="[]")[2]


def test_a_signal_is_kept_and_never_said_to_be_delivered(api: Api, running: str) -> None:
    target = {"Scope": "pods", "PodNames": [f"{running}-worker-1"]}
    made = api.ok("POST", f"jobs/{running}/signals", {"Signal": "SIGUSR1", "Target": target})
    assert (made["Status"], made["Reason"], made["JobId"]) == ("Failed", "SignalFailed", running)
    assert "not delivered" in made["Message"]
    found = api.get(f"jobs/{running}/signals/{made['SignalId']}")
    assert {**found, "RequestId": ""} == {**made, "RequestId": ""}
    roles = {"Signal": "sigterm", "Target": {"Scope": "roles", "Roles": ["Worker"]}}
    second = api.ok("POST", f"jobs/{running}/signals", roles)
    assert (second["Signal"], second["Roles"], second["PodNames"]) == ("SIGTERM", ["worker"], [])
    page = api.get(f"jobs/{running}/signals")
    assert (page["TotalCount"], page["PageNumber"], page["PageSize"]) == (2, 1, 20)
    ids = [one["SignalId"] for one in page["Signals"]]
    assert set(ids) == {made["SignalId"], second["SignalId"]}
    assert api.get(f"jobs/{running}/signals", Order="asc")["Signals"][-1]["SignalId"] == ids[0]
    assert api.get(f"jobs/{running}/signals", Status="Succeeded")["TotalCount"] == 0
    assert len(api.get(f"jobs/{running}/signals", PageSize="1", PageNumber="2")["Signals"]) == 1
    other = api.make()
    assert api.get(f"jobs/{other}/signals")["TotalCount"] == 0
    assert api.refused("GET", f"jobs/{other}/signals/{ids[0]}")[:2] == (404, "ResourceNotFound")


def test_a_signal_for_a_job_that_is_over_comes_too_late(api: Api) -> None:
    job_id = api.make()
    api.ok("POST", f"jobs/{job_id}/stop")
    made = api.ok("POST", f"jobs/{job_id}/signals", {"Signal": "SIGUSR2"})
    assert (made["Status"], made["Reason"], made["Scope"]) == ("Stopped", "StoppedByJobEnded", "job")


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        ({}, "Signal must be one of SIGHUP"),
        ({"Signal": "SIGNONE"}, "SIGUSR1"),
        ({"Signal": "SIGUSR1", "Target": {"Scope": "some"}}, "job, roles, pods"),
        ({"Signal": "SIGUSR1", "Target": {"Scope": "roles"}}, "Target.Roles is missing"),
        ({"Signal": "SIGUSR1", "Target": {"Scope": "pods"}}, "Target.PodNames is missing"),
        ({"Signal": "SIGUSR1", "Target": {"PodNames": ["x"]}}, "Target.PodNames must be one of"),
        ({"Signal": "SIGUSR1", "Target": {"Roles": ["ps"]}}, "Target.Roles must be one of worker"),
    ],
)
def test_signals_that_cannot_be(api: Api, running: str, signal: dict[str, Any], message: str) -> None:
    status, code, told = api.refused("POST", f"jobs/{running}/signals", signal)
    assert (status, code) == (400, "InvalidParameter")
    assert message in told
