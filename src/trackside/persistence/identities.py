"""Knows the IdentityStore's operations."""

from dataclasses import replace

from sqlalchemy import select

from trackside.domain.errors import Invalid, NotFound
from trackside.domain.identity import User
from trackside.domain.job import ProjectId
from trackside.persistence import schema
from trackside.persistence.codec import user_of
from trackside.persistence.reader import Reader
from trackside.persistence.work import Project, Work
from trackside.persistence.writer import Writer

_PROJECTS = select(schema.projects.c.id, schema.projects.c.name).order_by(schema.projects.c.id)
_USERS = select(schema.users).order_by(schema.users.c.name)


class SqlIdentityStore:
    """Keep projects and users in a database."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def put_project(self, project_id: ProjectId, name: str) -> None:
        """Store a project; one that exists is renamed and keeps its numbers."""
        await self._writer.run(lambda work: _put_project(work, project_id, name))

    async def projects(self) -> tuple[tuple[ProjectId, str], ...]:
        """Return all projects: id and name."""
        return await self._reader.run(
            lambda connection: tuple((ProjectId(row.id), row.name) for row in connection.execute(_PROJECTS))
        )

    async def put_user(self, user: User) -> None:
        """Store or replace a user; the project must exist and the access key be nobody else's."""
        await self._writer.run(lambda work: _put_user(work, user))

    async def delete_user(self, name: str) -> None:
        """Remove a user, or raise NotFound."""
        await self._writer.run(lambda work: _delete_user(work, name))

    async def users(self) -> tuple[User, ...]:
        """Return all users, by name."""
        return await self._reader.run(
            lambda connection: tuple(user_of(row) for row in connection.execute(_USERS))
        )


def _put_project(work: Work, project_id: ProjectId, name: str) -> None:
    if not project_id:
        raise Invalid("a project must have an id")
    project = work.projects.get(project_id)
    renamed = Project(project_id, name) if project is None else replace(project, name=name)
    work.projects.put(project_id, renamed)


def _put_user(work: Work, user: User) -> None:
    work.project(user.project_id)
    work.users.put(user.name, user)


def _delete_user(work: Work, name: str) -> None:
    if work.users.get(name) is None:
        raise NotFound("there is no such user")
    work.users.put(name, None)
