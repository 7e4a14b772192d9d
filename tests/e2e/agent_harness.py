"""A tiny server of our own and a real agent: what the agent's tests stand on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from trackside.agent import tree
from trackside.agent.control import agent_pid, stop_agent
from trackside.domain.exchange import (
    Answered,
    Ended,
    Errand,
    ErrandKind,
    Launch,
    Orders,
    Report,
    ReportBatch,
    Started,
    Stop,
    TaskKey,
)
from trackside.domain.job import JobId, TaskName
from trackside.domain.resources import Resources

MIB = 1024**2
DEADLINE_SECONDS = 20.0
T = TypeVar("T")


def key(task: str = "worker-0", attempt: int = 1) -> TaskKey:
    return TaskKey(JobId(str(uuid.uuid4())), attempt, TaskName(task))


def launch(command: str, *, of: TaskKey | None = None, memory_bytes: int = 512 * MIB, **rest: Any) -> Launch:
    return Launch(
        key=of or key(),
        shell_command=command,
        boot_file=rest.pop("boot_file", None),
        resources=rest.pop("resources", Resources(cpu_cores=1, memory_bytes=memory_bytes)),
        grace_seconds=rest.pop("grace_seconds", 5.0),
        **rest,
    )


def until(what: Callable[[], T | bool | None], seconds: float = DEADLINE_SECONDS) -> T:
    """Wait for something that no event tells of."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"nothing after {seconds} s"
        time.sleep(0.005)
    return found  # type: ignore[return-value]


class FakeServer:
    """The server's side of the exchange: keeps orders, collects reports, applies each once."""

    def __init__(self, data_dir: Path, token: str = "agent-token") -> None:
        self.data_dir = data_dir
        self.token = token
        self.changed = threading.Condition()
        self.version = 1
        self.launches: dict[TaskKey, Launch] = {}
        self.stops: dict[TaskKey, Stop] = {}
        self.errands: dict[str, Errand] = {}
        self.reports: list[Report] = []
        self.times: dict[tuple[str, TaskKey], float] = {}
        self.through: dict[str, int] = {}
        self.hellos: list[dict[str, Any]] = []
        self.http: ThreadingHTTPServer | None = None

    def open(self) -> "FakeServer":
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._answer(owner.get_orders(parse_qs(urlsplit(self.path).query)))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(owner.post(urlsplit(self.path).path, body))

            def _answer(self, content: bytes) -> None:
                allowed = self.headers["Authorization"] == f"Bearer {owner.token}"
                content = content if allowed else b"{}"
                self.send_response(200 if allowed else 401)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                self.wfile.flush()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                pass  # the agent was killed in the middle of a request

        self.http = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        endpoint = f"http://127.0.0.1:{self.http.server_port}"
        (self.data_dir / "server.json").write_text(json.dumps({"endpoint": endpoint}))
        return self

    def close(self) -> None:
        if self.http is not None:
            self.http.shutdown()
            self.http.server_close()
            self.http = None
            with self.changed:
                self.version += 1000
                self.changed.notify_all()

    # --- the agent's side

    def post(self, path: str, body: bytes) -> bytes:
        if path.endswith("/hello"):
            self.hellos.append(json.loads(body))
            return b'{"interval_seconds": 1}'
        now = time.perf_counter()
        batch = msgspec.json.decode(body, type=ReportBatch)
        with self.changed:
            for report in batch.reports:
                if report.seq > self.through.get(batch.stream, 0):
                    self.through[batch.stream] = report.seq
                    self._apply(report, now)
            self.changed.notify_all()
        return msgspec.json.encode({"through": self.through[batch.stream]})

    def _apply(self, report: Report, now: float) -> None:
        self.reports.append(report)
        for name, said in (("started", report.started), ("ended", report.ended)):
            if said is not None:
                self.times.setdefault((name, said.key), now)
                self.launches.pop(said.key, None)
        if report.ended is not None:
            self.stops.pop(report.ended.key, None)

    def get_orders(self, query: dict[str, list[str]]) -> bytes:
        seen = int(query["version"][0])
        with self.changed:
            self.changed.wait_for(lambda: self.version != seen, float(query["wait"][0]))
            orders = Orders(
                version=self.version,
                launch=tuple(self.launches.values()),
                stop=tuple(self.stops.values()),
                errands=tuple(self.errands.values()),
            )
        return msgspec.json.encode(orders)

    # --- the test's side

    def order(self, *orders: Launch | Stop) -> TaskKey:
        with self.changed:
            for order in orders:
                kept: dict[TaskKey, Any] = self.launches if isinstance(order, Launch) else self.stops
                kept[order.key] = order
            self.version += 1
            self.changed.notify_all()
        return orders[-1].key

    def ask(self, of: TaskKey, kind: ErrandKind, **rest: Any) -> str:
        """Send the node on an errand; it is asked for again and again, as by a server that hears nothing."""
        errand = Errand(id=uuid.uuid4().hex, key=of, kind=kind, **rest)
        with self.changed:
            self.errands[errand.id] = errand
            self.version += 1
            self.changed.notify_all()
        return errand.id

    def answer(self, errand_id: str, seconds: float = DEADLINE_SECONDS) -> Answered:
        def found() -> Answered | None:
            answers = (r.answered for r in self.reports if r.answered is not None)
            return next((answered for answered in answers if answered.id == errand_id), None)

        with self.changed:
            answered = self.changed.wait_for(found, seconds)
            assert answered, f"no answer after {seconds} s"
            return answered

    def run(self, command: str, **rest: Any) -> Ended:
        return self.ended(self.order(launch(command, **rest)))

    def started(self, of: TaskKey, seconds: float = DEADLINE_SECONDS) -> Started:
        return self._wait_for(lambda report: report.started, of, seconds)

    def ended(self, of: TaskKey, seconds: float = DEADLINE_SECONDS) -> Ended:
        return self._wait_for(lambda report: report.ended, of, seconds)

    def notes(self, of: TaskKey) -> list[str]:
        return [r.noted.message for r in self.reports if r.noted is not None and r.noted.key == of]

    def _wait_for(self, pick: Callable[[Report], Any], of: TaskKey, seconds: float) -> Any:
        def found() -> Any:
            return next(
                (said for r in self.reports if (said := pick(r)) is not None and said.key == of), None
            )

        with self.changed:
            assert self.changed.wait_for(found, seconds), f"no such report of {of} after {seconds} s"
            return found()


class AgentProcess:
    """A real agent on a data directory."""

    def __init__(self, data_dir: Path, **environment: str) -> None:
        self.data_dir = data_dir
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *extra: str) -> "AgentProcess":
        with open(self.data_dir / "agent" / "agent.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trackside.agent", "--data-dir", str(self.data_dir), *extra],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )
        until(lambda: agent_pid(self.data_dir) == self.process.pid or self.process.poll() is not None)
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def log(self, of: TaskKey) -> bytes:
        path = self.data_dir / "logs" / of.job_id / str(of.attempt) / f"{of.task}.log"
        return path.read_bytes()

    def state_dir(self, of: TaskKey) -> Path:
        return self.data_dir / "agent" / "tasks" / str(of)


@contextmanager
def node(
    data_dir: Path, *extra: str, agent_class: type[AgentProcess] = AgentProcess, **environment: str
) -> Iterator[tuple[FakeServer, AgentProcess]]:
    """A server and an agent; nothing is left behind."""
    for name in ("agent/tasks", "agent/spool", "logs", "work", "obs"):
        (data_dir / name).mkdir(parents=True, exist_ok=True)
    data_dir.chmod(0o700)
    server = FakeServer(data_dir).open()
    (data_dir / "agent" / "token").write_text(server.token + "\n")
    agent = agent_class(data_dir, **environment).start(*extra)
    try:
        yield server, agent
    finally:
        stop_agent(data_dir, with_tasks=True)
        assert agent.process is not None
        agent.process.wait(10)
        server.close()
    for name in ("agent.log", "forker.log"):
        if (data_dir / "agent" / name).exists():
            assert "Traceback" not in (data_dir / "agent" / name).read_text()


def alive(of: TaskKey) -> set[int]:
    """Return the living processes of a task."""
    return tree.marked(str(of))
