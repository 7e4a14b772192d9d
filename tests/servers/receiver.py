"""A webhook's receiver on loopback that takes, refuses, redirects, hangs or is away, as a test says."""

import json
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GET_SECONDS = 60.0


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]  # lower-case names
    body: bytes

    @property
    def content(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What is answered."""

    status: int = 200
    body: bytes = b"ok"
    headers: tuple[tuple[str, str], ...] = ()
    hang: bool = False  # say nothing until the receiver is closed
    raw: bytes | None = None  # these bytes instead of an answer; empty: hang up


class Receiver:
    """A real HTTP server in threads; `replies` are used up in order, then everything is taken."""

    def __init__(self, *replies: Reply, choose: Callable[[Received], Reply] | None = None) -> None:
        self.got: queue.Queue[Received] = queue.Queue()
        self._replies = list(replies)
        self._choose = choose
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        """Return the address, with a part that must never be shown."""
        return f"http://127.0.0.1:{self.port}/hook/very-secret-path?key=very-secret-key"

    def start(self) -> None:
        """Listen: on the same port as before."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                received = Received(self.path, headers, body)
                reply = receiver._reply(received)
                receiver.got.put(received)
                receiver._answer(self, reply)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """The other side may hang up while it waits."""

        self._closing.clear()
        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be away; what waits is let go."""
        self._closing.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def get(self) -> Received:
        """Return the next request."""
        return self.got.get(timeout=GET_SECONDS)

    def _reply(self, received: Received) -> Reply:
        with self._lock:
            if self._replies:
                return self._replies.pop(0)
        return self._choose(received) if self._choose else Reply()

    def _answer(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        if reply.hang:
            self._closing.wait(GET_SECONDS)
            handler.close_connection = True
            return
        if reply.raw is not None:
            handler.wfile.write(reply.raw)
            handler.close_connection = True
            return
        handler.send_response(reply.status)
        for name, value in reply.headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)


def unused_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
