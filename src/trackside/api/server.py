"""Knows how the application is put on a port, and how it leaves it; knows nothing of what it answers."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from trackside.api.guard import Limits, guarded

GRACE_SECONDS = 3  # for answers under way when the server is told to stop
CANCEL_SECONDS = 2.0  # for the rest to say that the server is stopping
KEEP_ALIVE_SECONDS = 75  # longer than clients' pools keep a connection, so that they close it first
BACKLOG = 1024

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def serve(
    app: Callable[..., Any],
    *,
    host: str,
    port: int,
    started: Callable[[int], None],
    stopping: Callable[[], None] = lambda: None,
    limits: Limits | None = None,
    grace_seconds: int = GRACE_SECONDS,
) -> None:
    """Serve until SIGTERM, SIGINT or cancellation; raise OSError if the port cannot be had.

    `started` gets the port once connections are taken. `stopping` is called when the end is asked for:
    there long polls should be let go. What is not answered after the grace is answered "unavailable".
    """
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        http=guarded(limits or Limits()),
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace_seconds,
        backlog=BACKLOG,
    )
    server = _Server(config, on_started=lambda: started(listener.getsockname()[1]), on_stopping=stopping)
    with listener, _stop_signals(server.stop):
        try:
            await server.serve(sockets=[listener])
        except asyncio.CancelledError:
            server.stop()
            if server.started:
                await server.shutdown(sockets=[listener])
            raise


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, *, on_started: Callable[[], None], on_stopping: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_stopping = on_stopping

    def stop(self) -> None:
        """Ask for the end; the second time, at once."""
        self.force_exit = self.should_exit
        if not self.should_exit:
            self.should_exit = True
            self._on_stopping()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self.on_tick(0)  # sets the Date header before the first answer
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # uvicorn cancels what outlives the grace but does not wait for it.
        if self.server_state.tasks:
            for task in self.server_state.tasks:
                task.cancel()
            await asyncio.wait(tuple(self.server_state.tasks), timeout=CANCEL_SECONDS)
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: uvicorn would raise them again once it is done."""
        yield


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
