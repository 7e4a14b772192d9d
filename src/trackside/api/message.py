"""Knows what is asked and answered over HTTP; knows no sockets and no operations."""

from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Protocol

import msgspec

from trackside.domain.errors import TracksideError

Headers = list[tuple[bytes, bytes]]  # lower-case names


class Request(msgspec.Struct):
    """A whole request as it came over the wire."""

    method: str
    raw_path: bytes  # before any decoding
    raw_query: bytes
    headers: Mapping[str, str]  # lower-case names, values stripped; the wire's bytes read as Latin-1
    body: bytes = b""


class Answer(msgspec.Struct):
    """What is sent back. Content that is not bytes is sent while it is made."""

    status: int
    headers: Headers
    content: bytes | AsyncIterator[bytes] = b""
    what: str = ""  # what it answers, for the log


class Application(Protocol):
    """Whoever answers requests."""

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer at once, or later; never raise."""
        ...

    def refuse(self, request: Request, error: TracksideError) -> Answer:
        """Say no to a request whose body is not taken, in the words of whoever it was for."""
        ...
