"""Knows how to GET one small text over HTTP within a time and a size; knows nothing of what it says.

Redirects are not followed: what is asked for is read from there or not at all.
"""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

Connect = Callable[[str, int, float], socket.socket]


class FetchFailed(Exception):
    """There is no answer; the text says why."""


class TooSlow(FetchFailed):
    """The answer did not come in time."""


class TooLarge(FetchFailed):
    """The answer is larger than allowed."""


def fetch_url(url: str, *, seconds_max: float, bytes_max: int) -> bytes:
    """Return what an http URL answers."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return fetch(parts.hostname or "", parts.port or 80, path, seconds_max=seconds_max, bytes_max=bytes_max)


def fetch(
    host: str,
    port: int,
    path: str,
    *,
    seconds_max: float,
    bytes_max: int,
    connect: Connect | None = None,
) -> bytes:
    """Return the body; the whole exchange takes no longer than `seconds_max`, however slowly it drips."""
    connection = http.client.HTTPConnection(host, port)
    late = threading.Event()
    alarm: threading.Timer | None = None
    try:
        taken = connection.sock = (connect or _connect)(host, port, seconds_max)
        alarm = threading.Timer(seconds_max, _hang_up, (taken, late))
        alarm.daemon = True
        alarm.start()
        connection.request("GET", path, headers={"Accept": "text/plain", "Connection": "close"})
        body = _body(connection.getresponse(), bytes_max)
    except TimeoutError as error:
        raise TooSlow(f"no answer within {seconds_max:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        if late.is_set():
            raise TooSlow(f"no answer within {seconds_max:g} s") from error
        raise FetchFailed(_words(error)) from error
    finally:
        if alarm is not None:
            alarm.cancel()
        connection.close()
    if late.is_set():  # a body without a length ends wherever the connection does
        raise TooSlow(f"no answer within {seconds_max:g} s")
    return body


def _connect(host: str, port: int, seconds_max: float) -> socket.socket:
    return socket.create_connection((host, port), seconds_max)


def _body(response: http.client.HTTPResponse, bytes_max: int) -> bytes:
    with response:
        if response.status != http.HTTPStatus.OK:
            raise FetchFailed(f"it answered with status {response.status}")
        body = response.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise TooLarge(f"the answer is larger than {bytes_max:,} bytes")
    return body


def _hang_up(taken: socket.socket, late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(OSError):
        taken.shutdown(socket.SHUT_RDWR)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)[:200] or type(error).__name__
