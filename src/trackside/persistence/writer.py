"""Knows how writes become durable: one thread, one connection, one commit for everything that waits.

An operation is a function of a `Work`. It may run more than once (after another process's change, or when
the connection broke before the commit), so it must be pure apart from that Work. It runs in this thread.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar, cast

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from trackside.domain.errors import Invalid, TracksideError, Unavailable
from trackside.domain.job import JobId
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

    def __init__(self, error: DBAPIError) -> None:
        super().__init__()
        self.error = error


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
        self.noticed: Callable[[], None] = _nothing  # called here once new notices are durable

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
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Finish what waits, then stop."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self.start()  # also what waited for a start that never came gets its answer
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
        last = False
        while not last:
            batch, last = self._take()
            self._settle(self._process(batch))

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

    def _connect_again(self) -> None:
        self.connect()
        log.info("the database is back")

    def _process(self, batch: Sequence[_Waiting]) -> list[_Outcome]:
        try:
            return self._commit(batch) if batch else self._recover()
        except Exception as error:  # this thread outlives every bug in one batch
            log.exception("a write failed")
            self._disconnect()
            return [_Outcome(waiting, error=error) for waiting in batch]

    def _recover(self) -> list[_Outcome]:
        """Try to reach the database again while nobody asks; that it is away was said when it was lost."""
        if self._connection is None and not self._closed:
            with suppress(Unavailable):
                self._connect_again()
        return []

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
            return [_Outcome(waiting, error=Unavailable(error.detail)) for waiting in batch]

    def _persist(self, batch: Sequence[_Waiting]) -> list[_Outcome]:
        """Try until the view of the stored state was fresh; one broken connection is replaced."""
        reconnected = False
        stale: list[JobId] = []
        for _ in range(STALE_RETRIES_MAX):
            if self._connection is None:
                self._connect_again()
            work = Work(self._begin, self._cache)
            try:
                self._refresh(stale)
                return self._attempt(work, batch)
            except StaleView:
                stale = list(work.jobs.keys())
            except CommitInDoubt as doubt:
                raise self._lose(doubt.error) from None
            except DBAPIError as error:
                if isinstance(error, BAD_VALUES):
                    raise
                unavailable = self._lose(error)
                if reconnected or not error.connection_invalidated:
                    raise unavailable from None
                reconnected = True
        raise Unavailable("another process keeps changing the same rows")

    def _attempt(self, work: Work, batch: Sequence[_Waiting]) -> list[_Outcome]:
        try:
            outcomes = [_run(work, waiting) for waiting in batch]
            changed = work.changed
            if changed:
                flush(self._begin(), work)
        except BaseException:
            with suppress(DBAPIError):  # what went wrong first is what counts
                self._rollback()
            raise
        if not changed:
            self._rollback()
            return outcomes
        self._commit_transaction()
        self._cache.publish((job_id, new) for job_id, _, new in work.jobs.changes())
        if work.new_notices:
            self.noticed()
        return outcomes

    def _begin(self) -> Connection:
        assert self._connection is not None
        if not self._connection.in_transaction():
            self._connection.begin()
        return self._connection

    def _rollback(self) -> None:
        transaction = self._connection.get_transaction() if self._connection is not None else None
        if transaction is not None:
            transaction.rollback()

    def _commit_transaction(self) -> None:
        try:
            self._begin().commit()
        except DBAPIError as error:
            raise CommitInDoubt(error) from None
        self.commits += 1

    def _refresh(self, job_ids: Sequence[JobId]) -> None:
        """Read jobs again that another process may have changed."""
        if job_ids:
            fresh = read_jobs(self._begin(), job_ids)
            self._cache.publish((job_id, fresh.get(job_id)) for job_id in job_ids)

    def _lose(self, error: DBAPIError) -> TracksideError:
        """Give up the connection; the next one begins with what is really stored."""
        unavailable = translate(error, self._url)
        log.warning("%s", unavailable)
        self._disconnect()
        return unavailable

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


def _nothing() -> None:
    """Stand for nobody who wants to hear of notices."""


def _settle_all(outcomes: Sequence[_Outcome]) -> None:
    for outcome in outcomes:
        outcome.settle()
