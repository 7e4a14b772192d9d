"""Answers that are sent while they are made: whole, cut off, or for nobody."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from trackside.api.streaming import let_go, send_pieces


class Pieces:
    """An answer of several pieces, which may break, and knows whether it was let go."""

    def __init__(self, *, breaks: bool = False, pieces: int = 3) -> None:
        self.made = 0
        self.closed = False
        self._breaks = breaks
        self._pieces = pieces

    async def content(self) -> AsyncIterator[bytes]:
        try:
            for number in range(self._pieces):
                self.made += 1
                yield b"piece %d " % number
                await asyncio.sleep(0)
            if self._breaks:
                raise RuntimeError("the disk is gone")
        finally:
            self.closed = True


class Client:
    """Takes what is sent, and may go away after some of it."""

    def __init__(self, *, gone_after: int | None = None) -> None:
        self.sent: list[bytes] = []
        self._gone_after = gone_after

    @property
    def lost(self) -> bool:
        return self._gone_after is not None and len(self.sent) > self._gone_after

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    async def drained(self) -> None:
        await asyncio.sleep(0)


def send(client: Client, pieces: Pieces, *, chunked: bool = True) -> bool:
    async def whole() -> bool:
        content = pieces.content()
        try:
            return await send_pieces(client, content, chunked=chunked, what="Get, request 1")
        finally:
            await let_go(content)

    return asyncio.run(whole())


def test_an_answer_is_sent_piece_by_piece() -> None:
    client, pieces = Client(), Pieces()
    assert send(client, pieces)
    assert client.sent == [b"8\r\npiece %d \r\n" % number for number in range(3)] + [b"0\r\n\r\n"]
    assert pieces.closed


def test_without_chunks_the_end_is_the_end_of_the_connection() -> None:
    client = Client()
    assert send(client, Pieces(), chunked=False)
    assert client.sent == [b"piece 0 ", b"piece 1 ", b"piece 2 "]


def test_an_answer_that_breaks_has_no_end(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    assert not send(client, Pieces(breaks=True))
    assert b"0\r\n\r\n" not in client.sent, "the server then cuts the connection"
    assert "an answer broke off: Get, request 1" in caplog.text


def test_nothing_more_is_made_for_a_client_that_left() -> None:
    pieces = Pieces(pieces=1000)
    assert not send(Client(gone_after=2), pieces)
    assert pieces.made < 10
    assert pieces.closed
