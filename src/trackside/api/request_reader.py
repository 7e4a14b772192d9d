"""Knows how the bytes of a connection become requests, and which of them are none; knows no sockets.

The parser is httptools': its callbacks are the methods that begin with `on_`.
"""

from typing import Protocol

import httptools

from trackside.api.body import BodyLimits
from trackside.api.http_text import split_target
from trackside.api.message import Request
from trackside.domain.errors import TooLarge, TracksideError

_BODY = frozenset({"content-length", "transfer-encoding"})


class BadRequest(Exception):
    """What came is no request; its text says why."""


class _Refused(Exception):
    """The request is refused while it is parsed; the parser stops at it."""


class Taker(Protocol):
    """Whoever takes requests."""

    def body_is_awaited(self) -> None:
        """Hear that the client waits to be asked for the body."""
        ...

    def take(self, request: Request, *, keep_alive: bool) -> None:
        """Take a whole request."""
        ...

    def refuse_body(self, request: Request, error: TracksideError, *, keep_alive: bool) -> None:
        """Hear that a request's body is not taken: what is left of it is passed over."""
        ...

    def passed_over(self) -> None:
        """Hear that the end of such a body was reached."""
        ...


class RequestReader:
    """Reads one request after the other."""

    def __init__(self, taker: Taker, bodies: BodyLimits) -> None:
        self._taker = taker
        self._bodies = bodies
        self._parser = httptools.HttpRequestParser(self)
        # What follows a request that wants the connection closed is passed over, not an error.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.in_head = False
        self.head_bytes = 0  # of a head, or of what is no content in a body, that is not whole
        self._new_bytes = 0  # of them just read
        self.in_body = False
        self.unwanted = False  # the rest of the body is passed over
        self._body: bytes | bytearray = b""  # as far as it has come
        self._request = Request("", b"", b"", {})
        self._keep_alive = False
        self._again = b""  # a head that is to be read instead of the one just read
        self._begin()

    def feed(self, data: bytes) -> None:
        """Read what came; raise BadRequest."""
        while data:
            self._new_bytes = len(data)
            data = self._parse(data)
            self.head_bytes += self._new_bytes

    def close(self) -> None:
        """Let go of a body that is not whole."""
        self._end_body()

    def on_message_begin(self) -> None:
        """Note that a request began."""
        self._begin()
        self.in_head = True
        self.head_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take the request's target, which may come in parts."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what follows a body in pieces is none that anybody asked for."""
        if self.in_body:
            return
        text = name.lower().decode("latin-1")
        self._headers[text] = value.strip(b" \t").decode("latin-1")
        if text == "host":
            self._hosts += 1

    def on_headers_complete(self) -> None:
        """Refuse a request whose Host is missing or not one, and a body that is too large."""
        if self._hosts != 1 and (self._hosts or self._parser.get_http_version() != "1.0"):
            self._refusal = "Exactly one Host header is expected."
            raise _Refused
        if "upgrade" in self._headers and self._parser.should_upgrade() and _BODY & self._headers.keys():
            self._again = self._without_upgrade()
            return
        path, query = split_target(self._url)
        self._request = Request(self._parser.get_method().decode("ascii"), path, query, self._headers)
        self._keep_alive = self._parser.get_http_version() != "1.0" and self._parser.should_keep_alive()
        self.in_head, self.in_body = False, True
        self._got_somewhere()
        length = self._headers.get("content-length")
        if length is not None:
            try:
                self._bodies.announced(int(length))
            except TooLarge as error:
                self._refuse_body(error)
                return
        if self._headers.get("expect", "").lower() == "100-continue":
            self._taker.body_is_awaited()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, unless nobody wants it."""
        self._got_somewhere()
        if self.unwanted:
            return
        if not self._body:
            self._body = body  # mostly it is the only piece
        elif isinstance(self._body, bytearray):
            self._body += body
        else:
            self._body = bytearray(self._body) + body
        try:
            self._bodies.arrived(len(body), so_far=len(self._body))
        except TracksideError as error:
            self._refuse_body(error)

    def on_message_complete(self) -> None:
        """Hand the request over."""
        if self._again:
            return
        self.in_body = False
        self._got_somewhere()
        if self.unwanted:
            self._taker.passed_over()
            return
        if self._body:
            self._request.body = bytes(self._body)
            self._end_body()
        self._taker.take(self._request, keep_alive=self._keep_alive)

    def _parse(self, data: bytes) -> bytes:
        """Parse, and return what is left after a request that asked to be of another protocol.

        It is answered as if it had not.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            again, self._again = self._again, b""
            return again + data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            raise BadRequest(self._refusal or "Invalid HTTP request received.") from error
        return b""

    def _without_upgrade(self) -> bytes:
        """Return the head of a request as if it had not asked for another protocol.

        The parser takes such a request to have no body: what follows would be read as the next one.
        """
        close = "close" if "close" in self._headers.get("connection", "").lower() else "keep-alive"
        headers = {**self._headers, "connection": close}
        del headers["upgrade"]
        lines = [f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items()]
        version = self._parser.get_http_version().encode("ascii")
        first = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, version)
        return first + b"".join(lines) + b"\r\n"

    def _got_somewhere(self) -> None:
        """Count what came no longer: the head, a piece of the body or the request is whole."""
        self.head_bytes = self._new_bytes = 0

    def _refuse_body(self, error: TracksideError) -> None:
        self.unwanted = True
        self._end_body()
        self._taker.refuse_body(self._request, error, keep_alive=self._keep_alive)

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._hosts = 0
        self._body = b""
        self._refusal = ""  # what else than "invalid" is to be said of it
        self.unwanted = False

    def _end_body(self) -> None:
        self._bodies.ended(len(self._body))
        self._body = b""
