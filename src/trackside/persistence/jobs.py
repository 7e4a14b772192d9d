"""Knows the JobStore's operations, each as a function of the transaction it runs in."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from trackside.domain.errors import Invalid, JobNotFound
from trackside.domain.event import Event
from trackside.domain.exchange import Report
from trackside.domain.job import Job, JobId, NodeId, ProjectId
from trackside.domain.phase import Phase
from trackside.persistence import counts, search
from trackside.persistence.cache import JobCache
from trackside.persistence.codec import check_number, check_text
from trackside.persistence.reader import Reader
from trackside.persistence.reading import read_id, read_job
from trackside.persistence.work import Work
from trackside.persistence.writer import Writer
from trackside.ports import EventPage, EventQuery, JobPage, JobQuery, Update

Change = Callable[[Job], Update | None]
Apply = Callable[[Job, Report], Update | None]


class SqlJobStore:
    """Keep jobs in a database. `make`, `change` and `apply` run in the writer's thread, maybe twice."""

    def __init__(self, writer: Writer, reader: Reader, cache: JobCache) -> None:
        self._writer = writer
        self._reader = reader
        self._cache = cache

    async def insert(self, project_id: ProjectId, make: Callable[[int], Update]) -> Job:
        """Store a new job: `make` gets the project's next number; a number is never issued twice."""
        return await self._writer.run(lambda work: self._insert(work, project_id, make))

    async def update(self, job_id: JobId, change: Change) -> Job:
        """Apply a pure change to the stored job, alone among writers; None changes nothing."""
        return await self._writer.run(lambda work: _update(work, job_id, change))

    async def update_many(self, changes: Sequence[tuple[JobId, Change]]) -> None:
        """Apply many changes in one transaction; a job that is gone is passed over."""
        await self._writer.run(lambda work: _update_many(work, changes))

    async def apply_reports(
        self, node_id: NodeId, stream: str, reports: Sequence[Report], apply: Apply
    ) -> int:
        """Apply each report of the stream exactly once; return the highest sequence number done."""
        return await self._writer.run(lambda work: _apply_reports(work, (node_id, stream), reports, apply))

    def find(self, project_id: ProjectId, *, short_id: str = "", number: int = 0) -> Job | None:
        """Return the job of that short id, or of that number; None if the project has none."""
        alias = short_id or number
        if not alias:
            return None
        return self._cache.find((project_id, alias)) or self._look_up(project_id, alias)

    def get(self, job_id: JobId) -> Job | None:
        """Return the job as last stored; None if there is none."""
        return self._cache.get(job_id) or self._read(job_id)

    async def search(self, query: JobQuery) -> JobPage:
        """Return the jobs that match, sorted and paged."""
        search.check_jobs(query)
        return await self._reader.run(lambda connection: search.jobs(connection, query, self._cache))

    async def active(self) -> tuple[Job, ...]:
        """Return every job that is not in a final phase, oldest first."""
        return self._cache.open_jobs()

    async def count(self, project_id: ProjectId) -> int:
        """Return how many jobs the project has."""
        check_text(project_id)
        return await self._reader.run(lambda connection: search.count(connection, project_id))

    async def counts(self, project_id: ProjectId | None, *, pool_id: str) -> dict[tuple[str, Phase], int]:
        """Return how many jobs of each kind are in each phase in a pool (None: of all projects)."""
        check_text(project_id, pool_id)
        return await self._reader.run(lambda connection: counts.in_pool(connection, project_id, pool_id))

    async def name_exists(self, project_id: ProjectId, workspace_id: str, name: str) -> bool:
        """Say whether a job of this name exists."""
        check_text(project_id, workspace_id, name)
        return await self._reader.run(
            lambda connection: search.name_exists(connection, project_id, workspace_id, name)
        )

    async def events(self, query: EventQuery) -> EventPage:
        """Return the job's events, by time."""
        search.check_events(query)
        return await self._reader.run(lambda connection: search.events(connection, query))

    async def add_events(self, events: Sequence[Event]) -> None:
        """Store events that change no job; those of a job that is gone are dropped."""
        await self._writer.run(lambda work: work.tell(events))

    async def deleted(self) -> tuple[Job, ...]:
        """Return the jobs that are marked as deleted and over: they can go."""
        return self._cache.deleted_jobs()

    async def delete(self, job_id: JobId) -> None:
        """Remove a job and everything stored of it, or raise JobNotFound."""
        await self._writer.run(lambda work: _delete(work, job_id))

    def _insert(self, work: Work, project_id: ProjectId, make: Callable[[int], Update]) -> Job:
        project = work.project(project_id)
        update = make(project.next_number)
        job = replace(update.job, revision=1)
        assert (job.project_id, job.number) == (project.id, project.next_number)
        work.projects.put(project.id, replace(project, next_number=project.next_number + 1))
        work.recount(project.id, None, job)
        if self._cache.get(job.id) is not None or not work.jobs.add(job.id, job):
            raise Invalid("a job of this id exists")
        work.tell(update.events, job)
        return job

    def _look_up(self, project_id: ProjectId, alias: int | str) -> Job | None:
        try:
            check_text(project_id, alias if isinstance(alias, str) else None)
            check_number(alias if isinstance(alias, int) else None)
        except Invalid:
            return None  # what cannot be stored is not there
        job_id = self._reader.read(lambda connection: read_id(connection, project_id, alias))
        return None if job_id is None else self.get(job_id)

    def _read(self, job_id: JobId) -> Job | None:
        try:
            check_text(job_id)
        except Invalid:
            return None  # what cannot be stored is not there
        epoch = self._cache.epoch
        job = self._reader.read(lambda connection: read_job(connection, job_id))
        if job is not None:
            self._cache.remember((job,), epoch)
        return job


def _update(work: Work, job_id: JobId, change: Change) -> Job:
    job = work.jobs.get(job_id)
    if job is None:
        raise JobNotFound
    update = change(job)
    return job if update is None else work.store(job, update)


def _update_many(work: Work, changes: Sequence[tuple[JobId, Change]]) -> None:
    for job_id, change in changes:
        job = work.jobs.get(job_id)
        update = None if job is None else change(job)
        if job is not None and update is not None:
            work.store(job, update)


def _apply_reports(work: Work, key: tuple[str, str], reports: Sequence[Report], apply: Apply) -> int:
    done = work.cursors.get(key)
    for report in sorted(reports, key=lambda report: report.seq):
        if done is not None and report.seq <= done:
            continue
        _apply_report(work, report, apply)
        done = report.seq
        work.cursors.put(key, done)
    return 0 if done is None else done


def _apply_report(work: Work, report: Report, apply: Apply) -> None:
    said = report.started or report.ended or report.noted or report.answered
    if said is None:
        return
    job = work.jobs.get(said.key.job_id)
    update = None if job is None else apply(job, report)
    if job is not None and update is not None:
        work.store(job, update)


def _delete(work: Work, job_id: JobId) -> None:
    job = work.jobs.get(job_id)
    if job is None:
        raise JobNotFound
    work.recount(job.project_id, job, None)
    work.jobs.put(job_id, None)
