"""Hands what comes over HTTP to a store in a thread of its own; knows nothing of how it is kept.

What comes while the store is busy goes to it together: reports of a hundred nodes share a few syncs.
"""

import asyncio
import threading
from queue import Empty, SimpleQueue

from trackside.domain.readings import Readings
from trackside.ports import MetricStore

_Waiting = tuple[list[Readings], "asyncio.Future[None]"]


class Appender:
    """The way of an event loop into a store."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.appended = 0  # samples

    async def append(self, readings: list[Readings]) -> None:
        """Keep samples that come as rows; they are durable on return."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="append", daemon=True)
            self._thread.start()
        future = asyncio.get_running_loop().create_future()
        self._queue.put((readings, future))
        await future
        self.appended += sum(one.count for one in readings)

    def close(self) -> None:
        """End the thread once everything that waits is kept."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            together = [first, *self._waiting()]
            error: BaseException | None = None
            try:
                self._store.append_readings([one for readings, _ in together for one in readings])
            except BaseException as raised:  # whoever waits gets it
                error = raised
            for _, future in together:
                future.get_loop().call_soon_threadsafe(_settle, future, error)

    def _waiting(self) -> list[_Waiting]:
        found: list[_Waiting] = []
        try:
            while (one := self._queue.get_nowait()) is not None:
                found.append(one)
            self._queue.put(None)  # it was told to end: after these
        except Empty:
            pass
        return found


def _settle(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():  # whoever waited went away
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
