"""The command line as people use it: the real program against the real server."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import LiveServer

pytestmark = pytest.mark.e2e
EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp_numpy" / "job.yaml"
PATIENCE_SECONDS = 90


class Cli:
    """Runs the command with the settings of one server."""

    def __init__(self, server: LiveServer) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACKSIDE_")}
        self.environment = kept | {"TRACKSIDE_DATA_DIR": str(server.data_dir)}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "trackside", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, code: int = 0) -> str:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == code, f"{arguments}: exit code {process.returncode}\n{out}\n{err}"
        assert "Traceback" not in err
        return out

    def submit(self, command: str, *more: str) -> str:
        made = json.loads(
            self("submit", "-c", command, "--json", "--set", "memory=256MiB", "--set", "cpu=0.2", *more)
        )
        return str(made["job"]["id"])


@pytest.fixture
def cli(server: LiveServer) -> Cli:
    return Cli(server)


def test_the_example_trains_from_its_job_file_and_all_is_told(cli: Cli, server: LiveServer) -> None:
    out = cli(
        "submit",
        str(EXAMPLE),
        "--name",
        "spirals",
        "--set",
        "parameters.steps=300",
        "--set",
        "cpu=0.5",
        "--wait",
    )
    assert "spirals succeeded after" in out
    lines = [line for line in cli("logs", "spirals").splitlines() if "checksum" in line]
    assert {line[0] for line in lines} == {"0", "1"}
    assert len({line.split()[-1] for line in lines}) == 1
    assert (server.data_dir / "obs" / "demo" / "spirals" / "checkpoint.npz").exists()
    series = json.loads(cli("metrics", "spirals", "--json"))["series"]
    assert {("worker-0", "cpu_percent"), ("worker-1", "cpu_percent")} <= {
        (one["task"], one["metric"]) for one in series
    }
    assert "submitted by admin" in cli("events", "spirals")
    assert (
        cli("ls", "--name", "spirals", "--state", "succeeded").splitlines()[1].split("\t")[2] == "succeeded"
    )


def test_a_failed_job_is_explained_and_the_wait_says_so(cli: Cli) -> None:
    job_id = cli.submit("echo before; echo 'the cause' >&2; exit 7", "--name", "sorry")
    out = cli("wait", "sorry", code=20)
    assert "sorry failed" in out
    assert out.splitlines()[-1] == "the cause"
    told = json.loads(cli("explain", job_id[:13], "--json"))
    assert (told["reason"]["code"], told["tasks"][0]["exit_code"]) == ("exit-code", 7)
    assert "worker-0 exited with code 7" in cli("explain", "sorry")


def test_a_stopped_job_ends_the_wait_with_its_code(cli: Cli) -> None:
    cli.submit("exec sleep 300", "--name", "long")
    cli("wait", "long", "--timeout", "0.2", code=22)
    with cli.start("wait", "long") as waiting:
        assert "long stopped" in cli("stop", "long", "--wait")
        waiting.communicate(timeout=PATIENCE_SECONDS)
    assert waiting.returncode == 21
    assert cli("rm", "long", "--yes").startswith("Deleted long")
    cli("show", "long", code=3)


def test_ctrl_c_leaves_the_job_running(cli: Cli) -> None:
    with cli.start(
        "submit", "-c", "exec sleep 300", "--name", "watched", "--set", "memory=256MiB", "--wait"
    ) as watching:
        assert watching.stderr
        while "running" not in watching.stderr.readline():
            assert watching.poll() is None
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=PATIENCE_SECONDS)
    assert watching.returncode == 130
    assert json.loads(cli("show", "watched", "--json"))["job"]["phase"] == "running"
    assert "stopped" in cli("stop", "watched", "--wait")


def test_logs_are_followed_to_the_end_of_the_job(cli: Cli, tmp_path: Path) -> None:
    cli.submit("for i in $(seq 1500); do echo line $i; done; sleep 1; echo last", "--name", "talker")
    lines = cli("logs", "-f", "talker").splitlines()
    assert lines == [*(f"line {n}" for n in range(1, 1501)), "last"]
    assert cli("logs", "talker", "--tail", "2").splitlines() == ["line 1500", "last"]


def test_a_restart_of_the_server_does_not_end_a_wait(own_server: LiveServer) -> None:
    own_server.extra = ("--port", str(free_port()))
    cli = Cli(own_server.start())
    cli.submit("sleep 6", "--name", "survivor")
    with cli.start("wait", "survivor") as waiting:
        assert waiting.stderr
        while "running" not in waiting.stderr.readline():
            assert waiting.poll() is None
        own_server.kill()
        while "trying again" not in waiting.stderr.readline():
            assert waiting.poll() is None
        own_server.start()
        _, err = waiting.communicate(timeout=PATIENCE_SECONDS)
    assert waiting.returncode == 0
    assert "the server is back" in err


def test_what_the_server_refuses(cli: Cli) -> None:
    for arguments in (
        ("submit", "-c", "true", "--name", "no such name"),
        ("submit", "-c", "true", "--flavor", "none.such"),
        ("submit", "-c", "true", "--workers", "1000000"),
        ("user", "add", "a b"),
        ("user", "add", "x", "--role", "king"),
    ):
        with cli.start(*arguments) as process:
            _, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode in (3, 6), err
        assert err.splitlines()[-1].startswith(("error:", "hint:")), err


def test_a_viewer_may_look_and_not_touch(cli: Cli, server: LiveServer) -> None:
    keys = json.loads(cli("user", "add", "vera", "--role", "viewer", "--json"))["user"]
    theirs = Cli(server)
    theirs.environment |= {f"TRACKSIDE_{key.upper()}": keys[key] for key in ("access_key", "secret_key")}
    theirs("ls")
    theirs("submit", "-c", "true", code=4)
    theirs("user", "ls", code=4)
    assert "vera\tviewer" in cli("user", "ls")
    cli("user", "rm", "vera")
    theirs("ls", code=4)


def test_doctor_and_flavors(cli: Cli) -> None:
    found = json.loads(cli("doctor", "--json"))["findings"]
    levels = {finding["what"]: finding["level"] for finding in found}
    assert {levels[name] for name in ("server", "clock", "signed in", "agent", "credentials")} == {"ok"}
    assert "cpu.1c2g" in cli("flavor", "ls")
    assert cli("agent", "status").startswith("An agent runs on")


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
