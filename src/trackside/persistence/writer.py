"""Knows how writes become durable: one thread, one connection, one commit for everything that waits.

An operation is a function of a `Work`. It may run more than once (after another process's change, or when
the connection broke before the commit), so it must be pure apart from that Work. It runs in this thread.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar, cast

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from trackside.domain.errors import Invalid, TracksideError, Unavailable
from trackside.persistence.cache import JobCache
from trackside.persistence.engine import BAD_VALUES, translate, translated
from trackside.persistence.flush import StaleView, flush
from trackside.persistence.reading import read_jobs, read_pending_jobs
from trackside.persistence.work import Work

T = TypeVar("T")
Operation = Callable[[Work], T]

BATCH_OPERATIONS_MAX = 1_000  # committed together
WAITING_OPERATIONS_MAX = 20_000  # more are refused
STALE_RETRIES_MAX = 5
RECONNECT_SECONDS = 0.25

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An operation and who waits for its result."""

    operation: Operation[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of an operation: a value or an error."""

    waiting: _Waiting
    value: Any = None
    error: Exception | None = None

    def settle(self) -> None:
        """Tell the one who waits, unless it went away."""
        future = self.waiting.future
        if future.done():
            return
        if self.error is None:
            future.set_result(self.value)
        else:
            future.set_exception(self.error)


class CommitInDoubt(Exception):
    """The connection broke during the commit: nobody knows whether it happened."""


class Writer:
    """Run operations in groups; each sees the state the one before left."""

    def __init__(self, engine: Engine, url: URL, cache: JobCache) -> None:
        self._engine = engine
        self._url = url
        self._cache = cache
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread = Thread(target=self._main, name="trackside-writer", daemon=True)
        self._connection: Connection | None = None
        self._closed = False
        self.commits = 0  # transactions that wrote something

    @property
    def connected(self) -> bool:
        """Say whether the database was there when last used."""
        return self._connection is not None

    def connect(self) -> None:
        """Open the connection and fill the cache with what is stored."""
        with translated(self._url):
            connection = self._engine.connect()
            try:
                with connection.begin():
                    self._cache.reset(read_pending_jobs(connection))
            except BaseException:
                connection.invalidate()
                connection.close()
                raise
            self._connection = connection

    def start(self) -> None:
        """Begin to work on what waits."""
        if not self._thread.is_alive():
            self._thread.start()

    def close(self) -> None:
        """Finish what waits, then stop."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            if self._thread.is_alive():
                self._thread.join()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    async def run(self, operation: Operation[T]) -> T:
        """Run the operation and return its result once it is durable."""
        if self._closed:
            raise Unavailable("the store is closed")
        if self._queue.qsize() >= WAITING_OPERATIONS_MAX:
            raise Unavailable("too many writes are waiting for the database")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.put(_Waiting(operation, loop, future))
        return cast(T, await future)

    def _main(self) -> None:
        while True:
            batch, last = self._take()
            if batch:
                self._settle(self._process(batch))
            elif self._connection is None and not last:
                self._reconnect()
            if last:
                return

    def _take(self) -> tuple[list[_Waiting], bool]:
        """Return everything that waits, without waiting for more, and whether it is the last."""
        batch: list[_Waiting] = []
        try:
            item = self._queue.get(timeout=RECONNECT_SECONDS if self._connection is None else None)
            while item is not None:
                batch.append(item)
                if len(batch) == BATCH_OPERATIONS_MAX:
                    return batch, False
                item = self._queue.get_nowait()
        except Empty:
            return batch, False
        return batch, True

    def _reconnect(self) -> None:
        try:
            self.connect()
            log.info("the database is back")
        except TracksideError:
            log.debug("the database is still away", exc_info=True)

    def _process(self, batch: Sequence[_Waiting]) -> list[_Outcome]:
        try:
            return self._commit(batch)
        except Exception as error:  # this thread outlives every bug in one batch
            log.exception("a write failed")
            self._disconnect()
            return [_Outcome(waiting, error=error) for waiting in batch]

    def _commit(self, batch: Sequence[_Waiting]) -> list[_Outcome]:
        """Commit the operations together; when the database refuses values, find whose they are."""
        try:
            return self._persist(batch)
        except (Invalid, *BAD_VALUES) as error:
            if len(batch) == 1:
                refusal = error if isinstance(error, Invalid) else translate(error, self._url)
                return [_Outcome(batch[0], error=refusal)]
            middle = len(batch) // 2
            return self._commit(batch[:middle]) + self._commit(batch[middle:])
        except Unavailable as error:
            log.warning("%s", error)
            return [_Outcome(waiting, error=error) for waiting in batch]

    def _persist(self, batch: Sequence[_Waiting]) -> list[_Outcome]:
        """Try until the view of the stored state was fresh; one broken connection is replaced."""
        reconnected = False
        for _ in range(STALE_RETRIES_MAX):
            if self._connection is None:
                self.connect()
            work = Work(self._begin, self._cache)
            try:
                return self._attempt(work, batch)
            except StaleView:
                self._refresh(work)
            except CommitInDoubt as doubt:
                self._disconnect()
                raise translate(cast(Exception, doubt.__cause__), self._url) from None
            except DBAPIError as error:
                if isinstance(error, BAD_VALUES):
                    raise
                self._disconnect()
                if reconnected or not error.connection_invalidated:
                    raise translate(error, self._url) from None
                reconnected = True
        raise Unavailable("another process keeps changing the same rows")

    def _attempt(self, work: Work, batch: Sequence[_Waiting]) -> list[_Outcome]:
        try:
            outcomes = [_run(work, waiting) for waiting in batch]
            if work.changed:
                flush(self._begin(), work)
                self._end(commit=True)
                self._cache.publish((job_id, new) for job_id, _, new in work.jobs.changes())
        finally:
            self._end(commit=False)
        return outcomes

    def _begin(self) -> Connection:
        assert self._connection is not None
        if not self._connection.in_transaction():
            self._connection.begin()
        return self._connection

    def _end(self, *, commit: bool) -> None:
        connection = self._connection
        transaction = connection.get_transaction() if connection is not None else None
        if transaction is None:
            return
        if not commit:
            transaction.rollback()
            return
        try:
            transaction.commit()
        except DBAPIError as error:
            raise CommitInDoubt from error
        self.commits += 1

    def _refresh(self, work: Work) -> None:
        """Read again the jobs that a transaction looked at."""
        ids = list(work.jobs.keys())
        fresh = read_jobs(self._begin(), ids)
        self._end(commit=False)
        self._cache.publish((job_id, fresh.get(job_id)) for job_id in ids)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _settle(self, outcomes: Sequence[_Outcome]) -> None:
        """Wake each event loop once for all its results."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = defaultdict(list)
        for outcome in outcomes:
            by_loop[outcome.waiting.loop].append(outcome)
        for loop, settled in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle_all, settled)
            except RuntimeError:  # the loop is closed: nobody waits
                log.debug("results came after the event loop was closed")


def _run(work: Work, waiting: _Waiting) -> _Outcome:
    """Run one operation; what it raises is its own, what the database raises is everybody's."""
    try:
        with work.savepoint():
            return _Outcome(waiting, value=waiting.operation(work))
    except DBAPIError:
        raise
    except Exception as error:
        return _Outcome(waiting, error=error)


def _settle_all(outcomes: Sequence[_Outcome]) -> None:
    for outcome in outcomes:
        outcome.settle()
