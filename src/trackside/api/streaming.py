"""Knows how an answer is sent while it is made, and when nobody reads it any more; not what is in it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from trackside.api.body import Receive

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger("trackside.api")


async def send_stream(
    send: Send,
    receive: Receive,
    *,
    status: int,
    headers: Iterable[tuple[bytes, bytes]],
    content: AsyncIterator[bytes],
    what: str,
    with_body: bool = True,
) -> None:
    """Send piece by piece, as fast as the client reads.

    An answer that fails under way is left without its end: the client sees that it is not whole.
    """
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        if with_body:
            async for piece in content:
                if gone.done():
                    return
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except Exception:
        _log.exception("an answer broke off: %s", what)
    finally:
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        close = getattr(content, "aclose", None)
        if close is not None:
            await close()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
