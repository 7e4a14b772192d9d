"""Starts VictoriaMetrics and Prometheus on loopback, feeds them by remote write and asks them in PromQL."""

import http.client
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import psutil
from cramjam import snappy

from benchmarks.lean_http import LeanClient, get_request, post_request
from benchmarks.metricstore_workload import TICK_MS, Workload

START_SECONDS = 30.0
MERGE_SECONDS = 3.0
COMMANDS = {
    "victoria-metrics": [
        "victoria-metrics",
        "-httpListenAddr=127.0.0.1:{port}",
        "-storageDataPath={data}",
        "-retentionPeriod=10y",
        "-search.latencyOffset=0s",
        "-search.maxPointsPerTimeseries=100000",
    ],
    "prometheus": [
        "prometheus",
        "--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.path={data}",
        "--web.enable-remote-write-receiver",
        "--config.file={config}",
        "--log.level=error",
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of every store; without a step, the newest values."""

    job: str
    task: str | None = None
    metrics: tuple[str, ...]
    start_ms: int
    end_ms: int
    step_ms: int | None
    again: bool = False  # it was asked before, and may be answered from what was kept


class Peer:
    """A running server."""

    def __init__(self, name: str, port: int, data: Path, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.address = f"127.0.0.1:{port}"
        self._data = data
        self._process = process
        self._usage = psutil.Process(process.pid)

    def cpu_seconds(self) -> float:
        """Return the processor time the server has used."""
        used = self._usage.cpu_times()
        return float(used.user + used.system)

    def feed(self, *workloads: Workload) -> float:
        """Send every tick in a request of its own; return the processor seconds it took the server."""
        headers = {"Host": self.address, **REMOTE_WRITE}
        with closing(LeanClient(self.address)) as client:
            before = self.cpu_seconds()
            for workload in workloads:
                for body in _requests(workload):
                    client.ask(post_request("/api/v1/write", headers, snappy.compress_raw(body)))
            if self.name == "victoria-metrics":
                self._get("/internal/force_flush")
            return self.cpu_seconds() - before

    def prepared(self, question: Question) -> bytes:
        """Return the request that asks a question."""
        asked: dict[str, Any] = {"query": _promql(question, self.name)}
        if question.step_ms:
            # A mean over (t-step, t] stamped with its end: the same samples as ours over [t-step, t).
            asked["start"] = (question.start_ms + question.step_ms) / 1000
            asked |= {"end": question.end_ms / 1000, "step": question.step_ms / 1000}
        else:
            asked["time"] = question.end_ms / 1000
        if self.name == "victoria-metrics" and not question.again:
            asked["nocache"] = "1"  # it keeps what it answered, also of windows that overlap
        path = "/api/v1/query_range" if question.step_ms else "/api/v1/query"
        return get_request(f"{path}?{urlencode(asked)}", {"Host": self.address})

    def disk_bytes(self) -> int:
        """Stop the server and return what its files take."""
        if self.name == "victoria-metrics":
            self._get("/internal/force_merge")
            time.sleep(MERGE_SECONDS)  # it merges in the background
        self._process.terminate()
        self._process.wait()
        files = [file for file in self._data.rglob("*") if file.is_file() and "cache" not in file.parts]
        return sum(file.stat().st_size for file in files)

    def _get(self, path: str) -> None:
        with closing(LeanClient(self.address)) as client:
            client.ask(get_request(path, {"Host": self.address}))


def _promql(question: Question, peer: str) -> str:
    chosen = f'job_id="{question.job}"' + (f',task="{question.task}"' if question.task else "")
    if not question.step_ms:
        return f"last_over_time({question.metrics[0]}{{{chosen}}}[5m])"
    every = f"[{question.step_ms // 1000}s]"
    if len(question.metrics) == 1:
        return f"avg_over_time({question.metrics[0]}{{{chosen}}}{every})"
    if peer == "victoria-metrics":
        return f'avg_over_time({{__name__=~"{"|".join(question.metrics)}",{chosen}}}{every})'
    means = [f"avg_over_time({metric}{{{chosen}}}{every})" for metric in question.metrics]
    named = [
        f'label_replace({mean},"metric","{metric}","","")'
        for mean, metric in zip(means, question.metrics, strict=True)
    ]
    return " or ".join(named)


REMOTE_WRITE = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


@contextmanager
def running_peer(name: str) -> Iterator[Peer]:
    """Run a peer in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as folder:
        data, config = Path(folder) / "data", Path(folder) / "prometheus.yml"
        config.write_text("global: {}\n")
        port = _free_port()
        command = [part.format(port=port, data=data, config=config) for part in COMMANDS[name]]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peer = Peer(name, port, data, process)
        try:
            _wait_ready(port)
            yield peer
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(data, ignore_errors=True)


def _requests(workload: Workload) -> Iterator[bytes]:
    """Yield one remote-write request per tick; only values and times differ between them."""
    parts, value_at, time_at, size = [], [], [], 0
    for labels in (_labels(*series) for series in workload.series):
        # Sample: value fixed64 (field 1), timestamp varint (field 2, six bytes in this century)
        body = labels + b"\x12\x10\x09" + bytes(8) + b"\x10" + bytes(6)
        message = b"\x0a" + _varint(len(body)) + body
        value_at.append(size + len(message) - 15)
        time_at.append(size + len(message) - 6)
        parts.append(message)
        size += len(message)
    template = np.frombuffer(b"".join(parts), np.uint8).copy()
    values = (np.array(value_at)[:, None] + np.arange(8)).ravel()
    times = (np.array(time_at)[:, None] + np.arange(6)).ravel()
    for tick, row in enumerate(workload.matrix()):
        stamp = _varint(workload.first_ms + tick * TICK_MS)
        assert len(stamp) == 6, "the template has room for six bytes"
        template[values] = row.view(np.uint8)
        template[times] = np.tile(np.frombuffer(stamp, np.uint8), len(row))
        yield template.tobytes()


def _labels(job: str, task: str, metric: str) -> bytes:
    pairs: Sequence[tuple[str, str]] = (("__name__", metric), ("job_id", job), ("task", task))
    encoded = b""
    for name, value in pairs:
        pair = b"\x0a" + _varint(len(name)) + name.encode() + b"\x12" + _varint(len(value)) + value.encode()
        encoded += b"\x0a" + _varint(len(pair)) + pair
    return encoded


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_ready(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/-/ready")
            ready = connection.getresponse().status == 200
            connection.close()
            if ready:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError("the server did not start")
