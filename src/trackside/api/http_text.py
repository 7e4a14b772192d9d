"""Knows how heads of HTTP/1.1 are written and a request's target is read; knows no sockets."""

import http
import time
from email.utils import formatdate

import httptools

from trackside.api.message import Answer

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode("ascii"))
    for status in http.HTTPStatus
}


class NoTarget(Exception):
    """What was asked for cannot name anything."""


def head_of(answer: Answer, *more: bytes, keep_alive: bool) -> bytes:
    """Return the head of an answer, with more lines as they are."""
    lines = [_STATUS_LINES[answer.status], _date_line(), *[b"%b: %b\r\n" % pair for pair in answer.headers]]
    return b"".join([*lines, *more, b"\r\n" if keep_alive else b"connection: close\r\n\r\n"])


def split_target(target: bytes) -> tuple[bytes, bytes]:
    """Return path and query of a request's target; raise NoTarget or an error of httptools."""
    if not target.isascii():
        raise NoTarget
    if target.startswith(b"/") and b"#" not in target:
        path, _, query = target.partition(b"?")
        return path, query
    parsed = httptools.parse_url(target)
    return parsed.path or b"/", parsed.query or b""


class _DateLine:
    """The line with the time, which is the same for a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def __call__(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = b"date: %b\r\n" % formatdate(second, usegmt=True).encode("ascii")
        return self._line


_date_line = _DateLine()
