"""Knows what one transaction has seen and wants: the view every write operation works on.

Operations change values in memory and are written together (see `flush`). One that raises is taken back
alone, without the database hearing of it; ten changes of one job become one row.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Select, bindparam, select

from trackside.domain.errors import NotFound
from trackside.domain.event import Event
from trackside.domain.identity import User
from trackside.domain.job import Job, JobId, ProjectId
from trackside.domain.notice import Notice, notice_of
from trackside.persistence import schema
from trackside.persistence.cache import JobCache
from trackside.persistence.codec import check_text, decode_counts, user_of
from trackside.persistence.ledger import Ledger
from trackside.persistence.reading import read_job
from trackside.ports import Update

_PROJECT = select(schema.projects).where(schema.projects.c.id == bindparam("key"))
_USER = select(schema.users).where(schema.users.c.name == bindparam("key"))
_CURSOR = select(schema.report_streams.c.last_seq).where(
    schema.report_streams.c.node_id == bindparam("node"),
    schema.report_streams.c.stream == bindparam("stream"),
)
_DOCUMENT = select(schema.documents.c.doc).where(
    schema.documents.c.project_id == bindparam("project"),
    schema.documents.c.kind == bindparam("kind"),
    schema.documents.c.id == bindparam("key"),
)
_POOL = select(schema.pools.c.doc).where(schema.pools.c.name == bindparam("key"))
_NODE = select(schema.nodes.c.doc).where(schema.nodes.c.id == bindparam("key"))
_TOPIC = select(schema.topics.c.doc).where(schema.topics.c.name == bindparam("key"))
_NOTICE = select(schema.notices.c.doc).where(schema.notices.c.id == bindparam("key"))
_TOPICS_WAITING = select(schema.deliveries.c.topic).where(schema.deliveries.c.notice_id == bindparam("key"))
_DELIVERY = select(schema.deliveries.c.tries, schema.deliveries.c.due_at_ms).where(
    schema.deliveries.c.notice_id == bindparam("notice"), schema.deliveries.c.topic == bindparam("topic")
)


@dataclass(frozen=True, slots=True)
class Project:
    """A project and its counters."""

    id: ProjectId
    name: str
    next_number: int = 1
    job_counts: Mapping[str, int] = field(default_factory=dict)  # by workspace


StreamKey = tuple[str, str]  # node, stream
DocumentKey = tuple[ProjectId, str, str]  # project, kind, id
DeliveryKey = tuple[int, str]  # notice, topic


class Work:
    """Collect the changes of one transaction."""

    def __init__(self, connect: Callable[[], Connection], cache: JobCache) -> None:
        self._connect = connect  # begins the transaction when first called
        self._cache = cache
        self.jobs: Ledger[JobId, Job] = Ledger(self._read_job)
        self.projects: Ledger[ProjectId, Project] = Ledger(self._read_project)
        self.users: Ledger[str, User] = Ledger(self._read_user)
        self.cursors: Ledger[StreamKey, int] = Ledger(self._read_cursor)
        self.documents: Ledger[DocumentKey, str] = Ledger(self._read_document)
        self.pools: Ledger[str, str] = Ledger(lambda name: self._read_text(_POOL, name))
        self.nodes: Ledger[str, str] = Ledger(lambda node: self._read_text(_NODE, node))
        self.topics: Ledger[str, str] = Ledger(lambda name: self._read_text(_TOPIC, name))
        self.notices: Ledger[int, str] = Ledger(self._read_notice)
        self.deliveries: Ledger[DeliveryKey, tuple[int, int]] = Ledger(self._read_delivery)
        self.events: list[Event] = []
        self.new_notices: list[Notice] = []

    @property
    def changed(self) -> bool:
        """Say whether there is anything to write."""
        return bool(self.events) or any(any(True for _ in ledger.changes()) for ledger in self._ledgers())

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Take back everything done inside if it raises."""
        marks = [(ledger, ledger.mark()) for ledger in self._ledgers()]
        events, notices = len(self.events), len(self.new_notices)
        try:
            yield
        except BaseException:
            for ledger, mark in marks:
                ledger.rollback(mark)
            del self.events[events:]
            del self.new_notices[notices:]
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
        self.tell(events, job)
        if job is current or replace(job, revision=current.revision) == current:
            return current
        job = replace(job, revision=current.revision + 1)
        self.jobs.put(job.id, job)
        self.recount(job.project_id, current, job)
        return job

    def tell(self, events: Sequence[Event], job: Job | None = None) -> None:
        """Keep events, and a notice of each that has a kind: of the job as it is at this moment."""
        self.events += events
        for event in events:
            about = (job or self.jobs.get(event.job_id)) if event.kind is not None else None
            if about is not None:
                self.new_notices.append(notice_of(about, event, notice_id=uuid.uuid4().hex))

    def recount(self, project_id: ProjectId, old: Job | None, new: Job | None) -> None:
        """Keep the project's counts right when a job enters or leaves the lists of a workspace."""
        left, entered = _listed_in(old), _listed_in(new)
        if left == entered:
            return
        project = self.project(project_id)
        counts = dict(project.job_counts)
        for workspace, change in ((left, -1), (entered, +1)):
            if workspace is not None:
                counts[workspace] = counts.get(workspace, 0) + change
        shown = {workspace: count for workspace, count in counts.items() if count}
        self.projects.put(project.id, replace(project, job_counts=shown))

    def open_jobs(self) -> Iterator[Job]:
        """Yield every job that is not in a final phase, as this transaction sees them."""
        changed = {job_id: job for job_id, _, job in self.jobs.changes()}
        for job in self._cache.open_jobs():
            if job.id not in changed:
                yield job
        yield from (job for job in changed.values() if job is not None and not job.final)

    def topics_waiting(self, notice_id: int) -> Iterator[str]:
        """Yield the topics that have not heard of a notice, of those that were stored before."""
        for topic in self._connect().scalars(_TOPICS_WAITING, {"key": notice_id}).all():
            if self.deliveries.get((notice_id, topic)) is not None:
                yield topic

    def _ledgers(self) -> tuple[Ledger[Any, Any], ...]:
        return (
            self.jobs,
            self.projects,
            self.users,
            self.cursors,
            self.documents,
            self.pools,
            self.nodes,
            self.topics,
            self.notices,
            self.deliveries,
        )

    def _read_job(self, job_id: JobId) -> Job | None:
        check_text(job_id)
        return self._cache.get(job_id) or read_job(self._connect(), job_id)

    def _read_project(self, project_id: ProjectId) -> Project | None:
        check_text(project_id)
        row = self._connect().execute(_PROJECT, {"key": project_id}).one_or_none()
        if row is None:
            return None
        return Project(row.id, row.name, row.next_number, decode_counts(row.job_counts))

    def _read_user(self, name: str) -> User | None:
        check_text(name)
        row = self._connect().execute(_USER, {"key": name}).one_or_none()
        return None if row is None else user_of(row)

    def _read_cursor(self, key: StreamKey) -> int | None:
        check_text(*key)
        node, stream = key
        return self._connect().scalar(_CURSOR, {"node": node, "stream": stream})

    def _read_document(self, key: DocumentKey) -> str | None:
        check_text(*key)
        project_id, kind, document_id = key
        return self._connect().scalar(_DOCUMENT, {"project": project_id, "kind": kind, "key": document_id})

    def _read_notice(self, notice: int) -> str | None:
        found: str | None = self._connect().scalar(_NOTICE, {"key": notice})
        return found

    def _read_delivery(self, key: DeliveryKey) -> tuple[int, int] | None:
        row = self._connect().execute(_DELIVERY, {"notice": key[0], "topic": key[1]}).one_or_none()
        return None if row is None else (row.tries, row.due_at_ms)

    def _read_text(self, statement: Select[Any], key: str) -> str | None:
        check_text(key)
        found: str | None = self._connect().scalar(statement, {"key": key})
        return found


def _listed_in(job: Job | None) -> str | None:
    return None if job is None or job.deleting else job.spec.workspace_id
