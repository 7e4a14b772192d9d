"""Knows how much of a request's body is taken in, alone and together; knows nothing of what is in it."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from trackside.domain.errors import TooLarge, Unavailable

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

BODY_BYTES_MAX = 8 * 1024 * 1024
UNFINISHED_BYTES_MAX = 256 * 1024 * 1024  # of all bodies still arriving, whoever sends them


class ClientGone(Exception):
    """The client went away before its request was complete."""


class BodyReader:
    """Read bodies up to a limit each, and up to a limit for all that are still arriving."""

    def __init__(
        self, bytes_max: int = BODY_BYTES_MAX, *, unfinished_bytes_max: int = UNFINISHED_BYTES_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._unfinished_bytes_max = unfinished_bytes_max
        self._unfinished_bytes = 0

    async def read(self, content_length: str | None, receive: Receive) -> bytes:
        """Return the whole body; raise TooLarge, Unavailable or ClientGone."""
        if content_length is not None and int(content_length) > self._bytes_max:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk = message["body"]
                chunks.append(chunk)
                size += len(chunk)
                self._unfinished_bytes += len(chunk)
                if size > self._bytes_max:
                    raise self._too_large()
                if not message["more_body"]:
                    return b"".join(chunks)
                if self._unfinished_bytes > self._unfinished_bytes_max:
                    raise Unavailable("Too much is being sent to the server at once; try again in a moment.")
        finally:
            self._unfinished_bytes -= size

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than the limit of {self._bytes_max} bytes.")
