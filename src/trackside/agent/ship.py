"""Knows how to talk to the server: reports one way, orders the other; refuses to know what they mean.

Each direction is one thread with one connection that is kept. When the server is away both try again, at
first quickly; they read the server's address anew each time, for it may come back on another port.
"""

import http.client
import json
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from trackside.agent.orders import Unread, read_orders
from trackside.agent.spool import Spool
from trackside.agent.task import boot_ms
from trackside.domain.exchange import Hello, Orders, ReportAck, TaskKey
from trackside.domain.job import NodeId

BASE = "/api/trackside/v1/agent"
ORDERS_WAIT_SECONDS = 25
ANSWER_SECONDS_MAX = 30.0  # beyond the wait the server was asked for
BACKOFF_SECONDS_MIN = 0.05
BACKOFF_SECONDS_MAX = 0.5
ANY_VERSION = 0  # older than every version: answer at once

_log = logging.getLogger(__name__)
_ack = msgspec.json.Decoder(ReportAck)


class Refused(Exception):
    """The server answered, but not with what was asked for."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the server answered {status}: {body[:200].decode(errors='replace')}")
        self.status = status


class Link:
    """One kept connection to the server; used by one thread."""

    def __init__(self, server_file: Path, token_file: Path) -> None:
        self._server_file = server_file
        self._token_file = token_file
        self._connection: http.client.HTTPConnection | None = None
        self._token = ""
        self._prefix = ""

    def call(self, method: str, path: str, body: bytes | None = None, *, wait_seconds: float = 0.0) -> bytes:
        """Send a request and return the answer's body; raise Refused, or OSError if nobody is there."""
        kept = self._connection is not None
        try:
            status, content = self._exchange(method, path, body, ANSWER_SECONDS_MAX + wait_seconds)
        except OSError:
            if not kept:
                raise
            # A server closes connections that were idle; all requests may be repeated.
            status, content = self._exchange(method, path, body, ANSWER_SECONDS_MAX + wait_seconds)
        if not 200 <= status < 300:
            self.close()  # the next try reads address and token anew
            raise Refused(status, content)
        return content

    def _exchange(self, method: str, path: str, body: bytes | None, seconds: float) -> tuple[int, bytes]:
        try:
            connection = self._connection or self._connect()
            assert connection.sock is not None
            connection.sock.settimeout(seconds)
            # Head and body together: the server is woken once, and has half the work.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            connection.request(method, self._prefix + BASE + path, body, headers)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise OSError(f"no answer: {error}") from error
        if answer.will_close:
            self.close()
        return answer.status, content

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        try:
            endpoint = urlsplit(json.loads(self._server_file.read_text())["endpoint"])
            self._token = self._token_file.read_text().strip()
            host, port = endpoint.hostname or "127.0.0.1", endpoint.port
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"{self._server_file.name} names no endpoint: {error}") from error
        kind = http.client.HTTPSConnection if endpoint.scheme == "https" else http.client.HTTPConnection
        self._prefix = endpoint.path.rstrip("/")
        connection = kind(host, port, timeout=ANSWER_SECONDS_MAX)
        connection.connect()  # sets TCP_NODELAY
        self._connection = connection
        return connection


class _Retry:
    """Wait between tries, each time longer, and say only once what is wrong."""

    def __init__(self, what: str, ending: threading.Event) -> None:
        self._what = what
        self._ending = ending
        self._seconds = BACKOFF_SECONDS_MIN
        self._said = ""

    def failed(self, error: Exception) -> None:
        if str(error) != self._said:
            self._said = str(error)
            _log.warning("%s: %s; this is tried again", self._what, error)
        self._ending.wait(self._seconds)
        self._seconds = min(BACKOFF_SECONDS_MAX, self._seconds * 2)

    def worked(self) -> None:
        if self._said:
            _log.info("%s: works again", self._what)
        self._seconds, self._said = BACKOFF_SECONDS_MIN, ""


class Shipper:
    """Send what is spooled, at once; tell which tasks' ends are known to the server."""

    def __init__(
        self, link: Link, spool: Spool, node_id: NodeId, on_ended: Callable[[list[TaskKey]], None]
    ) -> None:
        self._link = link
        self._spool = spool
        self._node_id = node_id
        self._on_ended = on_ended
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more; what waits stays spooled."""
        self._ending.set()

    def _run(self) -> None:
        retry = _Retry("sending reports", self._ending)
        count_max = 0
        while not self._ending.is_set():
            batch = self._spool.wait() if count_max == 0 else self._spool.first(count_max)
            if batch is None:
                return
            said = {"node_id": self._node_id, "stream": batch.stream, "reports": batch.reports}
            body = msgspec.json.encode({**said, "sent_boot_ms": boot_ms()})
            try:
                ack = _ack.decode(self._link.call("POST", "/reports", body))
            except Refused as error:
                # Too large or not understood: find the one that is, rather than stand still.
                if error.status in (400, 413, 422) and len(batch.reports) > 1:
                    count_max = len(batch.reports) // 2
                retry.failed(error)
            except (OSError, msgspec.MsgspecError) as error:
                retry.failed(error)
            else:
                count_max = 0
                retry.worked()
                for refused in ack.refused:
                    _log.error("the server did not take report %d: %s", refused.seq, refused.why)
                ended = self._spool.acknowledge(batch.stream, min(ack.through, batch.through))
                if ended:
                    self._on_ended(ended)


class Listener:
    """Wait for orders and hand on every answer."""

    def __init__(
        self,
        link: Link,
        hello: Hello,
        on_orders: Callable[[Orders, Unread], None],
        on_interval: Callable[[float], None],
        disk: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        self._link = link
        self._disk = disk  # its size and what is free, in bytes
        self._hello = msgspec.json.encode(hello)
        self._node_id = hello.node_id
        self._on_orders = on_orders
        self._on_interval = on_interval
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more orders."""
        self._ending.set()

    def _run(self) -> None:
        retry = _Retry("asking for orders", self._ending)
        while not self._ending.is_set():
            try:
                self._introduce()
                retry.worked()
                self._listen()
            except (OSError, Refused, msgspec.MsgspecError) as error:
                retry.failed(error)

    def _introduce(self) -> None:
        answer = msgspec.json.decode(self._link.call("POST", "/hello", self._hello), type=dict[str, float])
        if "interval_seconds" in answer:
            self._on_interval(answer["interval_seconds"])

    def _listen(self) -> None:
        version = ANY_VERSION  # a restarted server may count from the beginning
        node = quote(self._node_id, safe="")
        while not self._ending.is_set():
            path = f"/orders?node={node}&version={version}&wait={ORDERS_WAIT_SECONDS}"
            if (disk := self._disk()) is not None:
                path += f"&disk_bytes={disk[0]}&disk_free_bytes={disk[1]}"
            orders, unread = read_orders(self._link.call("GET", path, wait_seconds=ORDERS_WAIT_SECONDS))
            version = orders.version
            if not self._ending.is_set():
                self._on_orders(orders, unread)
