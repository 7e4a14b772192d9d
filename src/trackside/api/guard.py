"""Knows what a connection may not do to the server: be slow, be many, be huge, be ambiguous.

uvicorn has no deadline for headers or bodies, no cap on either's size or on idle connections, and takes
requests without a Host or with two. Everything here happens before any application code runs.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What connections are held to."""

    connections_max: int = 800  # below the usual limit of 1,024 open files
    head_bytes_max: int = 64 * 1024  # request line and headers
    head_seconds: float = 20.0  # from the connection, or the request's first byte, to its last header
    body_seconds: float = 60.0  # for the whole body


class _Refused(Exception):
    """The request is refused while it is parsed; the parser stops at it."""


class GuardedProtocol(HttpToolsProtocol):
    """An HTTP connection that is held to limits."""

    def __init__(self, *args: Any, limits: Limits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_is_for_body = False
        self._head_bytes = 0
        self._in_head = False
        self._in_body = False
        self._refusal: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock for the first request, or turn the connection away."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections_max:
            self._refuse(503, "Too many connections; try again in a moment.")
            return
        self._arm(self._limits.head_seconds, for_body=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, and keep a deadline running exactly while a request is incomplete."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes_max:
                self._refuse(431, "The request line and headers are too large.")
            elif self._deadline is None:
                self._arm(self._limits.head_seconds, for_body=False)
        elif self._in_body:
            if self._deadline is None or not self._deadline_is_for_body:
                self._arm(self._limits.body_seconds, for_body=True)
        elif self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            # Blank lines between requests: they end uvicorn's wait for the next one, so wait here.
            self._arm(self._limits.head_seconds, for_body=False)

    def on_message_begin(self) -> None:
        """Note that a request began."""
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Refuse a request whose Host is missing or not one."""
        hosts = 0
        for name, _ in self.headers:
            if name == b"host":
                hosts += 1
        if hosts != 1:
            self._refusal = "Exactly one Host header is expected."
            raise _Refused
        super().on_headers_complete()
        self._in_head, self._in_body = False, True

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._in_body = False
        self._disarm()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refused, in JSON."""
        self._refuse(400, self._refusal or msg)

    def _arm(self, seconds: float, *, for_body: bool) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(seconds, self._too_slow)
        self._deadline_is_for_body = for_body

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not (self._in_head or self._in_body):
            self.transport.close()  # nothing was asked, so nothing is answered
            return
        what = "body" if self._deadline_is_for_body else "headers"
        self._refuse(408, f"The request's {what} did not arrive in time.")

    def _refuse(self, status: int, message: str) -> None:
        """Say no and close; only close where words would be taken for another request's answer."""
        self._disarm()
        if self.transport.is_closing():
            return
        if self._may_speak():
            self.transport.write(_answer(status, message))
        self.transport.close()

    def _may_speak(self) -> bool:
        if self._in_body:
            return not self.pipeline and not self.cycle.response_started
        return self.cycle is None or self.cycle.response_complete


def guarded(limits: Limits) -> Any:
    """Return what uvicorn takes as its HTTP protocol class."""
    return partial(GuardedProtocol, limits=limits)


def _answer(status: int, message: str) -> bytes:
    content = msgspec.json.encode({"code": str(status), "message": message})
    head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(content)
    return STATUS_LINE[status] + head + content
