"""A live server for end-to-end tests: the real program, in its own data directory."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from trackside.agent.control import stop_agent
from trackside.domain.phase import FINAL, Phase

START_SECONDS = 30.0
DRAIN_SECONDS = 60.0


@dataclass
class LiveServer:
    """A server process and what a client needs to call it."""

    data_dir: Path
    extra: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = None
    endpoint: str = ""
    project_id: str = ""
    access_key: str = ""
    secret_key: str = ""
    token: str = ""
    log: list[str] = field(default_factory=list)

    def start(self) -> "LiveServer":
        """Start the server and wait until it takes jobs."""
        command = [
            sys.executable,
            "-m",
            "trackside",
            "serve",
            "--port",
            "0",
            "--data-dir",
            str(self.data_dir),
        ]
        self.process = subprocess.Popen(
            [*command, *self.extra],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=_environment(),
        )
        listening = threading.Event()
        threading.Thread(target=self._drain, args=(self.process, listening), daemon=True).start()
        if not listening.wait(START_SECONDS):
            raise AssertionError("the server did not start:\n" + "".join(self.log))
        credentials = json.loads((self.data_dir / "credentials.json").read_text())
        for name in ("endpoint", "project_id", "access_key", "secret_key", "token"):
            setattr(self, name, credentials[name])
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        """Wait until the server says that it takes jobs."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{self.endpoint}/readyz", timeout=5):
                    return
            except urllib.error.HTTPError as error:
                error.close()
                if time.monotonic() > deadline:
                    raise AssertionError("the server is not ready:\n" + "".join(self.log)) from None
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server where it stands."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop server, agent and everything they started."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=30)
        stop_agent(self.data_dir, with_tasks=True)

    def stop_jobs(self) -> None:
        """Delete every job that is not over, and wait until their tasks are gone."""
        for job in self._active():
            self.call("DELETE", f"/v2/{self.project_id}/training-jobs/{job['id']}")
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._active() or any((self.data_dir / "agent" / "tasks").iterdir()):
            assert time.monotonic() < deadline, "jobs of an earlier test do not end"
            time.sleep(0.05)

    def call(self, method: str, path: str) -> Any:
        """Send a request with the admin's token and return its body."""
        request = urllib.request.Request(
            self.endpoint + path, method=method, headers={"X-Auth-Token": self.token}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def _active(self) -> list[dict[str, Any]]:
        states = "&".join(f"state={phase}" for phase in Phase if phase not in FINAL)
        return list(self.call("GET", f"/api/trackside/v1/jobs?limit=500&{states}")["jobs"])

    def _drain(self, process: "subprocess.Popen[str]", listening: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self.log.append(line)
                if "Keys for clients" in line:
                    listening.set()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACKSIDE_")}
    return kept | {"FAKE_SERVER_SECRET": "must-not-reach-tasks"}


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that tasks, who run as another user, can write to."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


_shared: list[LiveServer] = []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """One server for all tests that do not hurt it."""
    live = LiveServer(tmp_path_factory.mktemp("server") / "data")
    try:
        _shared.append(live.start())
        yield live
    finally:
        _shared.clear()
        live.stop()


@pytest.fixture(scope="module", autouse=True)
def leave_no_jobs() -> Iterator[None]:
    """Leave the machine's room to the next file: what a test left running would keep its jobs waiting."""
    yield
    for live in _shared:
        live.stop_jobs()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[LiveServer]:
    """A server of the test's own, not started yet."""
    config = tmp_path / "trackside.toml"
    config.write_text("stop_grace_seconds = 2\n")
    live = LiveServer(tmp_path / "data", extra=("--config", str(config)))
    try:
        yield live
    finally:
        live.stop()
