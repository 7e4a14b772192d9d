"""Knows how the application is put on a port, and how it leaves it; knows nothing of what it answers."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

from trackside.api.body import BODY_BYTES_MAX, BodyLimits
from trackside.api.connection import Connection, Limits, Port
from trackside.api.message import Application

GRACE_SECONDS = 3.0  # for answers under way when the server is told to stop
CANCEL_SECONDS = 2.0  # for the rest to say that the server is stopping
BACKLOG = 1024

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class CannotListen(OSError):
    """The address or port cannot be had; the text says which and why."""


async def serve(
    app: Application,
    *,
    host: str,
    port: int,
    started: Callable[[int], None],
    stopping: Callable[[], None] = lambda: None,
    limits: Limits | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
    grace_seconds: float = GRACE_SECONDS,
) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; raise CannotListen if the port cannot be had.

    `started` gets the port once connections are taken. `stopping` is called when the end is asked for:
    there long polls should be let go. What is not answered after the grace is answered "unavailable".
    """
    shared = Port(app, BodyLimits(body_bytes_max), limits or Limits())
    stop = _Stop(stopping)
    with _listen(host, port) as listener, _stop_signals(stop.ask):
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(shared), sock=listener, backlog=BACKLOG)
        try:
            started(listener.getsockname()[1])
            await stop.asked.wait()
        except asyncio.CancelledError:
            stop.ask()
            raise
        finally:
            server.close()
            await _leave(shared, stop, grace_seconds)


class _Stop:
    """The wish that the server ends; the second time, at once."""

    def __init__(self, on_stopping: Callable[[], None]) -> None:
        self._on_stopping = on_stopping
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()

    def ask(self) -> None:
        """Ask for the end."""
        if self.asked.is_set():
            self.at_once.set()
        else:
            self.asked.set()
            self._on_stopping()


async def _leave(port: Port, stop: _Stop, grace_seconds: float) -> None:
    """Let what is under way end, then cancel it, then close every connection."""
    port.stopping = True
    for connection in tuple(port.connections):
        connection.stop()
    if port.connections:
        ends = [asyncio.ensure_future(event.wait()) for event in (port.empty, stop.at_once)]
        await asyncio.wait(ends, timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    for task in port.tasks:
        task.cancel()
    if port.tasks:
        await asyncio.wait(tuple(port.tasks), timeout=CANCEL_SECONDS)
    for connection in tuple(port.connections):
        connection.cut()


@contextlib.contextmanager
def _stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return _bound(host, port)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from error


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
