"""Knows by when something must have happened on a connection; knows not what."""

import asyncio
from collections.abc import Callable
from enum import Enum


class Wait(Enum):
    """What a connection waits for."""

    HEAD = "headers"
    BODY = "body"
    NEXT_REQUEST = "next request"


class Deadline:
    """One deadline that is moved with every request and hardly ever reached.

    Moving it later costs no timer: the one that runs finds out that it is early.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, reached: Callable[[], None]) -> None:
        self._loop = loop
        self._reached = reached
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._due = 0.0
        self.wait: Wait | None = None  # None: there is no deadline

    def set(self, wait: Wait, seconds: float) -> None:
        """Wait for something from now on."""
        self.wait = wait
        self._due = self._loop.time() + seconds
        if self._timer is None or self._due < self._timer_at:
            self._start()

    def clear(self) -> None:
        """Wait for nothing."""
        self.wait = None

    def close(self) -> None:
        """Never tell anybody again."""
        self.wait = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._due
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self.wait is None:
            return
        if self._loop.time() < self._due:
            self._start()
        else:
            self._reached()
