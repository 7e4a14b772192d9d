"""Knows how one request is posted to an address somebody gave: briefly, once, without following anybody.

Uses the event loop, so that a receiver that hangs holds no thread. No sentence in here names the address.
"""

import asyncio
import base64
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from urllib.parse import unquote, urlsplit

import httptools

from trackside.domain.topic import Undeliverable
from trackside.notify.route import NotAllowed, Route

TIMEOUT_SECONDS = 10.0  # for everything: finding, connecting, sending and the answer
ANSWER_BYTES_MAX = 64 * 1024
READ_BYTES = 16 * 1024
DEFAULT_PORTS = {"http": 80, "https": 443}


async def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    route: Route,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[int, bytes]:
    """Send a body; return the status and the body of the answer. Raise Undeliverable if there is none."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _exchange(url, body, headers, route)
    except TimeoutError:
        raise Undeliverable(f"it did not answer within {timeout_seconds:g} s", silent=True) from None
    except NotAllowed as error:
        raise Undeliverable(str(error), silent=True) from None
    except ssl.SSLCertVerificationError as error:
        raise Undeliverable(f"its certificate is not trusted: {error.verify_message}", silent=True) from None
    except OSError as error:
        raise Undeliverable(f"it cannot be reached: {_why(error)}", silent=True) from None
    except httptools.HttpParserError:
        raise Undeliverable("what it answered is not HTTP", silent=True) from None


@cache
def trusted() -> ssl.SSLContext:
    """Return the certificates this machine trusts; reading them takes too long to do it every time."""
    return ssl.create_default_context()


def host_and_port(url: str) -> tuple[str, int]:
    """Return where an address leads."""
    parts = urlsplit(url)
    assert parts.hostname is not None, "checked when the topic was made"
    return parts.hostname, DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port


async def _exchange(url: str, body: bytes, headers: Mapping[str, str], route: Route) -> tuple[int, bytes]:
    host, port = host_and_port(url)
    secure = url.lower().startswith("https:")
    addresses = await route.addresses(host, port)
    reader, writer = await _connected(addresses, port, name=host if secure else None)
    try:
        writer.write(_head(url, body, headers) + body)
        await writer.drain()
        return await _answer(reader)
    finally:
        writer.transport.abort()  # closing politely would wait for the other side


async def _connected(
    addresses: Sequence[str], port: int, *, name: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers; with a name, it must show a certificate of that name."""
    secure = None if name is None else trusted()
    for address in addresses[:-1]:
        with suppress(OSError):
            return await asyncio.open_connection(
                address, port, ssl=secure, server_hostname=name, limit=READ_BYTES
            )
    last = addresses[-1]
    return await asyncio.open_connection(last, port, ssl=secure, server_hostname=name, limit=READ_BYTES)


def _head(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = {
        "Host": parts.netloc.rpartition("@")[2],
        "User-Agent": "trackside",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **_credentials(parts.username, parts.password),
        **headers,
    }
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _credentials(name: str | None, password: str | None) -> dict[str, str]:
    if name is None:
        return {}
    said = f"{unquote(name)}:{unquote(password or '')}".encode()
    return {"Authorization": "Basic " + base64.b64encode(said).decode("ascii")}


class _Answer:
    """Collects what the parser finds."""

    def __init__(self) -> None:
        self.headed = False
        self.complete = False
        self.body = bytearray()

    def on_message_begin(self) -> None:
        """Begin again: an interim answer may come before the real one."""
        self.headed, self.complete = False, False
        self.body.clear()

    def on_headers_complete(self) -> None:
        """Know the status."""
        self.headed = True

    def on_body(self, data: bytes) -> None:
        """Keep a part of the body."""
        self.body += data

    def on_message_complete(self) -> None:
        """Know the end."""
        self.complete = True


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read the answer: enough of it to know what it says."""
    found, read = _Answer(), 0
    parser = httptools.HttpResponseParser(found)
    while read < ANSWER_BYTES_MAX:
        data = await reader.read(READ_BYTES)
        if not data:
            break
        read += len(data)
        parser.feed_data(data)
        if found.complete and parser.get_status_code() >= 200:
            break
    if not found.headed:
        raise Undeliverable("it hung up without an answer", silent=True)
    return parser.get_status_code(), bytes(found.body[:ANSWER_BYTES_MAX])


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
