"""How small things are kept that only their services can read: documents of projects, pools, topics."""

from collections.abc import Mapping
from typing import Any, Protocol

from trackside.domain.job import ProjectId


class DocumentStore(Protocol):
    """Keeps small JSON documents, by project, kind and id. A returned write is durable."""

    async def put(self, project_id: ProjectId, kind: str, document_id: str, value: Mapping[str, Any]) -> None:
        """Store or replace a document."""
        ...

    async def get(self, project_id: ProjectId, kind: str, document_id: str) -> dict[str, Any] | None:
        """Return a document."""
        ...

    async def list(self, project_id: ProjectId, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return all documents of a kind with their ids, by id."""
        ...

    async def count(self, project_id: ProjectId, kind: str) -> int:
        """Return how many documents of a kind there are."""
        ...

    async def delete(self, project_id: ProjectId, kind: str, document_id: str) -> None:
        """Remove a document if it is there."""
        ...


class PoolStore(Protocol):
    """Keeps the installation's pools, and what was decided about its nodes, as JSON documents."""

    async def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Store or replace a pool."""
        ...

    async def pools(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all pools, by name."""
        ...

    async def delete(self, name: str) -> None:
        """Remove a pool, or raise PoolInUse, saying which of its jobs are not over.

        A job whose insertion began before is seen.
        """
        ...

    async def put_node(self, node_id: str, value: Mapping[str, Any]) -> None:
        """Store or replace what was decided about a node."""
        ...

    async def nodes(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what was decided about nodes, by node."""
        ...


class TopicStore(Protocol):
    """Keeps who can be told of jobs, as JSON documents."""

    async def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Store or replace a topic."""
        ...

    async def topics(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all topics, by name."""
        ...

    async def delete(self, name: str) -> None:
        """Remove a topic if it is there."""
        ...
