"""Knows the way of a request: route, read, authenticate, authorise, check, handle, answer.

Knows no vendor's JSON: what is refused is said by the dialect. Speaks plain ASGI messages, because
request and response objects would cost more than everything else here together.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from time import perf_counter
from typing import Any

import msgspec

from trackside.api.body import BODY_BYTES_MAX, BodyReader, ClientGone, Receive
from trackside.api.operation import Call, Dialect, Operation, Raw, Signed, Streamed
from trackside.api.reading import check_query, decode_body, parse_query
from trackside.api.routes import Missed, Routes
from trackside.api.streaming import send_stream
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

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Allowed = Callable[[Caller, Operation, Mapping[str, str]], bool]
Headers = list[tuple[bytes, bytes]]

NO_CONTENT = (204, 304)

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
    """The ASGI application over all dialects."""

    def __init__(
        self,
        dialects: Sequence[Dialect],
        *,
        services: Services,
        allowed: Allowed,
        body_bytes_max: int = BODY_BYTES_MAX,
        tallies: Tallies | None = None,
    ) -> None:
        tallies = tallies or Tallies()
        self._missed = tallies.of("none", "none")
        self._dialects = tuple(dialects)
        self._services = services
        self._allowed = allowed
        self._bodies = BodyReader(body_bytes_max)
        self._routes: Routes[_Bound] = Routes()
        for position, dialect in enumerate(self._dialects):
            for operation in dialect.operations:
                bound = _Bound(operation, dialect, tallies.of(dialect.name, operation.name))
                self._routes.add(operation.method, operation.path, bound, dialect=position)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = perf_counter()
        request_id = new_request_id()
        found = self._routes.find(scope["method"], scope["raw_path"])
        if isinstance(found, Missed):
            await self._miss(found, scope, send, request_id)
            return
        bound, path = found
        dialect = bound.dialect
        headers: Headers = [_JSON]
        content: bytes | Streamed
        try:
            status, content = await self._answer(bound, path, scope, receive, request_id, headers)
        except TracksideError as error:
            status, content = _refusal(dialect, error, request_id)
        except ClientGone:
            return
        except asyncio.CancelledError:
            # Only a server that stops cancels requests: the client learns it, and nothing runs after this.
            stopping = Unavailable("The server is stopping; try again in a moment.")
            status, content = _refusal(dialect, stopping, request_id)
        except Exception:
            _log.exception("bug in %s, request %s", bound.operation.name, request_id)
            status, body = dialect.unexpected(request_id)
            content, headers = _encode(body), [_JSON]
        headers.append((bound.request_id_header, request_id.encode("ascii")))
        count = bound.tally[status // 100]
        count[0] += 1
        count[1] += perf_counter() - started
        if isinstance(content, Streamed):
            await send_stream(
                send,
                receive,
                status=status,
                headers=headers,
                content=content.content,
                what=f"{bound.operation.name}, request {request_id}",
                with_body=scope["method"] != "HEAD",
            )
            return
        await send_answer(send, status, headers, content)

    async def _answer(
        self,
        bound: _Bound,
        path: Mapping[str, str],
        scope: Scope,
        receive: Receive,
        request_id: str,
        headers_out: Headers,
    ) -> tuple[int, bytes | Streamed]:
        operation = bound.operation
        headers = {
            name.decode("latin-1"): value.strip(b" \t").decode("latin-1") for name, value in scope["headers"]
        }
        body = b""
        if "content-length" in headers or "transfer-encoding" in headers:
            body = await self._bodies.read(headers.get("content-length"), receive)
        raw_query = scope["query_string"]
        caller = bound.authenticate(
            Signed(scope["method"], scope["raw_path"], raw_query, headers, body, path, operation.action)
        )
        if not self._allowed(caller, operation, path):
            raise Forbidden(f"User {caller.user} ({caller.role}) may not do {operation.action}.")
        query = parse_query(raw_query)
        if operation.query:
            check_query(operation.query, query)
        result = await bound.handler(
            Call(
                services=self._services,
                caller=caller,
                request_id=request_id,
                path=path,
                query=query,
                headers=headers,
                body=_body(bound, body),
            )
        )
        if isinstance(result, Raw):
            return _raw(result, operation.status, headers_out)
        if isinstance(result, Streamed):
            _take_headers(headers_out, result.media_type, result.headers)
            return operation.status, result
        if result is None:
            return operation.status, b"{}"
        return operation.status, _encode(result)

    async def _miss(self, missed: Missed, scope: Scope, send: Send, request_id: str) -> None:
        method, raw_path = scope["method"], scope["raw_path"].decode("latin-1")
        allow = (b"allow", ", ".join(missed.allow).encode("ascii"))
        if missed.allow and method == "OPTIONS":
            await send_answer(send, 204, [_JSON, allow], b"")
            return
        error: TracksideError
        if missed.allow:
            error = Invalid(f"{method} is not allowed here; allowed are {', '.join(missed.allow)}.")
        else:
            error = NotFound(f"There is nothing at {raw_path[:200]}.")
        header, status = b"x-request-id", 404
        if missed.dialect is None:
            content = _encode({"code": error.kind, "message": error.detail, "requestId": request_id})
        else:
            dialect = self._dialects[missed.dialect]
            header = dialect.request_id_header.lower().encode("ascii")
            status, content = _refusal(dialect, error, request_id)
        headers = [_JSON, (header, request_id.encode("ascii"))]
        if missed.allow:
            status = 405
            headers.append(allow)
        self._missed[status // 100][0] += 1
        await send_answer(send, status, headers, content)


def new_request_id() -> str:
    """Return an id that no other request of this or another server process has: 32 hexadecimal digits."""
    return f"{_id_prefix}{next(_id_numbers):016x}"


async def send_answer(
    send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], content: bytes
) -> None:
    """Send a whole answer; one without content has neither body nor length."""
    if status in NO_CONTENT:
        content = b""
        await send({"type": "http.response.start", "status": status, "headers": headers})
    else:
        length = (b"content-length", str(len(content)).encode("ascii"))
        await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": content})


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


def _raw(raw: Raw, status: int, headers: Headers) -> tuple[int, bytes]:
    _take_headers(headers, raw.media_type, raw.headers)
    return raw.status or status, raw.content


def _take_headers(headers: Headers, media_type: str, more: Mapping[str, str]) -> None:
    headers[0] = (b"content-type", media_type.encode("ascii"))
    for name, value in more.items():
        headers.append((name.lower().encode("ascii"), value.encode("latin-1")))


def _refusal(dialect: Dialect, error: TracksideError, request_id: str) -> tuple[int, bytes]:
    status, body = dialect.error(error, request_id)
    return status, _encode(body)
