"""How projects and users are kept."""

from typing import Protocol

from trackside.domain.identity import User
from trackside.domain.job import ProjectId


class IdentityStore(Protocol):
    """Keeps projects and users."""

    async def put_project(self, project_id: ProjectId, name: str) -> None:
        """Store a project."""
        ...

    async def projects(self) -> tuple[tuple[ProjectId, str], ...]:
        """Return all projects: id and name."""
        ...

    async def put_user(self, user: User) -> None:
        """Store or replace a user."""
        ...

    async def delete_user(self, name: str) -> None:
        """Remove a user."""
        ...

    async def users(self) -> tuple[User, ...]:
        """Return all users."""
        ...
