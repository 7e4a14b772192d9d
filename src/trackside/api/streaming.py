"""Knows how an answer is sent while it is made, and when nobody reads it any more; not what is in it."""

import logging
from collections.abc import AsyncIterator
from typing import Protocol

_log = logging.getLogger("trackside.api")


class Pipe(Protocol):
    """The way to a client."""

    @property
    def lost(self) -> bool:
        """Say whether the client went away."""
        ...

    def write(self, data: bytes) -> None:
        """Send."""
        ...

    async def drained(self) -> None:
        """Return once the client has read most of what was sent, or went away."""
        ...


async def send_pieces(pipe: Pipe, content: AsyncIterator[bytes], *, chunked: bool, what: str) -> bool:
    """Send piece by piece, as fast as the client reads; return whether it was sent to its end.

    An answer that fails under way is left without its end: the client sees that it is not whole.
    """
    try:
        async for piece in content:
            if pipe.lost:
                return False
            if piece:
                pipe.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await pipe.drained()
        if chunked:
            pipe.write(b"0\r\n\r\n")
    except Exception:
        _log.exception("an answer broke off: %s", what)
        return False
    return True


async def let_go(content: AsyncIterator[bytes]) -> None:
    """Tell who makes an answer that no more of it is wanted."""
    close = getattr(content, "aclose", None)
    if close is not None:
        await close()
