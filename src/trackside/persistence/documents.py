"""Knows the DocumentStore's operations."""

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from trackside.domain.job import ProjectId
from trackside.persistence import schema
from trackside.persistence.codec import check_text
from trackside.persistence.reader import Reader
from trackside.persistence.work import Work
from trackside.persistence.writer import Writer

_rows = schema.documents.c


class SqlDocumentStore:
    """Keep documents in a database."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def put(self, project_id: ProjectId, kind: str, document_id: str, value: Mapping[str, Any]) -> None:
        """Store or replace a document."""
        doc = msgspec.json.encode(value).decode()

        def write(work: Work) -> None:
            work.project(project_id)
            check_text(kind, document_id, doc)
            work.documents.put((project_id, kind, document_id), doc)

        await self._writer.run(write)

    async def get(self, project_id: ProjectId, kind: str, document_id: str) -> dict[str, Any] | None:
        """Return a document."""
        check_text(kind, document_id)
        same = (_rows.project_id == project_id, _rows.kind == kind, _rows.id == document_id)
        doc = await self._reader.run(lambda connection: connection.scalar(select(_rows.doc).where(*same)))
        return None if doc is None else msgspec.json.decode(doc)

    async def list(self, project_id: ProjectId, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return all documents of a kind with their ids, by id."""

        def read(connection: Connection) -> list[tuple[str, dict[str, Any]]]:
            found = select(_rows.id, _rows.doc).where(_rows.project_id == project_id, _rows.kind == kind)
            rows = connection.execute(found.order_by(_rows.id))
            return [(row.id, msgspec.json.decode(row.doc)) for row in rows]

        return await self._reader.run(read)

    async def count(self, project_id: ProjectId, kind: str) -> int:
        """Return how many documents of a kind there are."""
        counted = select(func.count()).where(_rows.project_id == project_id, _rows.kind == kind)
        return await self._reader.run(lambda connection: connection.scalar(counted) or 0)

    async def delete(self, project_id: ProjectId, kind: str, document_id: str) -> None:
        """Remove a document if it is there."""
        check_text(kind, document_id)
        await self._writer.run(lambda work: work.documents.put((project_id, kind, document_id), None))
