"""A small server for the command line to speak to: checks every signature, answers what a test scripted."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time_ns
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from trackside.auth.sdk_hmac import verify
from trackside.domain.errors import Unauthenticated

PROJECT, ACCESS, SECRET = "p1", "AK1", "SK1-never-printed"
JOB_ID = "0f5b8a52-1111-4a6e-9d2f-aaaaaaaaaaaa"


@dataclass
class Request:
    """What arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


Answer = tuple[int, Any]


@dataclass
class FakeServer:
    """Answers by path; records what it was asked."""

    endpoint: str = ""
    answers: dict[tuple[str, str], Answer | Callable[[Request], Answer]] = field(default_factory=dict)
    seen: list[Request] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """Return the settings of a client of this server."""
        return {
            "TRACKSIDE_ENDPOINT": self.endpoint,
            "TRACKSIDE_PROJECT_ID": PROJECT,
            "TRACKSIDE_ACCESS_KEY": ACCESS,
            "TRACKSIDE_SECRET_KEY": SECRET,
        }

    def answer(self, request: Request) -> Answer:
        """Return what the test scripted for a path, or speak of the scripted jobs."""
        scripted = self.answers.get((request.method, request.path))
        if scripted is not None:
            return scripted(request) if callable(scripted) else scripted
        if request.path == "/api/trackside/v1/jobs":
            return 200, self._list(request)
        for job in self.jobs:
            if request.path == f"/api/trackside/v1/jobs/{job['id']}":
                return 200, job
            if request.path == f"/api/trackside/v1/jobs/{job['id']}/attempts":
                return 200, {"attempts": [], "lost": None}
        return 404, {"error_code": "Fake.404", "error_msg": f"nothing at {request.path}"}

    def _list(self, request: Request) -> dict[str, Any]:
        name, states = request.query.get("name", [""])[0], request.query.get("state", [])
        found = [job for job in self.jobs if name in job["name"] and (not states or job["phase"] in states)]
        offset, limit = int(request.query["offset"][0]), int(request.query["limit"][0])
        return {"jobs": found[offset : offset + limit], "matching": len(found), "total": len(self.jobs)}


def job(name: str = "llama-sft", phase: str = "running", **more: Any) -> dict[str, Any]:
    """Return a job as the native API shows it."""
    return {
        "id": JOB_ID,
        "number": 1,
        "name": name,
        "owner": "ana",
        "phase": phase,
        "created_at_ms": 1_700_000_000_000,
        "started_at_ms": 1_700_000_001_000,
        "ended_at_ms": None,
        "reason": None,
        "records": [],
        "tasks": [],
        "workers": 2,
        **more,
    }


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    """Run a fake server for a while."""
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            query = parse_qs(parts.query, keep_blank_values=True)
            request = Request(self.command, unquote(parts.path), query, body)
            fake.seen.append(request)
            status, content = self._checked(parts.path, parts.query, body) or fake.answer(request)
            sent = content if isinstance(content, bytes) else json.dumps(content).encode()
            sent = b"" if content is None else sent
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def _checked(self, path: str, query: str, body: bytes) -> Answer | None:
            if path in ("/readyz", "/healthz"):
                return None
            try:
                verify(
                    method=self.command,
                    raw_path=path.encode(),
                    raw_query=query.encode(),
                    headers={name.lower(): value.strip() for name, value in self.headers.items()},
                    body=body,
                    secret_of={ACCESS: SECRET}.get,
                    now_ms=time_ns() // 1_000_000,
                )
            except Unauthenticated as error:
                return 401, {"error_code": "APIGW.0301", "error_msg": error.detail}
            return None

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
