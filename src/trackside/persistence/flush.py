"""Knows how the changes of a transaction become statements: only the rows that changed, table by table."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Delete, Insert, Table, Update, bindparam, delete, insert, update

from trackside.domain.job import Job, JobId, Record, Task
from trackside.persistence import counts, schema
from trackside.persistence.codec import (
    Values,
    check_text,
    encode_counts,
    event_values,
    job_values,
    notice_values,
    record_values,
    spec_values,
    tag_values,
    task_values,
    user_values,
)
from trackside.persistence.work import Project, Work

Statement = Insert | Update | Delete
TaskPlace = tuple[int, bool, Task]  # position, past, task


class StaleView(Exception):
    """Another process changed what this one remembers: look again."""


# Columns that must still hold what this process remembers when a row is written.
_GUARDS = {schema.jobs: ("revision",), schema.projects: ("next_number", "job_counts")}


def _update(table: Table) -> Update:
    """Return the update of a row by its primary key and by the old values of its guards."""
    keys = [column for column in table.columns if column.primary_key]
    guards = [table.c[name] for name in _GUARDS.get(table, ())]
    return update(table).where(*(column == bindparam(f"key_{column.name}") for column in (*keys, *guards)))


def _delete(table: Table) -> Delete:
    keys = [column for column in table.columns if column.primary_key]
    return delete(table).where(*(column == bindparam(f"key_{column.name}") for column in keys))


# Parents before children: a child refers to its parent. Built once, so that they are compiled once.
_INSERTS: dict[Table, Insert] = {
    table: insert(table)
    for table in (
        schema.projects,
        schema.users,
        schema.jobs,
        schema.specs,
        schema.tags,
        schema.records,
        schema.tasks,
        schema.events,
        schema.report_streams,
        schema.documents,
        schema.pools,
        schema.nodes,
        schema.topics,
        schema.notices,
        schema.deliveries,
    )
}
_UPDATES: dict[Table, Update] = {table: _update(table) for table in _INSERTS if table is not schema.events}
_DELETES: dict[Table, Delete] = {table: _delete(table) for table in _UPDATES}


def flush(connection: Connection, work: Work) -> None:
    """Write everything the transaction wants, or raise StaleView."""
    plan = _Plan()
    for _, old_project, new_project in work.projects.changes():
        plan.project(old_project, new_project)
    for name, old_user, new_user in work.users.changes():
        values = None if new_user is None else user_values(new_user)
        plan.row(schema.users, {"name": name}, old_user, values)
    for job_id, old, new in work.jobs.changes():
        plan.job(job_id, old, new)
    for (node, stream), seen, seq in work.cursors.changes():
        key = {"node_id": node, "stream": stream}
        plan.row(schema.report_streams, key, seen, {**key, "last_seq": seq})
    for (project_id, kind, document_id), stored, doc in work.documents.changes():
        place: Values = {"project_id": project_id, "kind": kind, "id": document_id}
        plan.row(schema.documents, place, stored, None if doc is None else {**place, "doc": doc})
    for name, stored, doc in work.pools.changes():
        plan.row(schema.pools, {"name": name}, stored, None if doc is None else {"name": name, "doc": doc})
    for node, stored, doc in work.nodes.changes():
        plan.row(schema.nodes, {"id": node}, stored, None if doc is None else {"id": node, "doc": doc})
    for name, stored, doc in work.topics.changes():
        plan.row(schema.topics, {"name": name}, stored, None if doc is None else {"name": name, "doc": doc})
    plan.outbox(work)
    for event in work.events:
        if work.jobs.get(event.job_id) is not None:
            plan.inserts[schema.events].append(event_values(event))
    plan.run(connection)
    counts.add_changes(connection, ((old, new) for _, old, new in work.jobs.changes()))


class _Plan:
    """Sort row changes by table."""

    def __init__(self) -> None:
        self.inserts: dict[Table, list[Values]] = defaultdict(list)
        self.updates: dict[Table, list[Values]] = defaultdict(list)
        self.deletes: dict[Table, list[Values]] = defaultdict(list)

    def row(self, table: Table, key: Values, old: object, new: Values | None, **guard: object) -> None:
        """Plan what leads from the old row to the new one; None: no row."""
        keyed = {f"key_{name}": value for name, value in (key | guard).items()}
        if new is None:
            self.deletes[table].append(keyed)
        elif old is None:
            self.inserts[table].append(new)
        else:
            self.updates[table].append({name: new[name] for name in new if name not in key} | keyed)

    def project(self, old: Project | None, new: Project | None) -> None:
        """Plan a project; its counters are the guard against a second process."""
        assert new is not None, "projects are not removed"
        check_text(new.id, new.name)
        values = {
            "id": new.id,
            "name": new.name,
            "next_number": new.next_number,
            "job_counts": encode_counts(new.job_counts),
        }
        guard: Values = {}
        if old is not None:
            guard = {"next_number": old.next_number, "job_counts": encode_counts(old.job_counts)}
        self.row(schema.projects, {"id": new.id}, old, values, **guard)

    def job(self, job_id: JobId, old: Job | None, new: Job | None) -> None:
        """Plan a job with all that hangs on it."""
        if new is None:
            self.deletes[schema.jobs].append({"key_id": job_id})  # takes the others along
            return
        guard = {} if old is None else {"revision": old.revision}
        self.row(schema.jobs, {"id": job_id}, old, job_values(new), **guard)
        if old is None or (old.spec is not new.spec and old.spec != new.spec):
            self.row(schema.specs, {"job_id": job_id}, old, spec_values(new))
            self._tags(job_id, {} if old is None else old.spec.tags, new.spec.tags)
        self._records(job_id, _records(old), _records(new))
        self._tasks(job_id, _tasks(old), _tasks(new))

    def outbox(self, work: Work) -> None:
        """Plan notices, which are only added and removed, and what became of their deliveries."""
        self.inserts[schema.notices] += [notice_values(notice) for notice in work.new_notices]
        self.deletes[schema.notices] += [{"key_id": key} for key, _, doc in work.notices.changes() if not doc]
        for (notice_id, topic), stored, state in work.deliveries.changes():
            key: Values = {"notice_id": notice_id, "topic": topic}
            values = None if state is None else {**key, "tries": state[0], "due_at_ms": state[1]}
            self.row(schema.deliveries, key, stored, values)

    def _tags(self, job_id: JobId, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        for key in _differing(old, new):
            value = new.get(key)
            values = None if value is None else tag_values(job_id, key, value)
            self.row(schema.tags, {"job_id": job_id, "key": key}, old.get(key), values)

    def _records(self, job_id: JobId, old: Mapping[int, Record], new: Mapping[int, Record]) -> None:
        for number in _differing(old, new):
            record = new.get(number)
            values = None if record is None else record_values(job_id, record)
            self.row(schema.records, {"job_id": job_id, "number": number}, old.get(number), values)

    def _tasks(
        self,
        job_id: JobId,
        old: Mapping[tuple[int, str], TaskPlace],
        new: Mapping[tuple[int, str], TaskPlace],
    ) -> None:
        for key in _differing(old, new):
            place = new.get(key)
            values = None if place is None else task_values(job_id, place[2], place[0], place[1])
            self.row(
                schema.tasks, {"job_id": job_id, "attempt": key[0], "name": key[1]}, old.get(key), values
            )

    def run(self, connection: Connection) -> None:
        """Execute the plan: what goes first, so that its place is free for what comes."""
        for statements, rows_of in (
            (_DELETES, self.deletes),
            (_UPDATES, self.updates),
            (_INSERTS, self.inserts),
        ):
            for table, statement in statements.items():
                if rows := rows_of.get(table):
                    _execute(connection, statement, rows, guarded=table in _GUARDS)


def _execute(connection: Connection, statement: Any, rows: list[Values], *, guarded: bool) -> None:
    result = connection.execute(statement, rows[0] if len(rows) == 1 else rows)
    if guarded and not isinstance(statement, Insert) and result.rowcount != len(rows):
        raise StaleView


def _records(job: Job | None) -> dict[int, Record]:
    if job is None:
        return {}
    found = {record.number: record for record in job.records}
    assert len(found) == len(job.records), "two records of one number"
    return found


def _tasks(job: Job | None) -> dict[tuple[int, str], TaskPlace]:
    if job is None:
        return {}
    past = len(job.past_tasks)
    found: dict[tuple[int, str], TaskPlace] = {
        (task.attempt, task.name): (position, position < past, task)
        for position, task in enumerate((*job.past_tasks, *job.tasks))
    }
    assert len(found) == past + len(job.tasks), "two tasks of one name in one attempt"
    return found


def _differing(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> list[Any]:
    """Return the keys whose values differ, in the new order, then those that are gone."""
    changed = [key for key, value in new.items() if old.get(key) != value]
    return changed + [key for key in old if key not in new]
