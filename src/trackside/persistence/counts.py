"""Knows the counters of jobs: kept by adding up changes, read without looking at a single job.

A change is added to the stored number in the statement itself, so that two processes that change different
jobs at once are both counted.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from sqlalchemy import Connection, func, select, text

from trackside.domain.job import Job, ProjectId
from trackside.domain.phase import Phase
from trackside.persistence import schema
from trackside.ports import JobQuery

_rows = schema.pool_counts.c


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a job is counted; the fields are the key of the table, in its order."""

    project_id: str
    pool_id: str
    kind: str
    phase: str
    workspace_id: str


_NAMES = tuple(column.name for column in schema.pool_counts.primary_key)
_ADD = text(
    f"INSERT INTO pool_counts ({', '.join(_NAMES)}, jobs)"  # noqa: S608 - the table's own columns
    f" VALUES ({', '.join(f':{name}' for name in _NAMES)}, :jobs)"
    f" ON CONFLICT ({', '.join(_NAMES)}) DO UPDATE SET jobs = pool_counts.jobs + excluded.jobs"
)

# What of a JobQuery can be answered by counters alone.
COUNTED_FIELDS = frozenset({"project_id", "workspace_id", "phases", "not_phases", "kinds", "pool_ids"})


def add_changes(connection: Connection, changes: Iterable[tuple[Job | None, Job | None]]) -> None:
    """Count what leads from the old jobs to the new ones; None: no job."""
    moved: Counter[Place] = Counter()
    for old, new in changes:
        before, after = _place(old), _place(new)
        if before != after:
            moved.update({place: change for place, change in ((before, -1), (after, 1)) if place})
    # In one order everywhere: two processes must not wait for each other's rows crosswise.
    rows = [
        {**dict(zip(_NAMES, astuple(place), strict=True)), "jobs": change}
        for place, change in sorted(moved.items())
        if change
    ]
    if rows:
        connection.execute(_ADD, rows)


def in_pool(
    connection: Connection, project_id: ProjectId | None, pool_id: str
) -> dict[tuple[str, Phase], int]:
    """Return how many jobs of each kind are in each phase in a pool; of all projects if none is given."""
    found = select(_rows.kind, _rows.phase, func.sum(_rows.jobs).label("jobs"))
    found = found.where(_rows.pool_id == pool_id, *([_rows.project_id == project_id] if project_id else []))
    rows = connection.execute(found.group_by(_rows.kind, _rows.phase))
    return {(row.kind, Phase(row.phase)): int(row.jobs) for row in rows if row.jobs}


def matching(connection: Connection, query: JobQuery) -> int:
    """Return how many jobs a query matches that asks for nothing but COUNTED_FIELDS."""
    conditions = [_rows.project_id == query.project_id]
    if query.workspace_id is not None:
        conditions.append(_rows.workspace_id == query.workspace_id)
    if query.phases:
        conditions.append(_rows.phase.in_(sorted(query.phases)))
    if query.not_phases:
        conditions.append(_rows.phase.not_in(sorted(query.not_phases)))
    if query.kinds:
        conditions.append(_rows.kind.in_(query.kinds))
    if query.pool_ids:
        conditions.append(_rows.pool_id.in_(query.pool_ids))
    return int(connection.scalar(select(func.sum(_rows.jobs)).where(*conditions)) or 0)


def _place(job: Job | None) -> Place | None:
    if job is None or job.deleting:
        return None
    spec = job.spec
    return Place(job.project_id, spec.pool_id, spec.kind, job.phase.value, spec.workspace_id)
