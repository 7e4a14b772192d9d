"""More jobs than fit, on real processes: who waits and why, who gives way, and that all run in the end."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from huaweicloudsdkmodelarts.v1 import (
    CreateTrainingJobRequest,
    Job,
    JobAlgorithm,
    JobMetadata,
    ListTrainingJobEventsRequest,
    SchedulePolicy,
    ShowTrainingJobLogsFromAomRequest,
    Spec,
    SpecResource,
)

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, details, wait_until
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

# Ends only in its second attempt; the first one goes on until somebody ends it.
TWICE = 'echo "attempt $MA_SCHEDULE_CNT"; [ "$MA_SCHEDULE_CNT" -gt 1 ] || exec sleep 600'


def until(gate: Path) -> str:
    """Return a command that ends when a file appears."""
    return f"while [ ! -e {gate} ]; do sleep 0.05; done"


class Site:
    """A server of the test's own, all of whose cores the test gives out by halves."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server.start()
        self.client = client_of(self.server)
        (node,) = self.get("/api/trackside/v1/nodes")["nodes"]
        self.half = node["cpu_cores"] / 2

    def get(self, path: str) -> Any:
        """Ask the native API."""
        headers = {"Authorization": f"Bearer {self.server.token}"}
        request = urllib.request.Request(self.server.endpoint + path, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def submit(self, name: str, command: str, *, halves: int = 1, **policy: Any) -> str:
        """Create a job that needs one or two halves of the machine."""
        size = {"cpu_core_num": self.half * halves, "mem_size": 0.25}
        body = Job(
            kind="job",
            metadata=JobMetadata(name=name),
            algorithm=JobAlgorithm(command=command),
            spec=Spec(
                resource=SpecResource(node_count=1, main_container_customized_flavor=size),
                schedule_policy=SchedulePolicy(**policy),
            ),
        )
        return str(self.client.create_training_job(CreateTrainingJobRequest(body=body)).metadata.id)

    def explain(self, job_id: str) -> Any:
        """Return why a job is where it is."""
        return self.get(f"/api/trackside/v1/jobs/{job_id}/explain")

    def log(self, job_id: str) -> str:
        """Return what the job's only task printed."""
        request = ShowTrainingJobLogsFromAomRequest(training_job_id=job_id, task_id="worker-0")
        return str(self.client.show_training_job_logs_from_aom(request).content)


def test_a_job_of_high_priority_preempts_one_that_runs_again_later(
    own_server: LiveServer, open_dir: Path
) -> None:
    site = Site(own_server)
    firm = site.submit("firm", until(open_dir / "firm"), priority=1)
    soft = site.submit("soft", TWICE, priority=1, preemptible=True)
    for job_id in (firm, soft):
        wait_until(site.client, job_id, "Running")
    waiting = site.submit("waiting", "true", priority=1)
    told = eventually(lambda: site.explain(waiting)["pending"], "nobody says why it waits")
    assert told["code"] == "waiting-for-room"
    assert told["text"].endswith("on one machine; 0 cores free in all")
    assert (told["position"], told["waiting"]) == (1, 1)

    high = site.submit("high", until(open_dir / "high"), priority=3)
    wait_until(site.client, high, "Running")
    again = wait_until(site.client, soft, "Pending")
    assert again.status.secondary_phase == "Queuing"
    (first,) = again.status.running_records
    assert (first.end_reason, first.end_related_task) == ("preempted by high (priority 3)", None)
    assert first.end_at >= first.start_at
    (record, _) = site.get(f"/api/trackside/v1/jobs/{soft}")["records"]
    assert (record["reason"]["code"], record["reason"]["certainty"]) == ("preempted", "certain")
    assert record["culprit"] is None, "nobody failed"
    assert "higher priority" in record["reason"]["hint"]
    assert details(site.client, firm).status.phase == "Running", "who may not be preempted goes on"
    line = eventually(lambda: site.explain(waiting)["pending"], "nobody says why it waits")
    assert [one["name"] for one in line["ahead"]] == ["soft"], "the preempted one is first of its priority"

    (open_dir / "high").touch()
    wait_until(site.client, high, "Completed")
    done = wait_until(site.client, soft, "Completed")
    assert len(done.status.running_records) == 2
    assert site.log(soft).splitlines() == ["attempt 1", "attempt 2"]
    wait_until(site.client, waiting, "Completed")
    assert details(site.client, firm).status.phase == "Running"
    (open_dir / "firm").touch()
    wait_until(site.client, firm, "Completed")
    request = ListTrainingJobEventsRequest(training_job_id=waiting, limit=50)
    events = site.client.list_training_job_events(request).events
    assert any(event.source == "scheduler" and event.message.startswith("waiting:") for event in events)


def test_the_head_of_the_queue_is_not_passed_and_a_killed_server_goes_on(
    own_server: LiveServer, open_dir: Path
) -> None:
    site = Site(own_server)
    busy = site.submit("busy", until(open_dir / "busy"))
    wait_until(site.client, busy, "Running")
    head = site.submit("head", until(open_dir / "head"), halves=2)
    small = site.submit("small", "true")
    told = eventually(lambda: site.explain(small)["pending"], "nobody says why it waits")
    assert told["code"] == "waiting-for-turn"
    assert [one["name"] for one in told["ahead"]] == ["head"]
    own_server.kill()
    own_server.start()
    site.client = client_of(own_server)
    told = eventually(lambda: site.explain(small)["pending"], "the new server says nothing")
    assert told["code"] == "waiting-for-turn"
    (open_dir / "busy").touch()
    wait_until(site.client, head, "Running")
    assert details(site.client, small).status.phase == "Pending"
    (open_dir / "head").touch()
    for job_id in (busy, head, small):
        wait_until(site.client, job_id, "Completed")


def test_the_command_line_says_why(own_server: LiveServer, open_dir: Path) -> None:
    site = Site(own_server)
    busy = site.submit("busy", until(open_dir / "busy"), halves=2)
    wait_until(site.client, busy, "Running")
    waiting = site.submit("waiting", "true")
    eventually(lambda: site.explain(waiting)["pending"], "nobody says why it waits")
    environment = {
        "TRACKSIDE_ENDPOINT": own_server.endpoint,
        "TRACKSIDE_PROJECT_ID": own_server.project_id,
        "TRACKSIDE_ACCESS_KEY": own_server.access_key,
        "TRACKSIDE_SECRET_KEY": own_server.secret_key,
        "PATH": "/usr/bin:/bin",
    }
    command = [sys.executable, "-m", "trackside", "explain", "waiting"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "0 cores free in all.  [waiting-for-room]" in done.stdout
    assert "line\t1 of 1" in done.stdout
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["pending"]["code"] == "waiting-for-room"
    (open_dir / "busy").touch()
    wait_until(site.client, waiting, "Completed")
