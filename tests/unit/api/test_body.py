"""How much of a body is taken in."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from trackside.api.body import BodyReader, ClientGone, Receive
from trackside.domain.errors import TooLarge, Unavailable


def sends(*chunks: bytes, then_leaves: bool = False) -> Receive:
    """Return a client that sends these chunks."""
    messages: list[MutableMapping[str, Any]] = [
        {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
    ]
    if then_leaves:
        messages.append({"type": "http.disconnect"})
    else:
        messages[-1]["more_body"] = False
    left = iter(messages)

    async def receive() -> MutableMapping[str, Any]:
        return next(left)

    return receive


def read(reader: BodyReader, receive: Receive, content_length: str | None = None) -> bytes:
    return asyncio.run(reader.read(content_length, receive))


def test_a_body_arrives_whole() -> None:
    assert read(BodyReader(6), sends(b"ab", b"", b"cdef"), "6") == b"abcdef"


def test_a_body_over_the_limit_is_refused_before_or_while_it_arrives() -> None:
    with pytest.raises(TooLarge, match="5 bytes"):
        read(BodyReader(5), sends(b""), "6")
    with pytest.raises(TooLarge, match="5 bytes"):
        read(BodyReader(5), sends(b"abc", b"def"))


def test_a_client_that_leaves_is_noticed() -> None:
    with pytest.raises(ClientGone):
        read(BodyReader(), sends(b"abc", then_leaves=True))


def test_all_that_is_arriving_has_a_limit_too() -> None:
    reader = BodyReader(10, unfinished_bytes_max=5)

    async def both() -> None:
        waiting = asyncio.Event()
        first = sends(b"abcd", b"e")

        async def slowly() -> MutableMapping[str, Any]:
            message = await first()
            if not message["more_body"]:
                await waiting.wait()
            return message

        slow = asyncio.create_task(reader.read(None, slowly))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await reader.read(None, sends(b"xy", b"z"))
        waiting.set()
        assert await slow == b"abcde"
        assert await reader.read(None, sends(b"vwxy", b"z")) == b"vwxyz"

    asyncio.run(both())
