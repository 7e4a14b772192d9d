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
from trackside.api.tally import Tallies
from trackside.service import Services

Plain = Callable[[], Awaitable[Raw]]
Page = Callable[[Mapping[str, str]], Awaitable[Raw]]  # gets the request's headers, their names in lower case

_log = logging.getLogger("trackside.api")
_PLAIN_METHODS = ("GET", "HEAD")
_JSON = (b"content-type", b"application/json")


class App:
    """The whole ASGI application: plain routes by their path, everything else to the dialects."""

    def __init__(
        self, dispatch: Dispatcher, plain: Mapping[str, Plain], pages: Mapping[str, Page] | None = None
    ) -> None:
        self._dispatch = dispatch
        self._pages = {path: _headless(answer) for path, answer in plain.items()} | dict(pages or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        page = self._pages.get(scope["path"])
        if page is None:
            await self._dispatch(scope, receive, send)
        elif scope["method"] in _PLAIN_METHODS:
            await _send_raw(send, await _answer(page, scope))
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
    pages: Mapping[str, Page] | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
    tallies: Tallies | None = None,
) -> App:
    """Build the application. `ready` returns None, or why not; `extra` adds plain GET routes by path.

    Plain routes, health and readiness among them, are open to everyone; `pages` are plain routes that see the
    request's headers and answer for themselves. `tallies` is where requests are counted.
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
    dispatcher = Dispatcher(
        dialects, services=services, allowed=allowed, body_bytes_max=body_bytes_max, tallies=tallies
    )
    return App(dispatcher, plain, pages)


def _headless(plain: Plain) -> Page:
    async def page(headers: Mapping[str, str]) -> Raw:
        del headers
        return await plain()

    return page


async def _answer(page: Page, scope: Scope) -> Raw:
    try:
        return await page(
            {name.decode("latin-1"): value.decode("latin-1").strip() for name, value in scope["headers"]}
        )
    except Exception:
        request_id = new_request_id()
        _log.exception("bug behind %s, request %s", scope["path"], request_id)
        problem = {"code": "500", "message": "Something went wrong.", "requestId": request_id}
        return Raw(content=msgspec.json.encode(problem), status=500)


async def _send_raw(send: Send, raw: Raw) -> None:
    headers = [(b"content-type", raw.media_type.encode("ascii"))]
    headers += [
        (name.lower().encode("ascii"), value.encode("latin-1")) for name, value in raw.headers.items()
    ]
    await send_answer(send, raw.status or 200, headers, raw.content)
