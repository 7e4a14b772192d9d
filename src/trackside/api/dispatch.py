"""Knows the way of a request: route, authenticate, authorise, check, handle, answer.

Knows no vendor's JSON: what is refused is said by the dialect.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import msgspec

from trackside.api.message import Answer, Headers, Request
from trackside.api.operation import Call, Dialect, Operation, Raw, Signed, Streamed
from trackside.api.prompt import begun
from trackside.api.reading import check_query, decode_body, parse_query
from trackside.api.routes import Missed, Routes
from trackside.api.tally import Tallies, Tally
from trackside.domain.errors import (
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    TracksideError,
    Unavailable,
)
from trackside.domain.identity import Caller
from trackside.service import Services

Allowed = Callable[[Caller, Operation, Mapping[str, str]], bool]

_log = logging.getLogger("trackside.api")
_encode = msgspec.json.Encoder().encode
_JSON = (b"content-type", b"application/json")
_id_prefix = os.urandom(8).hex()
_id_numbers = itertools.count()


class _Bound:
    """An operation with everything that can be prepared once."""

    __slots__ = ("authenticate", "decoder", "dialect", "handler", "operation", "request_id_header", "tally")

    def __init__(self, operation: Operation, dialect: Dialect, tally: Tally) -> None:
        self.tally = tally
        self.operation = operation
        self.dialect = dialect
        self.handler = operation.handler
        self.authenticate = dialect.authenticate
        self.decoder: msgspec.json.Decoder[Any] | None = None
        if operation.body not in (None, bytes):
            self.decoder = msgspec.json.Decoder(operation.body)
        self.request_id_header = dialect.request_id_header.lower().encode("ascii")


class Dispatcher:
    """The application over all dialects."""

    def __init__(
        self,
        dialects: Sequence[Dialect],
        *,
        services: Services,
        allowed: Allowed,
        tallies: Tallies | None = None,
    ) -> None:
        tallies = tallies or Tallies()
        self._missed = tallies.of("none", "none")
        self._dialects = tuple(dialects)
        self._services = services
        self._allowed = allowed
        self._routes: Routes[_Bound] = Routes()
        for position, dialect in enumerate(self._dialects):
            for operation in dialect.operations:
                bound = _Bound(operation, dialect, tallies.of(dialect.name, operation.name))
                self._routes.add(operation.method, operation.path, bound, dialect=position)

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer one request: now, if its operation need not wait."""
        found = self._routes.find(request.method, request.raw_path)
        if isinstance(found, Missed):
            return self._miss(found, request)
        exchange = _Exchange(found[0])
        try:
            result = self._handle(exchange, found[1], request)
            if isinstance(result, Awaitable):
                return exchange.later(result)
            return exchange.answer(result)
        except Exception as error:
            return exchange.refusal(error)

    def refuse(self, request: Request, error: TracksideError) -> Answer:
        """Say no to a request whose body is not taken."""
        found = self._routes.find(request.method, request.raw_path)
        if isinstance(found, Missed):
            return self._miss(found, request)
        return _Exchange(found[0]).refusal(error)

    def _handle(self, exchange: "_Exchange", path: Mapping[str, str], request: Request) -> Any:
        """Return what the operation's handler returns: a result, or something to wait for."""
        bound = exchange.bound
        operation, headers, raw_query = bound.operation, request.headers, request.raw_query
        caller = bound.authenticate(
            Signed(request.method, request.raw_path, raw_query, headers, request.body, path, operation.action)
        )
        if not self._allowed(caller, operation, path):
            raise Forbidden(f"User {caller.user} ({caller.role}) may not do {operation.action}.")
        query = parse_query(raw_query)
        if operation.query:
            check_query(operation.query, query)
        result = bound.handler(
            Call(
                services=self._services,
                caller=caller,
                request_id=exchange.request_id,
                path=path,
                query=query,
                headers=headers,
                body=_body(bound, request.body),
            )
        )
        return begun(result) if operation.prompt else result

    def _miss(self, missed: Missed, request: Request) -> Answer:
        request_id, method = new_request_id(), request.method
        allow = (b"allow", ", ".join(missed.allow).encode("ascii"))
        if missed.allow and method == "OPTIONS":
            return Answer(204, [_JSON, allow])
        error: TracksideError
        if missed.allow:
            error = Invalid(f"{method} is not allowed here; allowed are {', '.join(missed.allow)}.")
        else:
            error = NotFound(f"There is nothing at {request.raw_path.decode('latin-1')[:200]}.")
        header, status = b"x-request-id", 404
        if missed.dialect is None:
            content = _encode({"code": error.kind, "message": error.detail, "requestId": request_id})
        else:
            dialect = self._dialects[missed.dialect]
            header = dialect.request_id_header.lower().encode("ascii")
            status, body = dialect.error(error, request_id)
            content = _encode(body)
        headers = [_JSON, (header, request_id.encode("ascii"))]
        if missed.allow:
            status = 405
            headers.append(allow)
        self._missed[status // 100][0] += 1
        return Answer(status, headers, content)


class _Exchange:
    """One request of an operation and what becomes of it: turns results and errors into answers."""

    __slots__ = ("bound", "request_id", "started")

    def __init__(self, bound: _Bound) -> None:
        self.started = perf_counter()
        self.request_id = new_request_id()
        self.bound = bound

    async def later(self, result: Awaitable[Any]) -> Answer:
        """Wait for the result."""
        try:
            return self.answer(await result)
        except asyncio.CancelledError:
            # Only a server that stops cancels requests: the client learns it, and nothing runs after this.
            return self.refusal(Unavailable("The server is stopping; try again in a moment."))
        except Exception as error:
            return self.refusal(error)

    def answer(self, result: Any) -> Answer:
        """Return the answer that a handler's result makes."""
        status = self.bound.operation.status
        if isinstance(result, Raw):
            return self._sent(
                result.status or status, _headers(result.media_type, result.headers), result.content
            )
        if isinstance(result, Streamed):
            answer = self._sent(status, _headers(result.media_type, result.headers), b"")
            answer.content = result.content
            answer.what = f"{self.bound.operation.name}, request {self.request_id}"
            return answer
        return self._sent(status, [_JSON], b"{}" if result is None else _encode(result))

    def refusal(self, error: Exception) -> Answer:
        """Say no in the dialect's words; what is not meant to be said is a bug, which is logged."""
        dialect = self.bound.dialect
        if isinstance(error, TracksideError):
            status, body = dialect.error(error, self.request_id)
        else:
            _log.error("bug in %s, request %s", self.bound.operation.name, self.request_id, exc_info=error)
            status, body = dialect.unexpected(self.request_id)
        return self._sent(status, [_JSON], _encode(body))

    def _sent(self, status: int, headers: Headers, content: bytes) -> Answer:
        headers.append((self.bound.request_id_header, self.request_id.encode("ascii")))
        count = self.bound.tally[status // 100]
        count[0] += 1
        count[1] += perf_counter() - self.started
        return Answer(status, headers, content)


def new_request_id() -> str:
    """Return an id that no other request of this or another server process has: 32 hexadecimal digits."""
    return f"{_id_prefix}{next(_id_numbers):016x}"


def _body(bound: _Bound, body: bytes) -> Any:
    if bound.operation.body is bytes:
        return body
    if bound.decoder is None:
        return None
    if body:
        return decode_body(bound.decoder, body)
    if bound.operation.body_required:
        raise Malformed("The body is empty; a JSON object is expected.")
    return None


def _headers(media_type: str, more: Mapping[str, str]) -> Headers:
    headers = [(b"content-type", media_type.encode("ascii"))]
    for name, value in more.items():
        headers.append((name.lower().encode("ascii"), value.encode("latin-1")))
    return headers
