"""Knows the small things dialects keep for their callers: templates, saved configurations, signals."""

import json
from collections.abc import Mapping
from typing import Any

from trackside.domain.errors import Exhausted, Invalid
from trackside.domain.identity import Caller
from trackside.ports import DocumentStore

DOCUMENT_BYTES_MAX = 256 * 1024
DOCUMENTS_MAX = 10_000  # of one kind in one project


class Documents:
    """Keep documents of the caller's project, by kind and id."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    async def put(self, caller: Caller, kind: str, document_id: str, value: Mapping[str, Any]) -> None:
        """Store or replace a document."""
        size = len(json.dumps(value))
        if size > DOCUMENT_BYTES_MAX:
            raise Invalid(f"this is too large to keep: {size:,} of at most {DOCUMENT_BYTES_MAX:,} bytes")
        if await self._store.get(caller.project_id, kind, document_id) is None:
            count = await self._store.count(caller.project_id, kind)
            if count >= DOCUMENTS_MAX:
                raise Exhausted(f"the project has {count:,} of these already: delete some first")
        await self._store.put(caller.project_id, kind, document_id, value)

    async def get(self, caller: Caller, kind: str, document_id: str) -> dict[str, Any] | None:
        """Return a document."""
        return await self._store.get(caller.project_id, kind, document_id)

    async def list(self, caller: Caller, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return all documents of a kind with their ids, by id."""
        return await self._store.list(caller.project_id, kind)

    async def delete(self, caller: Caller, kind: str, document_id: str) -> None:
        """Remove a document; one that is not there is fine."""
        await self._store.delete(caller.project_id, kind, document_id)
