"""A server with two real agents on one machine: two nodes, as far as scheduling can tell."""

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of
from tests.e2e.waiting import eventually
from trackside.agent.control import stop_agent

SECOND = "second"


class Cluster:
    """The server, the SDK's client for it, and its nodes by name."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.client = client_of(server)
        self.first = next(node for node in self.nodes() if node != SECOND)
        self.cores = float(self.nodes()[SECOND]["cpu_cores"])

    def nodes(self) -> dict[str, Any]:
        """Return the nodes by name."""
        return {node["id"]: node for node in self.ask("GET", "/nodes")["nodes"]}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Call the native API and return its answer."""
        headers = {"Authorization": f"Bearer {self.server.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.server.endpoint}/api/trackside/v1{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")

    def refused(self, method: str, path: str, body: Any = None) -> str:
        """Call the native API and return why it refused."""
        try:
            self.ask(method, path, body)
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()
        raise AssertionError("it was not refused")

    def label(self, node: str, **labels: str | None) -> None:
        """Give a node labels."""
        self.ask("PATCH", f"/nodes/{node}", {"labels": labels})

    def places(self, job_id: str) -> list[str]:
        """Return the nodes of a job's tasks, by rank."""
        return [task["node"] for task in self.ask("GET", f"/jobs/{job_id}")["tasks"]]


@contextmanager
def two_nodes(server: LiveServer, directory: Path) -> Iterator[Cluster]:
    """Start a server and a second agent beside its own."""
    server.start()
    (directory / "agent").mkdir(mode=0o700, parents=True)
    (directory / "server.json").symlink_to(server.data_dir / "server.json")  # says where a new server is, too
    shutil.copy(server.data_dir / "agent" / "token", directory / "agent" / "token")
    command = [sys.executable, "-m", "trackside.agent", "--data-dir", str(directory), "--node", SECOND]
    with open(directory / "agent.log", "wb") as log:
        agent = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        call = server.call
        eventually(
            lambda: len(call("GET", "/api/trackside/v1/nodes")["nodes"]) == 2, "the second agent is silent"
        )
        yield Cluster(server)
    finally:
        stop_agent(directory, with_tasks=True)
        agent.wait(timeout=30)
