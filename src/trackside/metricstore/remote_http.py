"""Knows how to ask a server over HTTP and keep connections open; knows no Prometheus.

The address may hold a name and a password: they become a header and are never part of a message or a log.
"""

import base64
import http.client
import threading
from collections import deque
from collections.abc import Mapping
from urllib.parse import unquote, urlencode, urlsplit

from trackside.domain.errors import Invalid, Unavailable

ANSWER_BYTES_MAX = 512 * 1024 * 1024
IDLE_MAX = 8

Form = list[tuple[str, str]]


class RemoteServer:
    """A base address and what is asked below it."""

    def __init__(self, url: str, *, timeout_seconds: float) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname, parts.port
        except ValueError:
            raise Invalid("metrics_url is not an address") from None
        if parts.scheme not in ("http", "https") or not self._host or parts.query or parts.fragment:
            raise Invalid("metrics_url must look like http://host:port or https://host/path")
        self._secure = parts.scheme == "https"
        self._prefix = parts.path.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._headers = _credentials(parts.username, parts.password)
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._closed = threading.Event()
        port = f":{self._port}" if self._port else ""
        self.shown = f"{parts.scheme}://{self._host}{port}{self._prefix}"

    def post_form(self, path: str, form: Form) -> tuple[int, bytes]:
        """Send a form; return the status and the body of the answer."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.post(path, urlencode(form).encode(), headers)

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a body; return the status and the body of the answer. Raise Unavailable if there is none."""
        fresh = False
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection, fresh = self._connect(), True
            try:
                return self._exchange(connection, path, body, {**self._headers, **headers})
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # A connection that was idle may have been closed over there: that says nothing.
                if fresh or isinstance(error, TimeoutError) or self._closed.is_set():
                    raise Unavailable(
                        f"the metric store {self.shown} does not answer: {_why(error)}"
                    ) from None

    def close(self) -> None:
        """Close idle connections."""
        self._closed.set()
        while self._idle:
            self._idle.pop().close()

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        assert self._host is not None
        return kind(self._host, self._port, timeout=self._timeout_seconds)

    def _exchange(
        self, connection: http.client.HTTPConnection, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        connection.request("POST", self._prefix + path, body, dict(headers))
        answer = connection.getresponse()
        content = answer.read(ANSWER_BYTES_MAX)
        if answer.will_close or not answer.isclosed() or len(self._idle) >= IDLE_MAX:
            connection.close()
        else:
            self._idle.append(connection)
        return answer.status, content


def _credentials(name: str | None, password: str | None) -> dict[str, str]:
    if name is None:
        return {}
    said = f"{unquote(name)}:{unquote(password or '')}".encode()
    return {"Authorization": "Basic " + base64.b64encode(said).decode("ascii")}


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
