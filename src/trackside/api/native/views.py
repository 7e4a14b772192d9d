"""Knows how Trackside itself shows a job: the native JSON, in the domain's own words."""

from typing import Any

import msgspec

from trackside.domain.job import Job, Record, Task
from trackside.domain.reason import Reason


class ReasonView(msgspec.Struct, frozen=True, kw_only=True):
    """Why something is as it is."""

    text: str
    code: str
    certainty: str
    task: str | None = None
    evidence: tuple[str, ...] = ()
    hint: str | None = None


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt."""

    number: int
    start_type: str
    queued_at_ms: int
    placed_at_ms: int | None
    running_at_ms: int | None
    ended_at_ms: int | None
    duration_ms: int | None
    reason: ReasonView | None
    culprit: str | None


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """One task of the current attempt."""

    name: str
    attempt: int
    node: str
    state: str
    cards: tuple[int, ...]
    cpu_cores: float
    memory_bytes: int
    started_at_ms: int | None
    ended_at_ms: int | None
    duration_ms: int | None
    exit_code: int | None
    signal: int | None
    reason: ReasonView | None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job and everything known of it."""

    schema: str = "trackside/1"
    id: str
    number: int
    name: str
    owner: str
    phase: str
    description: str
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    reason: ReasonView | None
    suspicion: ReasonView | None  # why it seems to hang
    records: tuple[RecordView, ...]
    tasks: tuple[TaskView, ...]
    workers: int
    revision: int


def view_job(job: Job) -> JobView:
    """Return a job as the native API shows it."""
    return JobView(
        id=job.id,
        number=job.number,
        name=job.spec.name,
        owner=job.owner,
        phase=job.phase,
        description=job.spec.description,
        created_at_ms=job.created_at_ms,
        started_at_ms=job.started_at_ms,
        ended_at_ms=job.ended_at_ms,
        reason=view_reason(job.reason or (job.ending.reason if job.ending else None)),
        suspicion=view_reason(job.suspicion),
        records=tuple(_record(record) for record in job.records),
        tasks=tuple(_task(task) for task in job.tasks),
        workers=job.spec.node_count,
        revision=job.revision,
    )


def view_reason(reason: Reason | None) -> ReasonView | None:
    """Return a reason as the native API shows it."""
    return msgspec.convert(reason, ReasonView, from_attributes=True) if reason else None


def _record(record: Record) -> RecordView:
    shared: dict[str, Any] = {
        name: getattr(record, name)
        for name in RecordView.__struct_fields__
        if name not in ("reason", "start_type")
    }
    return RecordView(**shared, start_type=record.start_type, reason=view_reason(record.reason))


def _task(task: Task) -> TaskView:
    return TaskView(
        name=task.name,
        attempt=task.attempt,
        node=task.node_id,
        state=task.state,
        cards=task.cards,
        cpu_cores=task.resources.cpu_cores,
        memory_bytes=task.resources.memory_bytes,
        started_at_ms=task.started_at_ms,
        ended_at_ms=task.ended_at_ms,
        duration_ms=task.duration_ms,
        exit_code=task.exit_code,
        signal=task.signal,
        reason=view_reason(task.reason),
    )
