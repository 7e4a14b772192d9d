"""Knows how domain objects become rows and come back equal; executes nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, get_type_hints

import msgspec
from sqlalchemy import Row

from trackside.domain.errors import Invalid
from trackside.domain.event import Event, EventKind, Level
from trackside.domain.identity import User, UserRole
from trackside.domain.job import Job, JobId, JobSpec, ProjectId, Record, Task
from trackside.domain.notice import Notice
from trackside.domain.phase import Phase

Values = dict[str, Any]

INTEGER_MAX = 2**63 - 1  # of the databases' widest whole number
NUL_IN_JSON = b"\\u0000"


# Where the fields of a Job are kept; any other field goes into the JSON of `state`.
_IN_COLUMNS = frozenset(
    {
        "id",
        "short_id",
        "number",
        "family",
        "version",
        "project_id",
        "owner",
        "phase",
        "created_at_ms",
        "started_at_ms",
        "ended_at_ms",
        "deleting",
        "revision",
    }
)
_IN_TABLES = frozenset({"spec", "records", "tasks", "past_tasks"})
_IN_STATE = tuple(field for field in fields(Job) if field.name not in _IN_COLUMNS | _IN_TABLES)


def _plain(value: object) -> object:
    """Turn what JSON does not know into what it does."""
    if isinstance(value, Mapping | MappingProxyType):
        return dict(value)
    raise Invalid(f"a {type(value).__name__} cannot be stored")


def _state_type() -> type[msgspec.Struct]:
    """Return the shape of `state`; a field the document lacks gets the Job's own default."""
    hints = get_type_hints(Job)
    return msgspec.defstruct("State", [(field.name, hints[field.name], field.default) for field in _IN_STATE])


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_spec_decoder = msgspec.json.Decoder(JobSpec)
_state_decoder = msgspec.json.Decoder(_state_type())
_record_decoder = msgspec.json.Decoder(Record)
_counts_decoder = msgspec.json.Decoder(dict[str, int])
_task_decoder = msgspec.json.Decoder(Task)
_notice_decoder = msgspec.json.Decoder(Notice)


def fold(text: str) -> str:
    """Return the text as it is compared when case does not matter."""
    return text.casefold()


def check_text(*texts: str | None) -> None:
    """Raise Invalid if a text cannot be stored: both databases then refuse the same ones."""
    for text in texts:
        if text is None:
            continue
        if "\x00" in text:
            raise Invalid("text must not contain NUL characters")
        if not text.isascii():
            _check_unicode(text)


def check_number(*numbers: int | None) -> None:
    """Raise Invalid if a whole number is wider than the databases keep."""
    for number in numbers:
        if number is not None and not -INTEGER_MAX <= number <= INTEGER_MAX:
            raise Invalid("a number is too large to be stored")


def job_values(job: Job) -> Values:
    """Return the row of `jobs`."""
    spec = job.spec
    values = {
        "id": job.id,
        "project_id": job.project_id,
        "number": job.number,
        "short_id": job.short_id or None,  # unique, where there is one
        "family": job.family,
        "version": job.version,
        "workspace_id": spec.workspace_id,
        "name": spec.name,
        "name_folded": fold(spec.name),
        "description_folded": fold(spec.description),
        "kind": spec.kind,
        "phase": job.phase.value,
        "owner": job.owner,
        "pool_id": spec.pool_id,
        "priority": spec.priority,
        "created_at_ms": job.created_at_ms,
        "started_at_ms": job.started_at_ms,
        "ended_at_ms": job.ended_at_ms,
        "deleting": job.deleting,
        "revision": job.revision,
        "state": _encode({field.name: getattr(job, field.name) for field in _IN_STATE}),
    }
    return _checked(values)


def spec_values(job: Job) -> Values:
    """Return the row of `specs`, or raise Invalid if it could not be read back."""
    doc = _encode(job.spec)
    try:
        _spec_decoder.decode(doc)
    except msgspec.ValidationError as error:  # a float that is no number, for one
        raise Invalid(f"this cannot be stored: {error}") from None
    return {"job_id": job.id, "doc": doc}


def tag_values(job_id: JobId, key: str, value: str) -> Values:
    """Return the row of `tags` of one tag."""
    return _checked({"job_id": job_id, "key": key, "value": value})


def record_values(job_id: JobId, record: Record) -> Values:
    """Return the row of `records` of one attempt."""
    return _checked({"job_id": job_id, "number": record.number, "doc": _encode(record)})


def task_values(job_id: JobId, task: Task, position: int, past: bool) -> Values:
    """Return the row of `tasks` of one task."""
    values = {
        "job_id": job_id,
        "attempt": task.attempt,
        "name": task.name,
        "position": position,
        "past": past,
        "doc": _encode(task),
    }
    return _checked(values)


def event_values(event: Event) -> Values:
    """Return the row of `events`."""
    values = {
        "job_id": event.job_id,
        "at_ms": event.at_ms,
        "level": event.level.value,
        "source": event.source,
        "task": event.task,
        "attempt": event.attempt,
        "message": event.message,
        "message_folded": fold(event.message),
        "kind": None if event.kind is None else event.kind.value,
    }
    return _checked(values)


def notice_values(notice: Notice) -> Values:
    """Return the row of `notices`; the database numbers it."""
    return {"doc": _encode(notice)}


def encode_counts(counts: Mapping[str, int]) -> str:
    """Return the text of `job_counts`."""
    return _encode(counts)


def decode_counts(text: str) -> dict[str, int]:
    """Return jobs per workspace."""
    return _counts_decoder.decode(text)


def user_values(user: User) -> Values:
    """Return the row of `users`."""
    values = {
        "name": user.name,
        "project_id": user.project_id,
        "role": user.role.value,
        "access_key": user.access_key,
        "secret_key": user.secret_key,
        "token_digest": user.token_digest,
    }
    return _checked(values)


def job_of(row: Row[Any], records: Iterable[Row[Any]], tasks: Iterable[Row[Any]]) -> Job:
    """Return the job whose row (joined with its specification), records and tasks these are."""
    state = _state_decoder.decode(row.state)
    all_tasks = [(task.past, _task_decoder.decode(task.doc)) for task in tasks]
    return Job(
        id=row.id,
        short_id=row.short_id or "",
        number=row.number,
        family=row.family,
        version=row.version,
        project_id=row.project_id,
        owner=row.owner,
        spec=_spec_decoder.decode(row.doc),
        phase=Phase(row.phase),
        created_at_ms=row.created_at_ms,
        started_at_ms=row.started_at_ms,
        ended_at_ms=row.ended_at_ms,
        records=tuple(_record_decoder.decode(record.doc) for record in records),
        tasks=tuple(task for past, task in all_tasks if not past),
        past_tasks=tuple(task for past, task in all_tasks if past),
        deleting=row.deleting,
        revision=row.revision,
        **msgspec.structs.asdict(state),
    )


def event_of(row: Row[Any]) -> Event:
    """Return the event of a row."""
    return Event(
        job_id=JobId(row.job_id),
        at_ms=row.at_ms,
        message=row.message,
        level=Level(row.level),
        source=row.source,
        task=row.task,
        attempt=row.attempt,
        kind=None if row.kind is None else EventKind(row.kind),
    )


def notice_of_doc(doc: str) -> Notice:
    """Return the notice of a stored document."""
    return _notice_decoder.decode(doc)


def user_of(row: Row[Any]) -> User:
    """Return the user of a row."""
    return User(
        name=row.name,
        project_id=ProjectId(row.project_id),
        role=UserRole(row.role),
        access_key=row.access_key,
        secret_key=row.secret_key,
        token_digest=row.token_digest,
    )


def _encode(value: object) -> str:
    try:
        doc = _encoder.encode(value)
    except (UnicodeError, OverflowError, TypeError) as error:
        raise Invalid(f"this cannot be stored: {error}") from None
    if NUL_IN_JSON in doc and _holds_nul(msgspec.json.decode(doc)):
        raise Invalid("text must not contain NUL characters")
    return doc.decode()


def _holds_nul(value: object) -> bool:
    """Look closely: an escaped backslash before u0000 only looks like one."""
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
    return isinstance(value, list) and any(_holds_nul(item) for item in value)


def _checked(values: Values) -> Values:
    for value in values.values():
        if isinstance(value, str):
            check_text(value)
        elif isinstance(value, int):
            check_number(value)
    return values


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid("text must be valid Unicode: it holds half of a surrogate pair") from None
