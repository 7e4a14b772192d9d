"""Knows what one transaction has seen and wants: the view every write operation works on.

Operations change values in memory and are written together (see `flush`). One that raises is taken back
alone, without the database hearing of it; ten changes of one job become one row.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, select

from trackside.domain.errors import NotFound
from trackside.domain.event import Event
from trackside.domain.identity import User
from trackside.domain.job import Job, JobId, ProjectId
from trackside.persistence import schema
from trackside.persistence.cache import JobCache
from trackside.persistence.codec import check_text, user_of
from trackside.persistence.ledger import Ledger
from trackside.persistence.reading import read_job
from trackside.ports import Update

_PROJECT = select(schema.projects).where(schema.projects.c.id == bindparam("key"))
_USER = select(schema.users).where(schema.users.c.name == bindparam("key"))
_CURSOR = select(schema.report_streams.c.last_seq).where(
    schema.report_streams.c.node_id == bindparam("node"),
    schema.report_streams.c.stream == bindparam("stream"),
)


@dataclass(frozen=True, slots=True)
class Project:
    """A project and its counters."""

    id: ProjectId
    name: str
    next_number: int = 1
    job_count: int = 0


StreamKey = tuple[str, str]  # node, stream


class Work:
    """Collect the changes of one transaction."""

    def __init__(self, connect: Callable[[], Connection], cache: JobCache) -> None:
        self._connect = connect  # begins the transaction when first called
        self._cache = cache
        self.jobs: Ledger[JobId, Job] = Ledger(self._read_job)
        self.projects: Ledger[ProjectId, Project] = Ledger(self._read_project)
        self.users: Ledger[str, User] = Ledger(self._read_user)
        self.cursors: Ledger[StreamKey, int] = Ledger(self._read_cursor)
        self.events: list[Event] = []

    @property
    def changed(self) -> bool:
        """Say whether there is anything to write."""
        return bool(self.events) or any(any(True for _ in ledger.changes()) for ledger in self._ledgers())

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Take back everything done inside if it raises."""
        marks = [(ledger, ledger.mark()) for ledger in self._ledgers()]
        events = len(self.events)
        try:
            yield
        except BaseException:
            for ledger, mark in marks:
                ledger.rollback(mark)
            del self.events[events:]
            raise

    def project(self, project_id: ProjectId) -> Project:
        """Return the project, or raise NotFound."""
        project = self.projects.get(project_id)
        if project is None:
            raise NotFound("there is no such project")
        return project

    def store(self, current: Job, update: Update) -> Job:
        """Take over a job's next state; its revision grows only if something changed."""
        job, events = update.job, update.events
        assert (job.id, job.project_id, job.number) == (current.id, current.project_id, current.number)
        self.events += events
        if job is current or replace(job, revision=current.revision) == current:
            return current
        job = replace(job, revision=current.revision + 1)
        self.jobs.put(job.id, job)
        self.recount(current, job)
        return job

    def recount(self, old: Job, new: Job | None) -> None:
        """Keep the project's count right when a job leaves the lists, or is back."""
        change = _listed(new) - _listed(old)
        if change:
            project = self.project(old.project_id)
            self.projects.put(project.id, replace(project, job_count=project.job_count + change))

    def _ledgers(self) -> tuple[Ledger[Any, Any], ...]:
        return (self.jobs, self.projects, self.users, self.cursors)

    def _read_job(self, job_id: JobId) -> Job | None:
        check_text(job_id)
        return self._cache.get(job_id) or read_job(self._connect(), job_id)

    def _read_project(self, project_id: ProjectId) -> Project | None:
        check_text(project_id)
        row = self._connect().execute(_PROJECT, {"key": project_id}).one_or_none()
        return None if row is None else Project(*row)

    def _read_user(self, name: str) -> User | None:
        check_text(name)
        row = self._connect().execute(_USER, {"key": name}).one_or_none()
        return None if row is None else user_of(row)

    def _read_cursor(self, key: StreamKey) -> int | None:
        check_text(*key)
        node, stream = key
        return self._connect().scalar(_CURSOR, {"node": node, "stream": stream})


def _listed(job: Job | None) -> int:
    return 0 if job is None or job.deleting else 1
