"""Hands what comes over HTTP to a store; knows nothing of how it is kept.

A disk may let one wait, so that a thread appends, and what comes meanwhile goes to the store together:
reports of a hundred nodes share a few syncs. But handing over to a thread and back costs more than a small
append itself. So once the disk was quick many times in a row, small appends are done in place, until one is
not.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from trackside.domain.readings import Readings
from trackside.ports import MetricStore, SaysWhenReady

QUICK_SECONDS = 0.005  # what the event loop may be held up for
TRUSTED_AFTER = 50  # quick appends in a row
SMALL_SAMPLES_MAX = 20_000

_Waiting = tuple[list[Readings], "asyncio.Future[None]"]


class Appender:
    """The way of an event loop into a store."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        self._tells = store if isinstance(store, SaysWhenReady) else None
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waiting = 0  # appends that the thread has not done yet
        self._quick = 0  # small appends in a row that were
        self.appended = 0  # samples

    async def append(self, readings: list[Readings]) -> None:
        """Keep samples that come as rows; they are durable on return."""
        count = _count(readings)
        if self._may_be_in_place(readings, count):
            self._append(readings, count)
        else:
            await self._hand_over(readings)
        self.appended += count

    def close(self) -> None:
        """End the thread once everything that waits is kept."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _may_be_in_place(self, readings: Sequence[Readings], count: int) -> bool:
        return (
            self._quick >= TRUSTED_AFTER
            and not self._waiting
            and count <= SMALL_SAMPLES_MAX
            and self._tells is not None
            and self._tells.ready(readings)
        )

    def _append(self, readings: Sequence[Readings], count: int) -> None:
        began = time.perf_counter()
        self._store.append_readings(readings)
        if count <= SMALL_SAMPLES_MAX:
            self._quick = self._quick + 1 if time.perf_counter() - began <= QUICK_SECONDS else 0

    async def _hand_over(self, readings: list[Readings]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="append", daemon=True)
            self._thread.start()
        future = asyncio.get_running_loop().create_future()
        self._waiting += 1
        self._queue.put((readings, future))
        try:
            await future
        finally:
            self._waiting -= 1

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            together = [first, *self._others()]
            error: BaseException | None = None
            try:
                every = [one for readings, _ in together for one in readings]
                self._append(every, _count(every))
            except BaseException as raised:  # whoever waits gets it
                error = raised
            for _, future in together:
                future.get_loop().call_soon_threadsafe(_settle, future, error)

    def _others(self) -> list[_Waiting]:
        """Return what came since."""
        found: list[_Waiting] = []
        try:
            while (one := self._queue.get_nowait()) is not None:
                found.append(one)
            self._queue.put(None)  # it was told to end: after these
        except Empty:
            pass
        return found


def _count(readings: Sequence[Readings]) -> int:
    return sum(one.count for one in readings)


def _settle(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():  # whoever waited went away
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
