"""Starts a throw-away Trackside server for measuring and talks to it."""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkmodelarts.v1 import (
    CreateTrainingJobRequest,
    Job,
    JobAlgorithm,
    JobMetadata,
    ModelArtsClient,
    Spec,
    SpecResource,
)

from trackside.agent.control import stop_agent

START_SECONDS = 30.0


class Bench:
    """A running server, its SDK client and a plain connection."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        keys = json.loads((data_dir / "credentials.json").read_text())
        self.endpoint: str = keys["endpoint"]
        self.project_id: str = keys["project_id"]
        self.keys: dict[str, str] = keys
        self._token = keys["token"]
        address = urlsplit(self.endpoint)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port)

    def client(self) -> Any:
        """Return a fresh SDK client."""
        credentials = BasicCredentials(self.keys["access_key"], self.keys["secret_key"], self.project_id)
        return (
            ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(self.endpoint).build()
        )

    def get(self, path: str) -> Any:
        """Read something of the v2 API with the token, over one connection kept open."""
        self._connection.request(
            "GET", f"/v2/{self.project_id}/{path}", headers={"X-Auth-Token": self._token}
        )
        return json.loads(self._connection.getresponse().read())

    def phase(self, job_id: str) -> str:
        """Return where a job stands."""
        return str(self.get(f"training-jobs/{job_id}")["status"]["phase"])

    def wait(self, job_id: str, *phases: str) -> None:
        """Wait until a job is in one of the phases."""
        while self.phase(job_id) not in phases:
            time.sleep(0.0005)

    def log(self, job_id: str) -> str:
        """Return what worker-0 printed."""
        return str(self.get(f"training-jobs/{job_id}/tasks/worker-0/logs/preview")["content"])


def create(client: Any, command: str, *, cores: float = 0.05, memory_gb: float = 0.05) -> str:
    """Submit a job through the SDK."""
    size = {"cpu_core_num": cores, "mem_size": memory_gb}
    body = Job(
        kind="job",
        metadata=JobMetadata(name="bench"),
        algorithm=JobAlgorithm(command=command),
        spec=Spec(resource=SpecResource(node_count=1, main_container_customized_flavor=size)),
    )
    return str(client.create_training_job(CreateTrainingJobRequest(body=body)).metadata.id)


@contextmanager
def running_server() -> Iterator[Bench]:
    """Run a server in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as name:
        data_dir = Path(name) / "data"
        process = subprocess.Popen(
            [sys.executable, "-m", "trackside", "serve", "--port", "0", "--data-dir", str(data_dir)],
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_ready(data_dir)
            yield Bench(data_dir)
        finally:
            process.terminate()
            process.wait()
            stop_agent(data_dir, with_tasks=True)


def _wait_ready(data_dir: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            address = urlsplit(json.loads((data_dir / "server.json").read_text())["endpoint"])
            connection = http.client.HTTPConnection(address.hostname or "", address.port)
            connection.request("GET", "/readyz")
            ready = connection.getresponse().status == 200
            connection.close()
            if ready:
                return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit("the server did not start")
