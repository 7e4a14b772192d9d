"""Answers that are sent while they are made: whole, cut off, or for nobody."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any, cast

import pytest

from trackside.api.dispatch import Dispatcher
from trackside.api.native.access import error, unexpected
from trackside.api.operation import Call, Dialect, Operation, Streamed
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import ProjectId
from trackside.service import Services

ANA = Caller(user="ana", project_id=ProjectId("p"), role=UserRole.USER)


class Pieces:
    """An answer of several pieces, which may break or wait, and knows whether it was let go."""

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


def call(
    pieces: Pieces, *, method: str = "GET", gone_after: int | None = None
) -> list[MutableMapping[str, Any]]:
    """Ask for the answer and return what was sent; the client may go away after some messages."""

    async def handle(call: Call) -> Streamed:
        return Streamed(content=pieces.content(), media_type="application/zip", headers={"X-Name": "a"})

    operation = Operation(
        name="Get", method="GET", path="/x", action="toy:get", handler=handle, summary="Get."
    )
    dialect = Dialect(
        name="toy",
        title="A toy",
        operations=[operation],
        authenticate=lambda signed: ANA,
        error=error,
        unexpected=unexpected,
    )
    sent: list[MutableMapping[str, Any]] = []
    gone = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)
        if gone_after is not None and len(sent) > gone_after:
            gone.set()

    app = Dispatcher([dialect], services=cast("Services", None), allowed=lambda *_: True)
    scope = {"method": method, "raw_path": b"/x", "query_string": b"", "headers": []}
    asyncio.run(app(scope, receive, send))
    return sent


def body(sent: list[MutableMapping[str, Any]]) -> bytes:
    return b"".join(message["body"] for message in sent[1:])


def test_an_answer_is_sent_piece_by_piece() -> None:
    pieces = Pieces()
    sent = call(pieces)
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"content-type"]) == (200, b"application/zip")
    assert dict(sent[0]["headers"])[b"x-name"] == b"a"
    assert b"content-length" not in dict(sent[0]["headers"])
    assert [message.get("more_body", False) for message in sent[1:]] == [True, True, True, False]
    assert body(sent) == b"piece 0 piece 1 piece 2 "
    assert pieces.closed


def test_an_answer_that_breaks_has_no_end(caplog: pytest.LogCaptureFixture) -> None:
    sent = call(Pieces(breaks=True))
    assert all(message.get("more_body") for message in sent[1:]), "the server then cuts the connection"
    assert "an answer broke off: Get, request" in caplog.text


def test_nothing_more_is_made_for_a_client_that_left() -> None:
    pieces = Pieces(pieces=1000)
    call(pieces, gone_after=2)
    assert pieces.made < 10
    assert pieces.closed


def test_head_makes_nothing() -> None:
    pieces = Pieces()
    sent = call(pieces, method="HEAD")
    assert (sent[0]["status"], body(sent), pieces.made) == (200, b"", 0)
