"""The unmodified PAI-DLC SDKs, each in an environment of its own, and what tests do with them."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import LiveServer
from tests.e2e.waiting import eventually
from tests.requirements import missing

CURRENT, OLD = "1.11.6", "1.4.2"
PACKAGES = {
    CURRENT: (f"alibabacloud_pai_dlc20201203=={CURRENT}",),
    OLD: (f"alibabacloud_pai_dlc20201203=={OLD}", "alibabacloud_tea_openapi==0.3.16"),
}
INSTALL_SECONDS = 170.0
OVER = ("Succeeded", "Failed", "Stopped")
SMALL = {"CPU": "0.2", "Memory": "256Mi"}
RUNNER = Path(__file__).with_name("dlc_runner.py")


class Refused(Exception):
    """The SDK raised."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(f"{told['class']} {told['status']} {told['code']}: {told['message']}")
        self.sdk_class = told["class"]
        self.code = told["code"]
        self.status = told["status"]
        self.message = told["message"]
        self.request_id = told["request_id"]


class Sdk:
    """One client of one version of the SDK, in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", version: str) -> None:
        self._process = process
        self.version = version

    def __call__(self, method: str, *path: str, **request: Any) -> dict[str, Any]:
        """Call a method of the client and return the body as the SDK understood it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"method": method, "path": path, "request": request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the runner ended"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        assert answer["status"] == 200
        body: dict[str, Any] = answer["body"]
        return body

    def create(self, command: str = "true", **fields: Any) -> str:
        """Create a job of one small worker unless told otherwise and return its id."""
        body = {
            "DisplayName": "dlc",
            "JobType": "PyTorchJob",
            "UserCommand": command,
            "JobSpecs": [role("Worker")],
            **fields,
        }
        return str(self("create_job", **body)["JobId"])

    def wait(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """Return the job once it is in one of the statuses (or, by default, over)."""
        wanted = statuses or OVER
        return eventually(lambda: self._in_status(job_id, wanted), f"{job_id} never became {wanted}")

    def _in_status(self, job_id: str, wanted: tuple[str, ...]) -> dict[str, Any] | None:
        job = self("get_job", job_id)
        assert job["Status"] in wanted or job["Status"] not in OVER, job
        return job if job["Status"] in wanted else None


def role(name: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a JobSpec of small pods."""
    return {"Type": name, "PodCount": count, "ResourceConfig": SMALL, **fields}


def python_with_sdk(config: pytest.Config, version: str) -> Path:
    """Return the Python of the environment with this SDK, which is made once and kept."""
    assert config.cache is not None
    environment = config.cache.mkdir(f"dlc-sdk-{version}")
    python, ready = environment / "bin" / "python", environment / "ready"
    with environment.with_suffix(".lock").open("w") as lock:  # two test runs may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            _install(environment, PACKAGES[version])
            ready.touch()
    return python


def _install(environment: Path, packages: tuple[str, ...]) -> None:
    make = [sys.executable, "-m", "venv", "--clear", str(environment)]
    install = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages]
    for command in (make, install):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except subprocess.CalledProcessError as error:
            missing(f"{' '.join(packages)} from a package index:\n{error.stdout}{error.stderr}")
        except subprocess.TimeoutExpired:
            missing(f"{' '.join(packages)} from a package index: it took too long")


@contextmanager
def opened(python: Path, version: str, server: LiveServer, **config: Any) -> Iterator[Sdk]:
    """Open a client; by default with the server's own keys, as the SDK's documentation says."""
    given = {
        "access_key_id": server.access_key,
        "access_key_secret": server.secret_key,
        "endpoint": server.endpoint.removeprefix("http://"),
        **config,
    }
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    process = subprocess.Popen(
        [str(python), str(RUNNER), json.dumps(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=kept,
    )
    try:
        yield Sdk(process, version)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()
