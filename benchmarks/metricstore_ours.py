"""Feeds our own store, in process and by an agent's reports, and asks it through the HTTP API, signed."""

import asyncio
import hashlib
import hmac
import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil

from benchmarks.lean_http import LeanClient, get_request, post_request
from benchmarks.metricstore_peers import Question
from benchmarks.metricstore_workload import Workload, job_id
from trackside import bootstrap
from trackside.api.pai_dlc.measured import METRIC_TYPES
from trackside.cli.signing import query_string, sign
from trackside.config import Settings
from trackside.domain.exchange import Hello, Measured, Report, ReportAck, ReportBatch
from trackside.domain.job import Job, JobId, JobSpec, NodeId, ProjectId, Role, Task, TaskState, task_name
from trackside.domain.phase import Phase
from trackside.domain.resources import Capacity, Resources
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.ports import Update
from trackside.wiring import build

START_SECONDS = 30.0
IDLE_SECONDS = 0.05  # of processor time in one second: nothing is being done
NODE = NodeId("bench")
SERVE = [sys.executable, "-m", "trackside", "serve", "--port=0"]
DLC_NAMES = {metric.value: name for name, (metric, _) in METRIC_TYPES.items()}
SIZE = Resources(cpu_cores=1, memory_bytes=1 << 30)


def feed(path: Path, *workloads: Workload) -> float:
    """Append tick by tick, compacting by the workload's own clock; return the processor seconds it took."""
    now_ms, spent = 0, 0.0
    store = EmbeddedMetricStore(path, now_ms=lambda: now_ms, background=False)
    for workload in workloads:
        for readings in workload.readings():
            (now_ms,) = readings.times_ms
            before = time.process_time()
            store.append_readings([readings])
            store.compact()
            spent += time.process_time() - before
    before = time.process_time()
    store.compact(everything=True)
    spent += time.process_time() - before
    store.close()
    return spent


def disk_bytes(path: Path) -> int:
    """Return what the file takes once everything is compacted."""
    return _size(path, raw_days=None)


def rollup_bytes(path: Path, end_ms: int) -> int:
    """Return what the file takes once only the rollups are kept."""
    return _size(path, raw_days=1e-6, now_ms=end_ms + 86_400_000)


def _size(path: Path, *, raw_days: float | None, now_ms: int = 0) -> int:
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    store = EmbeddedMetricStore(copy, now_ms=lambda: now_ms, background=False)
    store.compact(everything=True)
    store.close()
    store = EmbeddedMetricStore(copy, raw_days=raw_days, now_ms=lambda: now_ms, background=False)
    store.expire()
    store.close()
    size = copy.stat().st_size
    copy.unlink()
    return size


class Server:
    """A running server of ours."""

    def __init__(self, data_dir: Path, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._data_dir = data_dir
        self.metrics_file = data_dir / "metrics.db"
        self._usage = psutil.Process(process.pid)
        self._agent = {"Authorization": f"Bearer {(data_dir / 'agent' / 'token').read_text().strip()}"}
        self._keys = json.loads((data_dir / "credentials.json").read_text())
        address = urlsplit(json.loads((data_dir / "server.json").read_text())["endpoint"])
        self.address = f"{address.hostname}:{address.port}"
        self._client = LeanClient(self.address)

    def prepared(self, question: Question) -> bytes:
        """Return the signed request that asks a question; it can be sent once."""
        path, query = self._request(question)
        text = query_string(query)
        keys = {name: self._keys[name] for name in ("access_key", "secret_key")}
        if path.startswith("/api/v1/"):
            headers = _sign_acs3(path, text, self.address, **keys)
        else:
            host = {"Host": self.address}
            headers = host | sign(method="GET", path=path, query=text, headers=host, body=b"", **keys)
        return get_request(f"{path}?{text}" if text else path, headers)

    def feed(self, *workloads: Workload) -> float:
        """Send every tick as an agent's report; return the processor seconds it took the server.

        They end when all samples are in blocks: nothing that is yet to be done is left out.
        """
        self._hello()
        before, seq = self.cpu_seconds(), 0
        for workload in workloads:
            for readings in workload.readings():
                seq += 1
                self._report(Report(seq=seq, measured=Measured(readings=(readings,))))
        self._wait_compacted()
        return self.cpu_seconds() - before

    def _hello(self) -> None:
        """Introduce the node whose reports come."""
        capacity = Capacity(cpu_cores=1, memory_bytes=1 << 30)
        self._call_agent(
            "hello",
            Hello(node_id=NODE, agent_pid=1, host_ip="127.0.0.1", capacity=capacity, version="bench"),
        )

    def _report(self, report: Report) -> None:
        """Send a report in a request of its own, as an agent does."""
        answer = self._call_agent("reports", ReportBatch(node_id=NODE, stream="bench", reports=(report,)))
        assert msgspec.json.decode(answer, type=ReportAck).through == report.seq

    def _call_agent(self, what: str, said: Hello | ReportBatch) -> bytes:
        headers = {"Host": self.address, **self._agent}
        path = f"/api/trackside/v1/agent/{what}"
        return self._client.ask(post_request(path, headers, msgspec.json.encode(said)))

    def cpu_seconds(self) -> float:
        """Return the processor time the server has used."""
        used = self._usage.cpu_times()
        return float(used.user + used.system)

    def _wait_compacted(self) -> None:
        """Wait until the journal is empty and what was made of it was read ahead."""
        while any(file.stat().st_size for file in self._data_dir.glob("metrics.journal-*")):
            time.sleep(0.2)
        before, used = -1.0, self.cpu_seconds()
        while used - before > IDLE_SECONDS:
            time.sleep(1)
            before, used = used, self.cpu_seconds()

    def stop(self) -> None:
        """End the server: its files are whole then."""
        self._client.close()
        self._process.terminate()
        self._process.wait()

    def _request(self, question: Question) -> tuple[str, list[tuple[str, str]]]:
        if not question.step_ms:
            asked = {"metric": question.metrics[0], "since_ms": question.start_ms, "job_id": question.job}
            return "/api/trackside/v1/latest", [(name, str(value)) for name, value in asked.items()]
        if question.task:
            project = self._keys["project_id"]
            return f"/v2/{project}/training-jobs/{question.job}/metrics/{question.task}", []
        times = [("StartTime", question.start_ms), ("EndTime", question.end_ms)]
        asked = [(name, _iso(at_ms)) for name, at_ms in times]
        asked += [
            ("TimeStep", f"{question.step_ms // 60_000}m"),
            ("MetricType", DLC_NAMES[question.metrics[0]]),
        ]
        return f"/api/v1/jobs/dlc{_short_id(question.job)}/metrics", asked


def _sign_acs3(path: str, query: str, host: str, *, access_key: str, secret_key: str) -> dict[str, str]:
    """Return the headers of a GET as the Alibaba SDK signs it."""
    payload = hashlib.sha256(b"").hexdigest()
    headers = {
        "host": host,
        "x-acs-content-sha256": payload,
        "x-acs-date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "x-acs-signature-nonce": secrets.token_hex(16),
    }
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"GET\n{path}\n{query}\n{lines}\n{names}\n{payload}"
    to_sign = f"ACS3-HMAC-SHA256\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.digest(secret_key.encode(), to_sign.encode(), "sha256").hex()
    proof = f"ACS3-HMAC-SHA256 Credential={access_key},SignedHeaders={names},Signature={signature}"
    return {**headers, "Authorization": proof}


@contextmanager
def running_server(folder: Path, workload: Workload) -> Iterator[Server]:
    """Run a server that knows the jobs of the workload and has no samples of them."""
    data_dir = folder / "data"
    asyncio.run(_prepare(data_dir, workload))
    config = folder / "trackside.toml"
    config.write_text("run_agent = false\n")
    process = subprocess.Popen(
        [*SERVE, f"--data-dir={data_dir}", f"--config={config}"],
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(data_dir / "server.json")
        server = Server(data_dir, process)
        yield server
        server.stop()
    finally:
        process.kill()
        process.wait()


async def _prepare(data_dir: Path, workload: Workload) -> None:
    """Make the data directory with jobs that ran and are over."""
    parts = build(Settings(data_dir=str(data_dir), run_agent=False))
    await parts.places.stores.start()
    await bootstrap.first_identities(parts.places.stores.identities, parts.places.data_dir)
    ((project, _), *_) = await parts.places.stores.identities.projects()
    for number in range(workload.jobs):
        made = _job(number, project, workload)
        await parts.places.stores.jobs.insert(
            project, lambda issued, made=made: Update(job=_numbered(made, issued))
        )
    parts.places.stores.close()
    parts.places.metrics.close()
    for file in data_dir.glob("metrics.db*"):
        file.unlink()


def _job(number: int, project: ProjectId, workload: Workload) -> Job:
    role = Role(name="worker", count=workload.tasks, resources=SIZE)
    tasks = tuple(
        Task(
            name=task_name("worker", index),
            role="worker",
            index=index,
            rank=index,
            attempt=1,
            node_id=NODE,
            resources=SIZE,
            state=TaskState.ENDED,
            started_at_ms=workload.first_ms,
            ended_at_ms=workload.end_ms - 1,
        )
        for index in range(workload.tasks)
    )
    return Job(
        id=JobId(job_id(number)),
        short_id=_short_id(job_id(number)),
        number=1,
        project_id=project,
        owner="admin",
        spec=JobSpec(name=f"bench-{number}", roles=(role,), command="true"),
        phase=Phase.SUCCEEDED,
        created_at_ms=workload.first_ms,
        started_at_ms=workload.first_ms,
        ended_at_ms=workload.end_ms,
        tasks=tasks,
    )


def _numbered(job: Job, number: int) -> Job:
    return replace(job, number=number, family=number)


def _short_id(job: str) -> str:
    return job.replace("-", "")[-16:]


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _wait(file: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            sys.exit("the server did not start")
        time.sleep(0.05)
