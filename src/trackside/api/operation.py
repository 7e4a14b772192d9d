"""Knows what an API operation is: one row that routing, authorization, OpenAPI and the docs all read.

What is made for every request (Call, Signed, Raw) is a msgspec Struct: it is made in a third of the time.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from trackside.domain.errors import TracksideError
from trackside.domain.identity import Caller
from trackside.service import Services


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One authenticated request, read and checked: what a handler gets."""

    services: Services
    caller: Caller
    request_id: str
    path: Mapping[str, str]  # decoded path parameters
    query: Mapping[str, list[str]]  # decoded; a key may repeat
    headers: Mapping[str, str]  # lower-case names
    body: Any = None  # an instance of Operation.body

    def query_one(self, name: str) -> str | None:
        """Return the last value of a query parameter; an empty one counts as absent."""
        values = self.query.get(name)
        return values[-1] or None if values else None


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is already encoded."""

    content: bytes
    media_type: str = "application/json"
    status: int | None = None  # None: the operation's
    headers: Mapping[str, str] = {}


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is sent while it is made. What goes wrong after its first piece cuts it off."""

    content: AsyncIterator[bytes]
    media_type: str
    headers: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One query parameter, for checking and for OpenAPI."""

    name: str
    type: type = str  # str, int or bool
    required: bool = False
    repeated: bool = False
    minimum: int | None = None
    maximum: int | None = None
    max_length: int | None = None
    choices: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a dialect, said once."""

    name: str  # the vendor's own: ShowTrainingJobDetails
    method: str
    path: str  # /v2/{project_id}/training-jobs/{training_job_id}
    action: str  # what the caller must be allowed: modelarts:trainJob:get
    handler: Callable[[Call], Awaitable[Any]]  # returns a struct, a JSON-able value, None, Raw or Streamed
    summary: str
    body: type | None = None  # msgspec Struct of the request body; bytes: taken as it comes
    body_required: bool = True
    response: type | None = None
    status: int = 200
    query: Sequence[Param] = ()
    media_type: str = "application/json"  # of what comes back
    prompt: bool = False  # its handler seldom waits: it is begun without a task (see prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One vendor's API: its rows, how its callers prove themselves, and how it says no."""

    name: str
    title: str
    operations: Sequence[Operation]
    authenticate: Callable[["Signed"], Caller]  # raises Unauthenticated or Forbidden
    error: Callable[[TracksideError, str], tuple[int, Mapping[str, Any]]]  # error, request id → status, body
    unexpected: Callable[[str], tuple[int, Mapping[str, Any]]]  # request id → status, body of a bug
    request_id_header: str = "X-Request-Id"


class Signed(msgspec.Struct, frozen=True):
    """A request as it came over the wire, for whoever checks signatures."""

    method: str
    raw_path: bytes  # before any decoding
    raw_query: bytes
    headers: Mapping[str, str]  # lower-case names, values stripped
    body: bytes
    path: Mapping[str, str]
    action: str
