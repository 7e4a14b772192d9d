"""Knows the PoolStore's operations."""

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Column, Connection, Table, select

from trackside.domain.errors import PoolInUse
from trackside.persistence import schema
from trackside.persistence.codec import check_text
from trackside.persistence.reader import Reader
from trackside.persistence.work import Work
from trackside.persistence.writer import Writer

JOBS_NAMED_MAX = 10  # in a refusal

Documents = list[tuple[str, dict[str, Any]]]


class SqlPoolStore:
    """Keep pools and decisions about nodes in a database."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Store or replace a pool."""
        doc = _encoded(name, value)
        await self._writer.run(lambda work: work.pools.put(name, doc))

    async def pools(self) -> Documents:
        """Return all pools, by name."""
        return await self._reader.run(lambda connection: _all(connection, schema.pools, schema.pools.c.name))

    async def delete(self, name: str) -> None:
        """Remove a pool, or raise PoolInUse, saying which of its jobs are not over."""
        await self._writer.run(lambda work: _delete(work, name))

    async def put_node(self, node_id: str, value: Mapping[str, Any]) -> None:
        """Store or replace what was decided about a node."""
        doc = _encoded(node_id, value)
        await self._writer.run(lambda work: work.nodes.put(node_id, doc))

    async def nodes(self) -> Documents:
        """Return what was decided about nodes, by node."""
        return await self._reader.run(lambda connection: _all(connection, schema.nodes, schema.nodes.c.id))


def _delete(work: Work, name: str) -> None:
    waiting = [job for job in work.open_jobs() if job.spec.pool_id == name]
    if waiting:
        named = ", ".join(f"{job.spec.name} ({job.id})" for job in waiting[:JOBS_NAMED_MAX])
        more = f" and {len(waiting) - JOBS_NAMED_MAX:,} more" if len(waiting) > JOBS_NAMED_MAX else ""
        raise PoolInUse(f"pool {name} has jobs that are not over: {named}{more}; stop them first")
    work.pools.put(name, None)


def _encoded(key: str, value: Mapping[str, Any]) -> str:
    doc = msgspec.json.encode(value).decode()
    check_text(key, doc)
    return doc


def _all(connection: Connection, table: Table, key: Column[str]) -> Documents:
    rows = connection.execute(select(key, table.c.doc).order_by(key))
    return [(name, msgspec.json.decode(doc)) for name, doc in rows]
