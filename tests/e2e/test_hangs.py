"""Jobs that really hang, told by both vendors' rules, in windows of seconds."""

import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huaweicloudsdkmodelarts.v1 import (
    CreateTrainingJobRequest,
    Job,
    JobAlgorithm,
    JobMetadata,
    Spec,
    SpecResource,
)

from tests.e2e.conftest import LiveServer
from tests.e2e.dlc_sdk import CURRENT, Sdk, opened, python_with_sdk, role
from tests.e2e.sdk import client_of, details
from tests.e2e.test_cli import Cli
from tests.e2e.waiting import eventually
from tests.requirements import missing

pytestmark = pytest.mark.e2e

HANG_SECONDS = 90.0
OWN = "/api/trackside/v1"

# Waits for a file without reading or writing anything; then prints, and so moves.
PROGRAM = """
import os, sys, time
def wait_for_the_peer():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.2)
print("up", flush=True)
wait_for_the_peer()
while True:
    print("step", flush=True)
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server that rehearses: every window is of five seconds."""
    place = tmp_path_factory.mktemp("hangs")
    config = place / "trackside.toml"
    config.write_text(
        "stop_grace_seconds = 2\nsample_seconds = 1\nhang_check_seconds = 1\nhang_window_seconds = 5\n"
    )
    live = LiveServer(place / "data", extra=("--config", str(config)))
    try:
        yield live.start()
    finally:
        live.stop()


@pytest.fixture(autouse=True)
def room(server: LiveServer) -> Iterator[None]:
    """Leave nothing running to the next test."""
    yield
    server.stop_jobs()


@pytest.fixture
def program(open_dir: Path) -> str:
    file = open_dir / "waits.py"
    file.write_text(PROGRAM)
    return f"{sys.executable} {file} {open_dir / 'gate'}"


def submit(client: Any, command: str, *, nodes: int = 1, retry: bool = False) -> str:
    resource = SpecResource(
        node_count=nodes, main_container_customized_flavor={"cpu_core_num": 0.2, "mem_size": 0.25}
    )
    body = Job(
        kind="job",
        metadata=JobMetadata(
            name="hangs", annotations={"fault-tolerance/hang-retry": "true"} if retry else None
        ),
        algorithm=JobAlgorithm(command=command, environments={"MA_HANG_DETECT_TIME": "5"}),
        spec=Spec(resource=resource),
    )
    return str(client.create_training_job(CreateTrainingJobRequest(body=body)).metadata.id)


def shown(server: LiveServer, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = server.call("GET", f"{OWN}/jobs/{job_id}")
    return job


def suspicion(server: LiveServer, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = eventually(
        lambda: shown(server, job_id)["suspicion"], "no hang was seen", seconds=HANG_SECONDS
    )
    return found


def events(server: LiveServer, job_id: str) -> list[str]:
    answer = server.call("GET", f"/v2/{server.project_id}/training-jobs/{job_id}/events?limit=100&order=asc")
    return [event["message"] for event in answer["events"]]


def test_a_job_that_waits_for_ever_is_told_with_the_stacks_of_every_rank_until_it_moves(
    server: LiveServer, program: str, open_dir: Path
) -> None:
    client, cli = client_of(server), Cli(server)
    busy = submit(client, "while true; do date; sleep 0.5; done")
    job_id = submit(client, program, nodes=2)
    reason = suspicion(server, job_id)
    assert reason["text"].startswith("all 2 tasks seem to hang since ")
    assert "no input or output for" in reason["text"]
    assert reason["code"] == "hanged"
    status = details(client, job_id).status
    assert status.phase == "Running"
    assert [(one.task, one.exit_code) for one in status.task_statuses] == [
        ("worker-0", None),
        ("worker-1", None),
    ]
    assert {one.message for one in status.task_statuses} == {reason["text"]}
    told = events(server, job_id)
    assert told.count(reason["text"]) == 1
    assert any("MA_HANG_DETECT_TIME must be 10 to 720 minutes, not '5': 10 are taken" in one for one in told)
    assert "the stacks of 2 tasks were taken: trackside stacks hangs" in told
    assert reason["text"] in cli("explain", job_id)
    _check_stacks(server, cli, job_id, open_dir)
    assert shown(server, busy)["suspicion"] is None
    (open_dir / "gate").touch()
    eventually(lambda: shown(server, job_id)["suspicion"] is None, "it is suspected though it moves")
    assert "it moves again" in events(server, job_id)
    assert len(shown(server, job_id)["records"]) == 1


def _check_stacks(server: LiveServer, cli: Cli, job_id: str, open_dir: Path) -> None:
    taken = server.call("GET", f"{OWN}/jobs/{job_id}/stacks")
    assert [(one["task"], one["attempt"]) for one in taken["stacks"]] == [("worker-0", 1), ("worker-1", 1)]
    assert taken["matching"] == 2
    assert server.call("GET", f"{OWN}/jobs/{job_id}/stacks?task=worker-1&attempt=1")["matching"] == 1
    assert server.call("GET", f"{OWN}/jobs/{job_id}/stacks?attempt=2") == {"stacks": [], "matching": 0}
    exported = open_dir / "attempt.zip"
    cli("show", job_id, "--attempt", "1", "--export", str(exported))
    with zipfile.ZipFile(exported) as archive:
        kept = {
            name: archive.read(name).decode() for name in archive.namelist() if name.startswith("stacks/")
        }
    assert sorted(kept.values()) == sorted(one["text"] for one in taken["stacks"])
    printed = cli("stacks", job_id)
    assert printed.count("=== worker-") == 2
    if shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None:
        missing("py-spy")
    assert all("wait_for_the_peer" in one["text"] for one in taken["stacks"])
    assert printed.count("wait_for_the_peer") >= 2


def test_a_job_that_asked_for_it_is_restarted_where_it_is_three_times_in_a_row(
    server: LiveServer, program: str
) -> None:
    job_id = submit(client_of(server), program, retry=True)
    eventually(
        lambda: len(shown(server, job_id)["records"]) == 4 and shown(server, job_id)["suspicion"],
        "it was not restarted three times",
        seconds=2 * HANG_SECONDS,
    )
    job = shown(server, job_id)
    assert job["phase"] == "running"
    assert [record["start_type"] for record in job["records"]] == ["init_or_rescheduled"] + 3 * ["restarted"]
    assert {record["reason"]["code"] for record in job["records"][:3]} == {"hanged"}
    attempts = [one["attempt"] for one in server.call("GET", f"{OWN}/jobs/{job_id}/stacks")["stacks"]]
    assert attempts == [1, 2, 3, 4]
    log = server.call("GET", f"/v2/{server.project_id}/training-jobs/{job_id}/tasks/worker-0/logs/preview")
    assert log["content"].count("up") == 4


def test_a_restarted_server_goes_on_from_what_is_stored(server: LiveServer, program: str) -> None:
    job_id = submit(client_of(server), program)
    reason = suspicion(server, job_id)
    server.kill()
    server.start()
    looked = events(server, job_id)
    assert shown(server, job_id)["suspicion"]["text"] == reason["text"]
    other = submit(client_of(server), program)
    assert suspicion(server, other)
    assert events(server, job_id) == looked  # nothing was told twice meanwhile


@pytest.fixture
def sdk(request: pytest.FixtureRequest, server: LiveServer) -> Iterator[Sdk]:
    with opened(python_with_sdk(request.config, CURRENT), CURRENT, server) as client:
        yield client


def monitored(arguments: str) -> dict[str, Any]:
    return {"EnableErrorMonitoringInAIMaster": True, "ErrorMonitoringArgs": arguments}


def hanged(sdk: Sdk, job_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        job = sdk("get_job", job_id)
        return job if job["ReasonCode"] == "JobHanged" else None

    found: dict[str, Any] = eventually(look, "no hang was seen", seconds=HANG_SECONDS)
    return found


def test_silent_logs_are_a_hang_where_aimaster_was_asked(
    server: LiveServer, sdk: Sdk, open_dir: Path
) -> None:
    works = f"while true; do date > {open_dir}/$TRACKSIDE_JOB_ID; sleep 0.5; done"
    settings = monitored("--enable-job-hang-detection=True --job-hang-interval=1800 --enable-c4d=True")
    job_id = sdk.create(works, Settings=settings)
    unwatched = sdk.create(works)
    job = hanged(sdk, job_id)
    assert job["Status"] == "Running"
    assert "nothing was written to stdout or stderr for" in job["ReasonMessage"]
    assert job["Settings"] == settings
    assert sdk("get_job", unwatched)["ReasonCode"] == "JobRunning"
    told = [one["Message"] for one in _event_texts(sdk, job_id)]
    assert any("--enable-c4d has no effect here" in one for one in told)
    assert any("nothing was written" in one for one in told)


def _event_texts(sdk: Sdk, job_id: str) -> list[dict[str, str]]:
    answer = sdk("get_job_events", job_id)
    return [{"Message": line} for line in answer["Events"]]


def test_a_job_that_does_not_end_is_restarted_where_aimaster_was_asked(server: LiveServer, sdk: Sdk) -> None:
    command = 'if [ "$RANK" = 0 ]; then exit 0; fi; while true; do date; sleep 0.5; done'
    settings = monitored("--enable-job-exit-hang-detection --job-exit-hang-interval 60 --enable-job-restart")
    job_id = sdk.create(command, JobSpecs=[role("Worker", 2)], Settings=settings)

    def restarted() -> bool:
        return any("worker-0 succeeded" in one["Reason"] for one in sdk("get_job", job_id)["RestartRecord"])

    eventually(restarted, "it was not restarted", seconds=HANG_SECONDS)
