"""Knows how to wait for many things in one thread: descriptors, times, calls from other threads."""

import heapq
import logging
import os
import select
import time
from collections import deque
from collections.abc import Callable
from itertools import count

Callback = Callable[[], None]

_log = logging.getLogger(__name__)


class Loop:
    """Run callbacks one at a time; a failing one is logged and the loop goes on."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Callback] = {}
        self._calls: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = count()
        self._ending = False
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake_fd, select.EPOLLIN)

    def call(self, callback: Callback) -> None:
        """Run a callback soon; may be called from any thread."""
        self._calls.append(callback)
        os.eventfd_write(self._wake_fd, 1)

    def call_later(self, seconds: float, callback: Callback) -> None:
        """Run a callback when the time has passed."""
        heapq.heappush(self._timers, (_now() + seconds, next(self._order), callback))

    def watch(self, fd: int, callback: Callback) -> None:
        """Run a callback whenever the descriptor can be read."""
        self._watched[fd] = callback
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor; call this before closing it."""
        del self._watched[fd]
        self._epoll.unregister(fd)

    def stop(self) -> None:
        """End `run` after the callback that runs now; may be called from any thread or signal handler."""
        self._ending = True
        os.eventfd_write(self._wake_fd, 1)

    def run(self) -> None:
        """Wait and run callbacks until stopped."""
        while not self._ending:
            left = None if not self._timers else max(0.0, self._timers[0][0] - _now())
            for fd, _ in self._epoll.poll(left):
                if fd == self._wake_fd:
                    os.eventfd_read(self._wake_fd)
                elif fd in self._watched:  # a callback before may have dropped it
                    self._safely(self._watched[fd])
            for _ in range(len(self._calls)):
                self._safely(self._calls.popleft())
            while self._timers and self._timers[0][0] <= _now():
                self._safely(heapq.heappop(self._timers)[2])

    def close(self) -> None:
        """Give the loop's own descriptors back."""
        self._epoll.close()
        os.close(self._wake_fd)

    def _safely(self, callback: Callback) -> None:
        if self._ending:
            return
        try:
            callback()
        except Exception:
            _log.exception("a step of the agent failed; the others go on")


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
