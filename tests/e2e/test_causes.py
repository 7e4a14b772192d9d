"""One job per kind of end, each provoked for real, and what every API says about it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from huaweicloudsdkmodelarts.v1 import JobActionType, StopTrainingJobRequest

from tests.e2e.agent_harness import AgentProcess
from tests.e2e.conftest import LiveServer
from tests.e2e.processes import processes_of
from tests.e2e.sdk import client_of, submit, wait_until
from tests.e2e.waiting import eventually
from trackside.agent import cgroup, record
from trackside.agent.control import stop_agent

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs mounts of its own")
with_limits = pytest.mark.skipif(
    not cgroup.detect().limits_memory, reason="no memory limits can be set on this machine"
)
XID_LINE = (
    "4,977,{us},-;NVRM: Xid (PCI:0000:3b:00): 79, pid={pid}, name=python, GPU has fallen off the bus.\n"
)
ORDERED = 20  # times
DISK = "size=16m,mode=700"
RAISES = """python - <<'END'
def load(path):
    raise FileNotFoundError(2, "no such shard", path)
load("/data/shard-7")
END"""
EATS = "exec python -S -c 'x = bytearray(400 << 20); print(len(x))'"
FILLS_SHM = 'exec python -S -c \'open("/dev/shm/x", "wb").write(bytes(200 << 20))\''


@dataclass(frozen=True)
class Cause:
    """A way to fail, and what is said about it."""

    command: str
    code: str  # ours
    dlc: str
    text: str  # part of the sentence
    hint: str  # part of the advice
    exit_code: int | None
    certainty: str = "certain"
    evidence: str = ""  # part of it


BY_ITSELF = {
    "exit-code": Cause("exit 3", "exit-code", "JobFailed", "worker-0 exited with code 3", "log", 3),
    "exception": Cause(
        RAISES,
        "exception",
        "JobFailed",
        "exited with code 1: FileNotFoundError: [Errno 2] no such shard: '/data/shard-7'",
        "traceback",
        1,
        evidence="in load\nFileNotFoundError",
    ),
    "crash": Cause(
        "exec python -S -c 'import os; os.kill(os.getpid(), 11)'",
        "signal",
        "PodKilledBySignal",
        "worker-0 crashed with SIGSEGV",
        "log",
        139,
    ),
    "crash-of-a-child": Cause(
        "python -S -c 'import os; os.kill(os.getpid(), 11)'; exit $?",
        "signal",
        "PodKilledBySignal",
        "exited with code 139: a command of it crashed with SIGSEGV",
        "log",
        139,
        certainty="likely",
    ),
    "no-such-file": Cause(
        "./train.sh --epochs 3",
        "cannot-start",
        "PodStartFailed",
        "could not be started: /bin/sh: 1: ./train.sh: not found",
        "path",
        127,
    ),
    "no-permission": Cause(
        "printf '#!/bin/sh\\n' > train.sh; ./train.sh",
        "cannot-start",
        "PodStartFailed",
        "./train.sh: Permission denied (it is there, but not executable: chmod a+rx)",
        "chmod",
        126,
    ),
    "no-interpreter": Cause(
        "printf '#!/opt/nope/python\\n' > train.sh; chmod +x train.sh; ./train.sh",
        "cannot-start",
        "PodStartFailed",
        "(the interpreter /opt/nope/python, named in the first line of ./train.sh, does not exist)",
        "path",
        127,
    ),
    "out-of-memory": Cause(
        EATS,
        "out-of-memory",
        "PodOutOfMemory",
        "worker-0 ran out of memory (256.0 MiB of 256.0 MiB)",
        "more memory",
        137,
        evidence="cgroup went up from 0 to 1",
    ),
    "shm-full": Cause(
        FILLS_SHM,
        "shm-full",
        "SharedMemoryFull",
        "failed (exit code 1) while its /dev/shm was full (128.0 MiB of 128.0 MiB)",
        "keep less there",
        1,
        certainty="likely",
        evidence="No space left on device",
    ),
}
NEEDS = {"out-of-memory": with_limits, "shm-full": as_root}


class Site:
    """A server, an agent that has a card and a kernel's log of the test's own, and all APIs."""

    def __init__(self, server: LiveServer, kernel_log: Path) -> None:
        self.server = server
        self.kernel_log = kernel_log
        self.client = client_of(server)

    def get(self, path: str) -> Any:
        """Ask any dialect with the admin's token."""
        return self.call("GET", path)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to any dialect with the admin's token."""
        request = urllib.request.Request(
            self.server.endpoint + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {self.server.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def native(self, job_id: str) -> Any:
        """Return a job in our own words."""
        return self.get(f"/api/trackside/v1/jobs/{job_id}")

    def dlc(self, name: str) -> Any:
        """Return a job as DLC's GetJob does."""
        every = self.get(f"/api/v1/jobs?DisplayName={name}&PageSize=100")["Jobs"]
        (found,) = [job for job in every if job["DisplayName"] == name]
        return self.get(f"/api/v1/jobs/{found['JobId']}")

    def explain(self, name: str) -> str:
        """Return what the command line says."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TRACKSIDE_")}
        done = subprocess.run(
            [sys.executable, "-m", "trackside", "explain", name],
            env=kept | {"TRACKSIDE_DATA_DIR": str(self.server.data_dir)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def log(self, job_id: str, task: str = "worker-0") -> str:
        """Return what a task printed so far."""
        path = self.server.data_dir / "logs" / job_id / "1" / f"{task}.log"
        return path.read_text() if path.exists() else ""

    def running(self, command: str, name: str, **more: Any) -> str:
        """Submit a job that says "up" once it runs, and wait for that."""
        job_id = submit(self.client, f"echo up; {command}", name=name, **more)
        eventually(lambda: "up" in self.log(job_id), f"{name} does not run")
        return job_id


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("causes")
    (home / "trackside.toml").write_text("stop_grace_seconds = 2\n")
    (home / "cards").write_text("5 1 0 0\n5 1 0 0\n")
    (home / "kmsg").touch()
    live = LiveServer(home / "data", extra=("--config", str(home / "trackside.toml")))
    work = live.data_dir / "work"
    work.mkdir(parents=True, mode=0o700)
    live.data_dir.chmod(0o700)
    root = os.geteuid() == 0
    if root:  # a disk that a task can fill
        subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "none", str(work)], check=True)
    agent = AgentProcess(live.data_dir, LD_LIBRARY_PATH=str(library), NVML_STUB_SCRIPT=str(home / "cards"))
    try:
        live.start()
        stop_agent(live.data_dir, with_tasks=False)
        agent.start("--kernel-log", str(home / "kmsg"))
        made = Site(live, home / "kmsg")
        eventually(lambda: made.get("/api/trackside/v1/nodes")["nodes"][0]["gpus"] == 2, "no cards")
        yield made
    finally:
        live.stop()
        if agent.process is not None:
            agent.process.wait(20)
        if root:
            subprocess.run(["umount", str(work)], check=True)


@pytest.fixture(scope="module")
def overdue(site: Site) -> str:
    """Submit first what takes longest: a job that may run for a minute."""
    body = {
        "DisplayName": "overdue",
        "JobType": "PyTorchJob",
        "UserCommand": "sleep 600",
        "JobMaxRunningTimeMinutes": 1,
        "JobSpecs": [{"Type": "Worker", "PodCount": 1, "ResourceConfig": {"CPU": "0.2", "Memory": "256Mi"}}],
    }
    return str(site.call("POST", "/api/v1/jobs", body)["JobId"])


@pytest.fixture(scope="module")
def failing(site: Site, overdue: str) -> dict[str, str]:
    """Submit all jobs that fail by themselves at once."""
    return {name: submit(site.client, cause.command, name=name) for name, cause in BY_ITSELF.items()}


def check(site: Site, job_id: str, name: str, cause: Cause, *, culprit: str = "worker-0") -> Any:
    """Compare what all APIs say of a job that failed."""
    told = wait_until(site.client, job_id, "Failed", "Abnormal").status
    own = site.native(job_id)
    reason = own["reason"]
    assert (reason["code"], reason["certainty"], reason["task"]) == (cause.code, cause.certainty, culprit)
    assert cause.text in reason["text"]
    assert cause.hint in reason["hint"]
    assert cause.evidence in "\n".join(reason["evidence"])
    last = own["records"][-1]
    assert (last["culprit"], last["reason"]["code"]) == (culprit, cause.code)
    (running,) = told.running_records[-1:]
    assert (running.end_reason, running.end_related_task) == (reason["text"], culprit)
    status = next(one for one in told.task_statuses if one.task == culprit)
    assert (status.exit_code, status.message) == (cause.exit_code, reason["text"])
    dlc = site.dlc(name)
    assert (dlc["Status"], dlc["ReasonCode"]) == ("Failed", cause.dlc)
    assert dlc["ReasonMessage"] == reason["text"]
    return own


@pytest.mark.parametrize("name", [pytest.param(name, marks=NEEDS.get(name, ())) for name in BY_ITSELF])
def test_a_task_that_fails_by_itself(site: Site, failing: dict[str, str], name: str) -> None:
    check(site, failing[name], name, BY_ITSELF[name])


def test_the_command_line_says_it_too(site: Site, failing: dict[str, str]) -> None:
    wait_until(site.client, failing["exit-code"], "Failed")
    told = site.explain("exit-code")
    assert "worker-0 exited with code 3" in told
    assert "[exit-code]" in told


def killed_cause(text: str, exit_code: int) -> Cause:
    code, dlc = "killed-from-outside", "PodKilledBySignal"
    return Cause("", code, dlc, text, "neither Trackside nor the kernel", exit_code)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGKILL, 137), (signal.SIGTERM, 143)])
def test_a_task_that_somebody_kills(site: Site, number: signal.Signals, exit_code: int) -> None:
    name = f"killed-{number.name.lower()}"
    job_id = site.running("exec sleep 600", name)
    (pid,) = processes_of(job_id)
    os.kill(pid, number)
    check(site, job_id, name, killed_cause(f"worker-0 was killed by {number.name} from outside", exit_code))


def test_a_task_whose_shim_is_killed(site: Site) -> None:
    job_id = site.running("echo working; sleep 600", "no-shim")
    (state_dir,) = (site.server.data_dir / "agent" / "tasks").glob(f"{job_id}.*")
    shim = record.lock_holder(str(state_dir / record.LOCK))
    assert shim is not None
    os.kill(shim, signal.SIGKILL)
    text = "ended with an unknown exit code: the process that watched it was killed"
    cause = Cause("", "shim-lost", "PodExitUnknown", text, "cleaned up", None, certainty="unknown")
    check(site, job_id, "no-shim", cause)
    assert processes_of(job_id) == []


@as_root
def test_a_task_on_a_full_disk(site: Site, failing: dict[str, str]) -> None:
    for job_id in failing.values():  # the disk is of all tasks: nobody else may end badly now
        wait_until(site.client, job_id, "Failed")
    job_id = submit(site.client, "exec yes > big", name="disk-full")
    text = "failed (exit code 1) while the disk at "
    cause = Cause("", "disk-full", "DiskFull", text, "make room", 1, certainty="likely")
    own = check(site, job_id, "disk-full", cause)
    assert own["reason"]["text"].endswith(" was full (16.0 MiB of 16.0 MiB)")


def test_a_task_whose_card_reports_an_error(site: Site, open_dir: Path) -> None:
    gate = open_dir / "gate"
    size = {"CPU": "0.2", "Memory": "256Mi", "GPU": "1"}
    made = site.call(
        "POST",
        "/api/v1/jobs",
        {
            "DisplayName": "xid",
            "JobType": "PyTorchJob",
            "UserCommand": f"echo $$ up; while [ ! -e {gate} ]; do sleep 0.02; done; exit 1",
            "JobSpecs": [{"Type": "Worker", "PodCount": 1, "ResourceConfig": size}],
        },
    )
    assert made["JobId"]
    job_id = next(
        job["id"] for job in site.get("/api/trackside/v1/jobs?limit=100")["jobs"] if job["name"] == "xid"
    )
    log = eventually(lambda: site.log(job_id), "it does not run")
    now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    with site.kernel_log.open("a") as kernel:
        kernel.write(XID_LINE.format(us=now_us, pid=int(log.split()[0])))
    gate.touch()
    text = " had reported XID 79: the card has fallen off the bus"
    cause = Cause("", "device-fault", "DeviceFault", text, "looked at", 1, certainty="likely")
    check(site, job_id, "xid", cause)


def test_a_job_that_its_user_stops(site: Site) -> None:
    job_id = site.running("sleep 600", "stopped")
    site.client.stop_training_job(
        StopTrainingJobRequest(training_job_id=job_id, body=JobActionType(action_type="terminate"))
    )
    told = wait_until(site.client, job_id, "Terminated").status
    own = site.native(job_id)
    assert own["reason"]["code"] == "stopped-by-user"
    assert own["reason"]["text"].startswith("stopped by ")
    assert own["records"][-1]["culprit"] is None
    (running,) = told.running_records
    assert (running.end_reason, running.end_related_task) == (own["reason"]["text"], None)
    (status,) = told.task_statuses
    assert status.message == f"worker-0 was {own['reason']['text']}"
    dlc = site.dlc("stopped")
    assert (dlc["Status"], dlc["ReasonCode"]) == ("Stopped", "JobStoppedByUser")


# The others hear of worker-2's end from the kernel, not from what it closes while it ends.
FAILS = """
import os
with open("{dir}/pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename("{dir}/pid.new", "{dir}/pid")
for index in (0, 1, 3):
    open(f"{dir}/{{index}}").read()
os._exit(7)
"""
FOLLOWS = """
import os, select, time
while not os.path.exists("{dir}/pid"):
    time.sleep(0.005)
fd = os.pidfd_open(int(open("{dir}/pid").read()))
open(f"{dir}/" + os.environ["VC_TASK_INDEX"], "w").close()
select.select([fd], [], [])
time.sleep(0.005)
os._exit(1)
"""


def first_of(job: int, open_dir: Path) -> str:
    """Return a command by which worker-2 exits 7 and the others exit 1 five milliseconds later."""
    room = open_dir / str(job)
    room.mkdir()
    room.chmod(0o777)
    for index in (0, 1, 3):
        os.mkfifo(room / str(index))
        (room / str(index)).chmod(0o666)
    (room / "fails.py").write_text(FAILS.format(dir=room))
    (room / "follows.py").write_text(FOLLOWS.format(dir=room))
    return f'[ "$VC_TASK_INDEX" = 2 ] && exec python -S {room}/fails.py; exec python -S {room}/follows.py'


def test_the_first_to_fail_is_named_however_soon_the_others_follow(site: Site, open_dir: Path) -> None:
    jobs = [
        submit(site.client, first_of(number, open_dir), name=f"order-{number}", nodes=4)
        for number in range(ORDERED)
    ]
    for number, job_id in enumerate(jobs):
        cause = Cause("", "exit-code", "JobFailed", "worker-2 exited with code 7", "log", 7)
        own = check(site, job_id, f"order-{number}", cause, culprit="worker-2")
        others = [task for task in own["tasks"] if task["name"] != "worker-2"]
        assert {task["reason"]["code"] for task in others} == {"peer-failed"}


SLOW_TO_END = """
import atexit, os, time
def end():
    os.close(pipe)
    time.sleep(60)
pipe = os.open("{pipe}", os.O_WRONLY)
atexit.register(end)
raise ValueError("bad batch")
"""


def test_who_only_lost_a_peer_is_not_to_blame(site: Site, open_dir: Path) -> None:
    """Here the one who lost its peer ends first: the other is so slow to end that it is stopped."""
    pipe = open_dir / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242"
    command = f"""
if [ "$VC_TASK_INDEX" = 1 ]; then
    exec python - <<'END'
{SLOW_TO_END.format(pipe=pipe)}
END
fi
read line < {pipe}
echo '{lost}'
exit 1
"""
    job_id = submit(site.client, command, name="folded", nodes=2)
    cause = Cause(
        "",
        "exception",
        "JobFailed",
        "worker-1 failed: ValueError: bad batch",
        "traceback",
        143,
        certainty="likely",
        evidence="1 other task failed",
    )
    own = check(site, job_id, "folded", cause, culprit="worker-1")
    folded = next(task for task in own["tasks"] if task["name"] == "worker-0")
    assert folded["reason"]["code"] == "peer-failed"
    assert lost in folded["reason"]["evidence"]


def test_a_job_that_runs_for_too_long(site: Site, overdue: str) -> None:
    found = eventually(
        lambda: next(iter([job for job in [site.dlc("overdue")] if job["Status"] == "Stopped"]), None),
        "it was not stopped",
        seconds=90,
    )
    assert found["JobId"] == overdue
    assert found["ReasonCode"] == "JobMaxRunningTimeExceeded"
    assert found["ReasonMessage"] == "stopped after 1 min, the longest it may run"
    (job,) = [one for one in site.get("/api/trackside/v1/jobs?limit=100")["jobs"] if one["name"] == "overdue"]
    own = site.native(job["id"])
    assert own["reason"]["code"] == "max-duration"
    assert own["records"][-1]["culprit"] is None
