"""Knows what stands beside the dialects on the port: health, readiness, the OpenAPI document and extras."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from trackside.api.dispatch import Allowed, Dispatcher, new_request_id
from trackside.api.message import Answer, Headers, Request
from trackside.api.openapi import document
from trackside.api.operation import Dialect, Raw
from trackside.api.tally import Tallies
from trackside.domain.errors import TooLarge, TracksideError
from trackside.service import Services

Plain = Callable[[], Awaitable[Raw]]
Page = Callable[[Mapping[str, str]], Awaitable[Raw]]  # gets the request's headers, their names in lower case

_log = logging.getLogger("trackside.api")
_PLAIN_METHODS = ("GET", "HEAD")
_JSON = (b"content-type", b"application/json")


class App:
    """The whole application: plain routes by their path, everything else to the dialects."""

    def __init__(
        self, dispatch: Dispatcher, plain: Mapping[str, Plain], pages: Mapping[str, Page] | None = None
    ) -> None:
        self._dispatch = dispatch
        every = {path: _headless(answer) for path, answer in plain.items()} | dict(pages or {})
        self._pages = {path.encode("ascii"): answer for path, answer in every.items()}

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer one request."""
        page = self._page(request)
        if page is None:
            return self._dispatch(request)
        if request.method in _PLAIN_METHODS:
            return _answered(page, request)
        content = msgspec.json.encode({"code": "405", "message": "Allowed are GET and HEAD."})
        return Answer(405, [_JSON, (b"allow", b"GET, HEAD")], content)

    def refuse(self, request: Request, error: TracksideError) -> Answer:
        """Say no to a request whose body is not taken."""
        if self._page(request) is None:
            return self._dispatch.refuse(request, error)
        status = 413 if isinstance(error, TooLarge) else 503
        return Answer(status, [_JSON], msgspec.json.encode({"code": str(status), "message": error.detail}))

    def _page(self, request: Request) -> Page | None:
        return self._pages.get(request.raw_path)


def build_app(
    dialects: Sequence[Dialect],
    *,
    services: Services,
    allowed: Allowed,
    ready: Callable[[], Awaitable[str | None]],
    extra: Mapping[str, Plain] | None = None,
    pages: Mapping[str, Page] | None = None,
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
    dispatcher = Dispatcher(dialects, services=services, allowed=allowed, tallies=tallies)
    return App(dispatcher, plain, pages)


def _headless(plain: Plain) -> Page:
    async def page(headers: Mapping[str, str]) -> Raw:
        del headers
        return await plain()

    return page


async def _answered(page: Page, request: Request) -> Answer:
    try:
        raw = await page(request.headers)
    except Exception:
        request_id = new_request_id()
        _log.exception("bug behind %s, request %s", request.raw_path.decode("latin-1"), request_id)
        problem = {"code": "500", "message": "Something went wrong.", "requestId": request_id}
        raw = Raw(content=msgspec.json.encode(problem), status=500)
    headers: Headers = [(b"content-type", raw.media_type.encode("ascii"))]
    headers += [
        (name.lower().encode("ascii"), value.encode("latin-1")) for name, value in raw.headers.items()
    ]
    return Answer(raw.status or 200, headers, raw.content)
