"""Knows how reads run: each in a snapshot of its own, the slow ones beside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine

from trackside.persistence.engine import READERS_MAX, translated

T = TypeVar("T")


class Reader:
    """Run queries on connections that can change nothing."""

    def __init__(self, engine: Engine, url: URL) -> None:
        self._engine = engine
        self._url = url
        self._threads = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="trackside-reader")

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a short query here and now."""
        with translated(self._url), self._engine.connect() as connection, connection.begin():
            return query(connection)

    async def run(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.read, query)

    def close(self) -> None:
        """Wait for the queries that run, then close the connections."""
        self._threads.shutdown()
        self._engine.dispose()
