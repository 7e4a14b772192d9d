"""Faults on purpose, on a real server: each is seen to act, told of, and undone; only admins may."""

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import LiveServer
from tests.e2e.processes import processes_of
from tests.e2e.programs import TALKS
from tests.e2e.sdk import client_of, details, submit, wait_until
from tests.e2e.test_cli import Cli
from tests.e2e.test_crashes import agent_pids
from tests.e2e.waiting import eventually
from trackside.agent.cgroup import detect
from trackside.domain.chaos import FAULTS, picks

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        os.geteuid() != 0 or not detect().limits_memory or detect().unified is None,
        reason="every kind of fault needs control groups and tasks with mounts of their own",
    ),
]
COUNTS = "while true; do echo tick; sleep 0.02; done"
TASKS = ("worker-0", "worker-1")
BURNS = f"exec {sys.executable} -c 'while True: pass'"


class Site:
    """A server on which faults may be made."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.client = client_of(server)

    def run(self, command: str, *, nodes: int = 1, name: str = "victim") -> str:
        job_id = submit(self.client, command, nodes=nodes, name=name)
        wait_until(self.client, job_id, "Running")
        return job_id

    def inject(self, job_id: str, *, token: str | None = None, **asked: Any) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            f"{self.server.endpoint}/api/trackside/v1/jobs/{job_id}/faults",
            method="POST",
            data=json.dumps(asked).encode(),
            headers={"X-Auth-Token": token or self.server.token, "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=40) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def done(self, job_id: str, fault: str, **asked: Any) -> str:
        status, told = self.inject(job_id, fault=fault, **asked)
        assert status == 200, told
        assert told["done"], told
        return str(told["text"])

    def job(self, job_id: str) -> Any:
        return self.server.call("GET", f"/api/trackside/v1/jobs/{job_id}")

    def events(self, job_id: str) -> list[str]:
        path = f"/v2/{self.server.project_id}/training-jobs/{job_id}/events?limit=100"
        return [event["message"] for event in self.server.call("GET", path)["events"]]

    def log(self, job_id: str, attempt: int = 1, task: str = "worker-0") -> str:
        return (self.server.data_dir / "logs" / job_id / str(attempt) / f"{task}.log").read_text()

    def undone(self, job_id: str, words: str) -> None:
        eventually(
            lambda: any(words in told and "undone" in told for told in self.events(job_id)),
            f"{words} is not undone",
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("chaos")
    config = home / "trackside.toml"
    config.write_text("stop_grace_seconds = 1\nchaos = true\n")
    live = LiveServer(home / "data", extra=("--config", str(config)))
    try:
        yield Site(live.start())
    finally:
        live.stop()


@pytest.fixture(autouse=True)
def no_jobs_left(site: Site) -> Iterator[None]:
    yield
    site.server.stop_jobs()


def states(job_id: str) -> set[str]:
    found = set()
    for pid in processes_of(job_id):
        try:
            found.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue
    return found


def test_a_kill_is_told_of_and_is_not_somebody_elses(site: Site) -> None:
    job_id = site.run("exec sleep 100", nodes=2)
    assert "SIGKILL" in site.done(job_id, "kill", task="worker-1")
    job = wait_until(site.client, job_id)
    assert job.status.phase == "Failed"
    reason = site.job(job_id)["reason"]
    assert reason["code"] == "killed-from-outside"
    assert reason["task"] == "worker-1"
    assert any("injected on purpose: kill" in line for line in reason["evidence"])
    assert "neither Trackside" not in (reason["hint"] or "")
    told = site.events(job_id)
    assert "fault injected by admin: kill of worker-1 (a signal's number: 9)" in told
    assert any(line.startswith("kill of worker-1: sent SIGKILL") for line in told), told


def test_a_freeze_holds_a_task_and_lets_it_go(site: Site) -> None:
    job_id = site.run(COUNTS)
    site.done(job_id, "freeze", seconds=1.5)
    assert states(job_id) == {"T"}
    site.undone(job_id, "freeze")
    before = len(site.log(job_id))
    eventually(lambda: len(site.log(job_id)) > before, "it does not go on")
    assert details(site.client, job_id).status.phase == "Running"


def test_a_killed_agents_freeze_is_thawed_by_the_next_one(site: Site) -> None:
    job_id = site.run(COUNTS)
    site.done(job_id, "freeze", seconds=3000)
    (agent,) = agent_pids(site.server)
    os.kill(agent, signal.SIGKILL)
    assert states(job_id) == {"T"}
    site.undone(job_id, "freeze")
    assert "T" not in states(job_id)
    before = len(site.log(job_id))
    eventually(lambda: len(site.log(job_id)) > before, "it does not go on")


def cpu_seconds(job_id: str) -> float:
    total = 0
    for pid in processes_of(job_id):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def test_a_slowed_task_uses_less_of_its_cpu(site: Site) -> None:
    job_id = site.run(BURNS)  # it is given a fifth of a core
    site.done(job_id, "slow", amount=5, seconds=2)
    began, before = time.monotonic(), cpu_seconds(job_id)
    time.sleep(1.5)
    assert (cpu_seconds(job_id) - before) / (time.monotonic() - began) < 0.1
    site.undone(job_id, "slow")
    before = cpu_seconds(job_id)
    eventually(lambda: cpu_seconds(job_id) > before + 0.2, "it is slow for ever")


def test_a_task_without_memory_ends_the_job_as_out_of_memory(site: Site) -> None:
    job_id = site.run("exec sleep 100", nodes=2)
    site.done(job_id, "exhaust-memory", task="worker-0")
    assert wait_until(site.client, job_id).status.phase == "Failed"
    reason = site.job(job_id)["reason"]
    assert (reason["code"], reason["task"]) == ("out-of-memory", "worker-0")
    assert any("injected on purpose: exhaust memory" in line for line in reason["evidence"])


def test_a_task_whose_shm_is_full_sees_enospc(site: Site) -> None:
    writes = "head -c 1000000 /dev/zero > /dev/shm/new && echo room; rm /dev/shm/new; sleep 0.05"
    job_id = site.run(f"while true; do {writes}; done")
    site.done(job_id, "fill-shm", seconds=1)
    eventually(lambda: "No space left on device" in site.log(job_id), "it has room for ever")
    site.undone(job_id, "fill shm")
    before = site.log(job_id).count("room")
    eventually(lambda: site.log(job_id).count("room") > before, "it never has room again")
    assert details(site.client, job_id).status.phase == "Running"


def test_a_task_that_fails_for_a_full_shm_says_so(site: Site) -> None:
    job_id = site.run(
        "while head -c 1000000 /dev/zero > /dev/shm/new; do rm /dev/shm/new; sleep 0.05; done; exit 3"
    )
    site.done(job_id, "fill-shm", seconds=60)
    assert wait_until(site.client, job_id).status.phase == "Failed"
    reason = site.job(job_id)["reason"]
    assert reason["code"] == "shm-full"
    assert any("injected on purpose: fill shm" in line for line in reason["evidence"])


def test_a_task_that_is_cut_off_hears_no_peer(site: Site) -> None:
    job_id = site.run(f"exec {sys.executable} -c '{TALKS}'")
    eventually(lambda: "heard" in site.log(job_id), "it never hears anything")
    site.done(job_id, "cut-off", seconds=1)
    eventually(lambda: "silence" in site.log(job_id), "it hears everything")
    site.undone(job_id, "cut off")
    eventually(lambda: site.log(job_id).endswith("heard\n"), "it is cut off for ever")
    assert details(site.client, job_id).status.phase == "Running"


def test_a_refusal_of_the_node_is_an_answer(site: Site) -> None:
    job_id = site.run("exec sleep 100")
    site.done(job_id, "freeze", seconds=60)
    status, told = site.inject(job_id, fault="freeze")
    assert status == 200
    assert not told["done"]
    assert "under way" in told["text"]


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"fault": "explode", "task": "worker-0"}, 400, "there are kill"),
    ({"fault": "kill", "task": "worker-9"}, 404, "no task 'worker-9'"),
    ({"fault": "kill", "task": "worker-0", "seconds": 3}, 400, "over at once"),
    ({"fault": "slow", "task": "worker-0", "amount": 100}, 400, "1 to 99"),
    ({"fault": "kill", "seed": 3}, 400, "random"),
    ({"random": True, "seed": -1}, 400, "a seed is 0"),
    ({"fault": "kill"}, 400, "worker-0, worker-1"),
    ({"task": "worker-0"}, 400, "no fault called"),
    ({"fault": 7}, 400, "str"),
]


def test_what_makes_no_sense_is_refused(site: Site) -> None:
    job_id = site.run("exec sleep 100", nodes=2)
    for asked, status, said in REFUSED:
        got, told = site.inject(job_id, **asked)
        assert got == status, told
        assert said in told["error_msg"]
    assert processes_of(job_id)


def test_a_task_that_does_not_run_cannot_be_harmed(site: Site) -> None:
    job_id = submit(site.client, "true")
    wait_until(site.client, job_id, "Completed")
    status, told = site.inject(job_id, fault="kill", task="worker-0")
    assert status == 409
    assert "worker-0 is ended" in told["error_msg"]


def test_only_admins_may(site: Site) -> None:
    cli = Cli(site.server)
    keys = json.loads(cli("user", "add", "bob", "--json"))["user"]
    job_id = site.run("exec sleep 100")
    status, told = site.inject(job_id, token=keys["token"], fault="kill")
    assert status == 403
    assert "trackside:chaos:inject" in told["error_msg"]
    assert processes_of(job_id)


def test_the_command_says_what_it_did_and_a_seed_chooses_the_same_again(site: Site) -> None:
    cli = Cli(site.server)
    job_id = site.run("exec sleep 100", nodes=2, name="rehearsal")
    said = cli("chaos", "rehearsal", "freeze", "--task", "worker-1", "--seconds", "1")
    assert said == "freeze of worker-1 (rehearsal) done: stopped 1 process for 1 s\n"
    chosen = [
        json.loads(cli("chaos", "rehearsal", "slow", "--random", "--seed", "7", "--seconds", "0.1", "--json"))
        for _ in range(2)
    ]
    assert chosen[0]["fault"]["seed"] == 7
    assert chosen[0]["fault"]["task"] == chosen[1]["fault"]["task"]
    cli("chaos", "rehearsal", "explode", code=2)
    cli("chaos", "rehearsal", code=2)
    cli("chaos", "rehearsal", "kill", "--seed", "1", code=2)
    cli("chaos", "nothing-of-the-kind", "kill", code=3)
    cli("chaos", "rehearsal", "freeze", "--task", "worker-0", "--seconds", "60")
    cli("chaos", "rehearsal", "freeze", "--task", "worker-0", code=6)
    _, whole = site.inject(job_id, random=True, seed=11)
    assert (whole["fault"], whole["task"]) == next(picks(11, "rehearsal", TASKS, tuple(FAULTS)))


def test_it_is_off_until_somebody_switches_it_on(server: LiveServer) -> None:
    site = Site(server)
    job_id = site.run("exec sleep 100")
    status, told = site.inject(job_id, fault="kill")
    assert status == 409
    assert "chaos = true" in told["error_msg"]
    cli = Cli(server)
    cli("chaos", job_id, "kill", code=6)
    assert processes_of(job_id)
