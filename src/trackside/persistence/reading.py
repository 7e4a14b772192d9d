"""Knows how whole jobs are read back from their rows."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Connection, Row, bindparam, or_, select

from trackside.domain.job import Job, JobId, ProjectId
from trackside.domain.phase import FINAL, Phase
from trackside.persistence import schema
from trackside.persistence.codec import job_of

CHUNK_JOBS_MAX = 500  # jobs read by one statement

_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_JOB_COLUMNS = [
    schema.jobs.c[name]
    for name in (
        "id",
        "project_id",
        "number",
        "short_id",
        "family",
        "version",
        "phase",
        "owner",
        "created_at_ms",
        "started_at_ms",
        "ended_at_ms",
        "deleting",
        "revision",
        "state",
    )
]


def _joined(condition: ColumnElement[bool]) -> Any:
    tables = schema.jobs.join(schema.specs, schema.specs.c.job_id == schema.jobs.c.id)
    return select(*_JOB_COLUMNS, schema.specs.c.doc).select_from(tables).where(condition)


_JOBS = _joined(schema.jobs.c.id.in_(_IDS))
_PENDING_IDS = (
    select(schema.jobs.c.id)
    .where(
        or_(
            schema.jobs.c.phase.in_([phase.value for phase in Phase if phase not in FINAL]),
            schema.jobs.c.deleting,
        )
    )
    .order_by(schema.jobs.c.created_at_ms, schema.jobs.c.project_id, schema.jobs.c.number)
)
_RECORDS = (
    select(schema.records.c.job_id, schema.records.c.doc)
    .where(schema.records.c.job_id.in_(_IDS))
    .order_by(schema.records.c.job_id, schema.records.c.number)
)
_TASKS = (
    select(schema.tasks.c.job_id, schema.tasks.c.past, schema.tasks.c.doc)
    .where(schema.tasks.c.job_id.in_(_IDS))
    .order_by(schema.tasks.c.job_id, schema.tasks.c.position)
)

_ID_BY = {
    kind: select(schema.jobs.c.id).where(
        schema.jobs.c.project_id == bindparam("project"), column == bindparam("alias")
    )
    for kind, column in ((int, schema.jobs.c.number), (str, schema.jobs.c.short_id))
}


def read_id(connection: Connection, project_id: ProjectId, alias: int | str) -> JobId | None:
    """Return the id of the project's job with that number or short id."""
    return connection.scalar(_ID_BY[type(alias)], {"project": project_id, "alias": alias})


def read_job(connection: Connection, job_id: JobId) -> Job | None:
    """Return the stored job."""
    return read_jobs(connection, [job_id]).get(job_id)


def read_jobs(connection: Connection, job_ids: Sequence[JobId]) -> dict[JobId, Job]:
    """Return those of the jobs that exist."""
    found: dict[JobId, Job] = {}
    for ids in _chunks(job_ids):
        # The row with the revision first: what another process changes after that cannot go unnoticed.
        rows = connection.execute(_JOBS, {"ids": ids}).all()
        if not rows:
            continue
        records = _by_job(connection, _RECORDS, ids)
        tasks = _by_job(connection, _TASKS, ids)
        for row in rows:
            found[row.id] = job_of(row, records[row.id], tasks[row.id])
    return found


def read_pending_jobs(connection: Connection) -> list[Job]:
    """Return every job that is not in a final phase or still has to be removed, oldest first."""
    ids = list(connection.scalars(_PENDING_IDS))
    found = read_jobs(connection, ids)
    return [found[job_id] for job_id in ids if job_id in found]


def _chunks(job_ids: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
    return (job_ids[i : i + CHUNK_JOBS_MAX] for i in range(0, len(job_ids), CHUNK_JOBS_MAX))


def _by_job(connection: Connection, statement: Any, ids: Sequence[JobId]) -> dict[str, list[Row[Any]]]:
    rows: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(statement, {"ids": ids}):
        rows[row.job_id].append(row)
    return rows
