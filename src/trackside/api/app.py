"""Knows what stands beside the dialects on the port: health, readiness, the OpenAPI document and extras."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from trackside.api.body import BODY_BYTES_MAX, Receive
from trackside.api.dispatch import (
    Allowed,
    Dispatcher,
    Scope,
    Send,
    new_request_id,
    send_answer,
)
from trackside.api.openapi import document
from trackside.api.operation import Dialect, Raw
from trackside.service import Services

Plain = Callable[[], Awaitable[Raw]]

_log = logging.getLogger("trackside.api")
_PLAIN_METHODS = ("GET", "HEAD")
_JSON = (b"content-type", b"application/json")


class App:
    """The whole ASGI application: plain routes by their path, everything else to the dialects."""

    def __init__(self, dispatch: Dispatcher, plain: Mapping[str, Plain]) -> None:
        self._dispatch = dispatch
        self._plain = dict(plain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        plain = self._plain.get(scope["path"])
        if plain is None:
            await self._dispatch(scope, receive, send)
        elif scope["method"] in _PLAIN_METHODS:
            await _send_raw(send, await _answer(plain, scope["path"]))
        else:
            content = msgspec.json.encode({"code": "405", "message": "Allowed are GET and HEAD."})
            await send_answer(send, 405, [_JSON, (b"allow", b"GET, HEAD")], content)


def build_app(
    dialects: Sequence[Dialect],
    *,
    services: Services,
    allowed: Allowed,
    ready: Callable[[], Awaitable[str | None]],
    extra: Mapping[str, Plain] | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
) -> App:
    """Build the application. `ready` returns None, or why not; `extra` adds plain GET routes by path.

    Plain routes, health and readiness among them, are open to everyone.
    """
    openapi = Raw(content=msgspec.json.encode(document(dialects)))

    async def health() -> Raw:
        return Raw(content=b'{"status":"ok"}')

    async def readiness() -> Raw:
        reason = await ready()
        if reason is None:
            return Raw(content=b'{"status":"ok"}')
        return Raw(content=msgspec.json.encode({"status": "not ready", "reason": reason}), status=503)

    async def describe() -> Raw:
        return openapi

    plain = {"/healthz": health, "/readyz": readiness, "/openapi.json": describe, **(extra or {})}
    return App(Dispatcher(dialects, services=services, allowed=allowed, body_bytes_max=body_bytes_max), plain)


async def _answer(plain: Plain, path: str) -> Raw:
    try:
        return await plain()
    except Exception:
        request_id = new_request_id()
        _log.exception("bug behind %s, request %s", path, request_id)
        problem = {"code": "500", "message": "Something went wrong.", "requestId": request_id}
        return Raw(content=msgspec.json.encode(problem), status=500)


async def _send_raw(send: Send, raw: Raw) -> None:
    headers = [(b"content-type", raw.media_type.encode("ascii"))]
    headers += [
        (name.lower().encode("ascii"), value.encode("latin-1")) for name, value in raw.headers.items()
    ]
    await send_answer(send, raw.status or 200, headers, raw.content)
