"""Knows HTTP/1.1 on one connection, and what it may not do: be slow, be many, be huge, be ambiguous.

An answer that needs no waiting is sent before the next event is looked at: no task is made for it, which
is worth more time than most answers take. Knows nothing of what is answered.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import cast

import msgspec

from trackside.api.body import BodyLimits
from trackside.api.deadline import Deadline, Wait
from trackside.api.http_text import head_of
from trackside.api.message import Answer, Application, Request
from trackside.api.request_reader import BadRequest, RequestReader
from trackside.api.streaming import let_go, send_pieces
from trackside.domain.errors import TracksideError

NO_CONTENT = (204, 304)
LINGER_SECONDS = 2.0
JOINED_BYTES_MAX = 64 * 1024  # a larger answer is not copied behind its head
_JSON = (b"content-type", b"application/json")
_STOPPING = "The server is stopping; try again in a moment."


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What connections are held to."""

    connections_max: int = 800  # below the usual limit of 1,024 open files
    head_bytes_max: int = 64 * 1024  # request line and headers
    head_seconds: float = 20.0  # from the connection, or the request's first byte, to its last header
    body_seconds: float = 60.0  # for the whole body
    idle_seconds: float = 75.0  # longer than clients' pools keep a connection, so that they close it first


@dataclass(slots=True, eq=False)
class Port:
    """What all connections of a port share."""

    app: Application
    bodies: BodyLimits
    limits: Limits
    connections: "set[Connection]" = field(default_factory=set)
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set)
    stopping: bool = False
    empty: asyncio.Event = field(default_factory=asyncio.Event)  # there is no connection left


class _Waiting(msgspec.Struct):
    """A request whose turn has not come; one whose body is not taken has its answer already."""

    request: Request
    keep_alive: bool
    answer: Answer | None = None


class Connection(asyncio.Protocol):
    """One connection: has its requests answered in their order, and keeps to the limits."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._limits = port.limits
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(self, port.bodies)
        self._deadline = Deadline(self._loop, self._too_slow)
        self._transport: asyncio.Transport
        self._queue: deque[_Waiting] = deque()
        self._busy = False  # an answer is under way
        self._full = False  # the client does not read what it was sent
        self._unread_bytes = sys.maxsize  # of it, when that was last looked at
        self._drained: asyncio.Future[None] | None = None  # somebody waits until it has
        self._lingering = False  # it was refused, and is only listened to
        self.lost = False

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock for the first request, or turn the connection away."""
        self._transport = cast("asyncio.Transport", transport)
        self._port.connections.add(self)
        self._port.empty.clear()
        if len(self._port.connections) > self._limits.connections_max:
            self._refuse(503, "Too many connections; try again in a moment.", linger=False)
            return
        self._deadline.set(Wait.HEAD, self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything; what is being answered is finished for nobody."""
        del exc  # whatever the reason
        self.lost = True
        self._deadline.close()
        self._queue.clear()
        self._reader.close()
        self.resume_writing()
        self._port.connections.discard(self)
        if not self._port.connections:
            self._port.empty.set()

    def data_received(self, data: bytes) -> None:
        """Read what came, and keep a deadline running exactly while a request is incomplete."""
        if self._lingering or self._transport.is_closing():
            return
        deadline, reader = self._deadline, self._reader
        if deadline.wait is Wait.NEXT_REQUEST:
            deadline.clear()
        try:
            reader.feed(data)
        except BadRequest as error:
            self._refuse(400, str(error))
        if self._lingering or self._transport.is_closing():
            return
        if reader.head_bytes > self._limits.head_bytes_max:
            self._refuse(431, "The request line and headers are too large.")
        elif reader.in_head:
            if deadline.wait is None:
                deadline.set(Wait.HEAD, self._limits.head_seconds)
        elif reader.in_body:
            if deadline.wait is not Wait.BODY:
                deadline.set(Wait.BODY, self._limits.body_seconds)
        elif deadline.wait is None and not self._busy:
            # Blank lines between requests: they do not keep a connection.
            deadline.set(Wait.HEAD, self._limits.head_seconds)

    def pause_writing(self) -> None:
        """Take no more requests of a client that does not read."""
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._full = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._go_on()

    # The reader's side

    def body_is_awaited(self) -> None:
        """Ask for a body that waits to be asked for, unless words would be taken for another's answer."""
        if not self._busy:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def take(self, request: Request, *, keep_alive: bool) -> None:
        """Have a request answered, now or when those before it are."""
        self._deadline.clear()
        self._enqueue(_Waiting(request, keep_alive))

    def refuse_body(self, request: Request, error: TracksideError, *, keep_alive: bool) -> None:
        """Answer a request whose body is not taken."""
        self._enqueue(_Waiting(request, keep_alive, self._port.app.refuse(request, error)))

    def passed_over(self) -> None:
        """Wait for the next request after one whose body was not taken."""
        self._deadline.clear()
        if not self._busy and not self._transport.is_closing():
            self._deadline.set(Wait.NEXT_REQUEST, self._limits.idle_seconds)

    # Answering

    def _enqueue(self, waiting: _Waiting) -> None:
        if self._busy or self._full:
            self._queue.append(waiting)
            self._transport.pause_reading()
        else:
            self._answer(waiting)

    def _go_on(self) -> None:
        """Answer what waits, and read again once nothing does."""
        while self._queue and not (self._busy or self._full or self._transport.is_closing()):
            self._answer(self._queue.popleft())
        if not (self._queue or self._full or self._transport.is_closing()):
            self._transport.resume_reading()

    def _answer(self, waiting: _Waiting) -> None:
        answer = waiting.answer or self._port.app(waiting.request)
        if isinstance(answer, Answer) and isinstance(answer.content, bytes):
            self._write_answer(waiting, answer, answer.content)
            return
        self._busy = True
        task = self._loop.create_task(self._answer_later(waiting, answer))
        self._port.tasks.add(task)
        task.add_done_callback(self._port.tasks.discard)

    async def _answer_later(self, waiting: _Waiting, answer: Answer | Awaitable[Answer]) -> None:
        if not isinstance(answer, Answer):
            answer = await answer
        whole = True
        if not isinstance(answer.content, bytes):
            whole = await self._stream(waiting, answer)
        self._busy = False
        if self.lost:
            return
        if isinstance(answer.content, bytes):
            self._write_answer(waiting, answer, answer.content)
        elif whole:
            self._answered(waiting)
        else:
            self._transport.abort()
        self._go_on()

    def _write_answer(self, waiting: _Waiting, answer: Answer, content: bytes) -> None:
        """Send a whole answer; one without content has neither body nor length."""
        keep_alive = self._keep_alive_of(waiting)
        if answer.status in NO_CONTENT:
            content = b""
            head = head_of(answer, keep_alive=keep_alive)
        else:
            head = head_of(answer, b"content-length: %d\r\n" % len(content), keep_alive=keep_alive)
            if waiting.request.method == "HEAD":
                content = b""
        if len(content) <= JOINED_BYTES_MAX:
            self._transport.write(head + content)
        else:
            self._transport.write(head)
            self._transport.write(content)
        self._answered(waiting)

    async def _stream(self, waiting: _Waiting, answer: Answer) -> bool:
        assert not isinstance(answer.content, bytes), "what is whole is not streamed"
        chunked = self._keep_alive_of(waiting)  # else the end of the connection is the end of the answer
        more = [b"transfer-encoding: chunked\r\n"] if chunked else []
        self.write(head_of(answer, *more, keep_alive=chunked))
        try:
            if waiting.request.method == "HEAD":
                return True
            return await send_pieces(self, answer.content, chunked=chunked, what=answer.what)
        finally:
            await let_go(answer.content)

    def _answered(self, waiting: _Waiting) -> None:
        self._unread_bytes = sys.maxsize
        if not self._keep_alive_of(waiting):
            self._close()
        elif not (self._reader.in_head or self._reader.in_body):
            self._deadline.set(Wait.NEXT_REQUEST, self._limits.idle_seconds)

    def _close(self) -> None:
        """Close once the client has read what it was sent, as long as it reads."""
        self._transport.close()
        self._deadline.set(Wait.NEXT_REQUEST, self._limits.idle_seconds)

    def _keep_alive_of(self, waiting: _Waiting) -> bool:
        return waiting.keep_alive and not self._port.stopping

    # A pipe for answers that are sent while they are made

    def write(self, data: bytes) -> None:
        """Send, if anybody is there: a transport that is gone does not take it silently."""
        if not self.lost:
            self._transport.write(data)

    async def drained(self) -> None:
        """Return once the client has read most of what was sent, or went away."""
        if self._full and not self.lost:
            self._drained = self._loop.create_future()
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    await self._drained
            except TimeoutError:
                self._transport.abort()

    # Refusing

    def stop(self) -> None:
        """Close as soon as nothing is being answered."""
        if self._lingering or not (self._busy or self._reader.in_body):
            self._transport.close()

    def cut(self) -> None:
        """Close now; tell a client that is still sending why."""
        if self._reader.in_body and not self._lingering:
            self._refuse(503, _STOPPING, linger=False)
        else:
            self._transport.abort()

    def _too_slow(self) -> None:
        reader = self._reader
        if self._lingering:
            self._transport.abort()
            return
        if (reader.in_head or reader.in_body) and not self._transport.is_closing():
            late = "body" if reader.in_body else "headers"
            self._refuse(408, f"The request's {late} did not arrive in time.")
            return
        unread_bytes = self._transport.get_write_buffer_size()
        if unread_bytes >= self._unread_bytes:
            self._transport.abort()  # it reads nothing
            return
        self._unread_bytes = unread_bytes
        if unread_bytes:
            self._deadline.set(Wait.NEXT_REQUEST, self._limits.idle_seconds)
        else:
            self._transport.close()  # nothing was asked, so nothing is answered

    def _refuse(self, status: int, message: str, *, linger: bool = True) -> None:
        """Say no and close; only close where words would be taken for another request's answer.

        A client that is still sending is listened to for a moment: a connection that is closed while
        something comes takes back what was said.
        """
        self._deadline.clear()
        if self._transport.is_closing():
            return
        reader = self._reader
        if self._busy or self._queue or (reader.in_body and reader.unwanted):
            self._close()
            return
        content = msgspec.json.encode({"code": str(status), "message": message})
        length = b"content-length: %d\r\n" % len(content)
        self._transport.write(head_of(Answer(status, [_JSON]), length, keep_alive=False) + content)
        if linger:
            self._lingering = True
            self._transport.write_eof()
            self._deadline.set(Wait.NEXT_REQUEST, LINGER_SECONDS)
        else:
            self._close()
