"""Knows how lists of jobs and events are filtered, sorted, paged and counted.

A job that is being deleted is in no list and in no count, though it still drains.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    exists,
    func,
    not_,
    or_,
    select,
    tuple_,
)

from trackside.domain.errors import Invalid
from trackside.domain.job import Job, ProjectId
from trackside.persistence import counts as counters
from trackside.persistence import schema
from trackside.persistence.cache import JobCache
from trackside.persistence.codec import INTEGER_MAX, check_number, check_text, decode_counts, event_of, fold
from trackside.persistence.name_parts import NameParts, name_parts
from trackside.persistence.reading import read_jobs
from trackside.ports import EventPage, EventQuery, JobPage, JobQuery

PAGE_MAX = 10_000
SORTED_MAX = 2_000  # matches that are cheaper to sort than to look for in order

Condition = ColumnElement[bool]
_jobs = schema.jobs.c
_events = schema.events.c


def _duration() -> ColumnElement[Any]:
    """Return how long a job ran, or has been running until now; nothing if it never ran."""
    now_ms = time.time_ns() // 1_000_000
    return func.coalesce(_jobs.ended_at_ms, now_ms) - _jobs.started_at_ms


# Every order ends with the number, which makes it total.
SORTS: dict[str, tuple[Column[Any], ...]] = {  # each is the order of an index, which makes it fast
    "created_at": (_jobs.created_at_ms, _jobs.number),
    "name": (_jobs.name, _jobs.number),
    "phase": (_jobs.phase, _jobs.created_at_ms, _jobs.number),
    "ended_at": (_jobs.ended_at_ms, _jobs.number),
    "started_at": (_jobs.started_at_ms, _jobs.number),
    "owner": (_jobs.owner, _jobs.created_at_ms, _jobs.number),
    "number": (_jobs.number,),
}
RARE_SORTS: dict[str, Callable[[], tuple[ColumnElement[Any], ...]]] = {  # not worth an index
    "description": lambda: (_jobs.description_folded, _jobs.number),
    "kind": lambda: (_jobs.kind, _jobs.number),
    "duration": lambda: (_duration(), _jobs.number),
}


def _contains(column: Column[str], text: str) -> Condition:
    return column.contains(fold(text), autoescape=True)


def _contains_any(column: Column[str]) -> Callable[[Any], Condition]:
    return lambda texts: or_(*(_contains(column, text) for text in texts))


def _is_newest() -> Condition:
    newer = schema.jobs.alias("newer")
    later = tuple_(newer.c.version, newer.c.number) > tuple_(_jobs.version, _jobs.number)
    same_family = and_(newer.c.project_id == _jobs.project_id, newer.c.family == _jobs.family)
    # Number 0 is nobody's: a job without a family is the newest of its own.
    return or_(_jobs.family == 0, not_(exists().where(same_family, later, not_(newer.c.deleting))))


def _has_tag(key: str, values: Sequence[str]) -> Condition:
    tags = schema.tags.c
    tagged = select(tags.job_id).where(tags.key == key)
    return _jobs.id.in_(tagged.where(tags.value.in_(values)) if values else tagged)


# One row per field of a JobQuery that filters: how a value that is set becomes a condition.
_JOB_FILTERS: dict[str, Callable[[Any], Condition]] = {
    "project_id": lambda value: _jobs.project_id == value,
    "workspace_id": lambda value: _jobs.workspace_id == value,
    "ids": _jobs.id.in_,
    "short_ids": _jobs.short_id.in_,
    "families": _jobs.family.in_,
    "newest_versions": lambda _: _is_newest(),
    "tags": lambda tags: and_(*(_has_tag(key, values) for key, values in tags)),
    "names": _jobs.name.in_,
    "names_like": _contains_any(_jobs.name_folded),
    "phases": lambda phases: _jobs.phase.in_(sorted(phases)),
    "kinds": _jobs.kind.in_,
    "owners": _jobs.owner.in_,
    "pool_ids": _jobs.pool_id.in_,
    "descriptions_like": _contains_any(_jobs.description_folded),
    "not_names": _jobs.name.not_in,
    "not_phases": lambda phases: _jobs.phase.not_in(sorted(phases)),
    "not_owners": _jobs.owner.not_in,
    "created_from_ms": lambda at_ms: _jobs.created_at_ms >= at_ms,
    "created_to_ms": lambda at_ms: _jobs.created_at_ms <= at_ms,
    "ended_from_ms": lambda at_ms: _jobs.ended_at_ms >= at_ms,
    "ended_to_ms": lambda at_ms: _jobs.ended_at_ms <= at_ms,
}

_EVENT_FILTERS: dict[str, Callable[[Any], Condition]] = {
    "job_id": lambda value: _events.job_id == value,
    "levels": _events.level.in_,
    "contains": lambda text: _contains(_events.message_folded, text),
    "from_ms": lambda at_ms: _events.at_ms >= at_ms,
    "to_ms": lambda at_ms: _events.at_ms <= at_ms,
    "task": lambda name: _events.task == name,
}

_COUNTS = select(schema.projects.c.job_counts).where(schema.projects.c.id == bindparam("key"))

_GOING = select(_jobs.number).where(_jobs.project_id == bindparam("key"), _jobs.deleting)


def check_jobs(query: JobQuery) -> None:
    """Raise Invalid if no database could answer this."""
    if query.sort_by not in SORTS.keys() | RARE_SORTS.keys():
        valid = ", ".join((*SORTS, *RARE_SORTS))
        raise Invalid(f"jobs cannot be sorted by {query.sort_by!r}; valid: {valid}")
    _check_values(query, _JOB_FILTERS)
    _check_page(query.offset, query.limit)


def check_events(query: EventQuery) -> None:
    """Raise Invalid if no database could answer this."""
    _check_values(query, _EVENT_FILTERS)
    _check_page(query.offset, query.limit)


def jobs(connection: Connection, query: JobQuery, cache: JobCache) -> JobPage:
    """Return one page of jobs and the counts, all of one moment."""
    epoch = cache.epoch  # taken before the snapshot, which begins with the first statement
    counts = _counts(connection, query.project_id)
    named = dict(_conditions(query, _JOB_FILTERS))
    conditions, few = list(named.values()), None
    if named.keys() <= counters.COUNTED_FIELDS:
        matching = counters.matching(connection, query)
        if matching <= SORTED_MAX and not named.keys() <= {"project_id", "workspace_id"}:
            few = _few(connection, query.project_id, conditions)
    else:
        parts = name_parts(connection, query.project_id, query.names_like)
        few = _few(connection, query.project_id, _narrowed(query, conditions, parts))
        if not any(jobs for workspace, jobs in counts.items() if workspace != query.workspace_id):
            named.pop("workspace_id", None)  # all that are shown are there: it says nothing
        alone = parts if named.keys() <= {"project_id", "names_like"} else None
        told = list(named.values())
        matching = _visible(connection, query.project_id, told, alone) if few is None else len(few)
    found: tuple[Job, ...] = ()
    if query.offset < matching and query.limit:
        found = _load(connection, _job_page(query, conditions, few), cache, epoch)
    return JobPage(jobs=found, matching=matching, total=sum(counts.values()))


def count(connection: Connection, project_id: ProjectId) -> int:
    """Return how many jobs the project has."""
    return sum(_counts(connection, project_id).values())


def name_exists(connection: Connection, project_id: ProjectId, workspace_id: str, name: str) -> bool:
    """Say whether a job of this name exists."""
    same = (_jobs.project_id == project_id, _jobs.workspace_id == workspace_id, _jobs.name == name)
    found = select(_jobs.id).where(*same, not_(_jobs.deleting)).limit(1)
    return connection.scalar(found) is not None


def events(connection: Connection, query: EventQuery) -> EventPage:
    """Return one page of events and how many match."""
    conditions = list(dict(_conditions(query, _EVENT_FILTERS)).values())
    order = [column.desc() if query.descending else column.asc() for column in (_events.at_ms, _events.id)]
    page = _paged(select(schema.events).where(*conditions).order_by(*order), query)
    found = tuple(event_of(row) for row in connection.execute(page))
    return EventPage(events=found, matching=_matching(connection, schema.events, conditions))


def _conditions(
    query: JobQuery | EventQuery, filters: dict[str, Callable[[Any], Condition]]
) -> Iterator[tuple[str, Condition]]:
    for field, condition in filters.items():
        value = getattr(query, field)
        if value is not None and value not in ((), frozenset(), False):
            yield field, condition(value)


def _counts(connection: Connection, project_id: ProjectId) -> dict[str, int]:
    text = connection.scalar(_COUNTS, {"key": project_id})
    return {} if text is None else decode_counts(text)


def _narrowed(query: JobQuery, conditions: list[Condition], parts: NameParts | None) -> list[Condition]:
    """Return the conditions with those few jobs named whose names match, if they are few."""
    numbers = None if parts is None else parts.numbers(SORTED_MAX)
    if numbers is None:
        return conditions
    return [_jobs.project_id == query.project_id, _jobs.number.in_(numbers), *conditions]


def _visible(
    connection: Connection,
    project_id: ProjectId,
    conditions: list[Condition],
    parts: NameParts | None = None,
) -> int:
    """Count all, for which an index is enough, and take off the few that are being deleted."""
    matching = _matching(connection, schema.jobs, conditions) if parts is None else parts.count()
    going = connection.scalars(_GOING, {"key": project_id}).all() if matching else ()
    if not going:
        return matching
    return matching - _matching(connection, schema.jobs, [*conditions, _jobs.number.in_(going)])


def _few(connection: Connection, project_id: ProjectId, conditions: list[Condition]) -> list[int] | None:
    """Return the numbers of all jobs that match, found in one go; None if they are many."""
    found = connection.scalars(select(_jobs.number).where(*conditions).limit(SORTED_MAX + 1)).all()
    if len(found) > SORTED_MAX:
        return None
    going = set(connection.scalars(_GOING, {"key": project_id})) if found else set()
    return [number for number in found if number not in going]


def _job_page(query: JobQuery, conditions: list[Condition], few: list[int] | None) -> Select[Any]:
    """Return the statement for one page: few matches are known already and only sorted, many are met soon
    enough by walking along the order's index."""
    if few is not None:
        conditions = [_jobs.project_id == query.project_id, _jobs.number.in_(few)]
    page = select(_jobs.id, _jobs.revision).where(*conditions, not_(_jobs.deleting))
    return _paged(page.order_by(*_order(query)), query)


def _matching(connection: Connection, table: Table, conditions: list[Condition]) -> int:
    return connection.scalar(select(func.count()).select_from(table).where(*conditions)) or 0


def _order(query: JobQuery) -> Iterator[ColumnElement[Any]]:
    """Yield the sort keys: an absent time comes before every other."""
    for column in SORTS.get(query.sort_by) or RARE_SORTS[query.sort_by]():
        order = column.desc() if query.descending else column.asc()
        if isinstance(column, Column) and not column.nullable:
            yield order
        else:  # SQLite's own order, which PostgreSQL must be told
            yield order.nulls_last() if query.descending else order.nulls_first()


def _paged(statement: Select[Any], query: JobQuery | EventQuery) -> Select[Any]:
    return statement.offset(query.offset).limit(query.limit)


def _load(connection: Connection, page: Select[Any], cache: JobCache, epoch: int) -> tuple[Job, ...]:
    """Return the jobs of a page: from memory where it holds the very revision this snapshot sees."""
    rows = connection.execute(page).all()
    known = {row.id: job for row in rows if (job := cache.get(row.id)) and job.revision == row.revision}
    read = read_jobs(connection, [row.id for row in rows if row.id not in known])
    cache.remember(read.values(), epoch)
    known |= read
    return tuple(known[row.id] for row in rows)


def _check_values(query: JobQuery | EventQuery, filters: dict[str, Callable[[Any], Condition]]) -> None:
    for field in filters:
        _check_value(getattr(query, field))


def _check_value(value: object) -> None:
    if isinstance(value, tuple | frozenset):
        for item in value:
            _check_value(item)
    elif isinstance(value, int):
        check_number(value)
    elif isinstance(value, str):
        check_text(value)


def _check_page(offset: int, limit: int) -> None:
    if not 0 <= offset <= INTEGER_MAX:
        raise Invalid("the offset must be 0 or more")
    if not 0 <= limit <= PAGE_MAX:
        raise Invalid(f"the limit must be between 0 and {PAGE_MAX}")
