"""Knows what a notice is: one turn of a job's life as it was when it happened, kept until everybody heard."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trackside.domain.event import Event, EventKind
from trackside.domain.job import Job
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason

# How each turn is called towards the outside, the same for every receiver.
EVENT_NAMES: dict[EventKind, str] = {
    EventKind.STARTED: "JobStarted",
    EventKind.COMPLETED: "JobCompleted",
    EventKind.FAILED: "JobFailed",
    EventKind.STOPPED: "JobTerminated",
    EventKind.RESTARTED: "JobRestarted",
    EventKind.HANGED: "JobHanged",
    EventKind.PREEMPTED: "JobPreempted",
}
KIND_OF_NAME = {name: kind for kind, name in EVENT_NAMES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Tell of a turn of a job's life, also when the job is gone by then."""

    id: str  # the same however often it is sent: a receiver can drop doubles by it
    kind: EventKind
    at_ms: int
    message: str
    job_id: str
    short_id: str
    job_name: str
    project_id: str
    workspace_id: str
    owner: str
    phase: Phase
    attempt: int | None = None
    reason: Reason | None = None
    culprit: str | None = None
    # What the job's creator said, by dialect: the dialect finds there who is to be told.
    declared: Mapping[str, Any] = field(default_factory=dict, repr=False)


def notice_of(job: Job, event: Event, *, notice_id: str) -> Notice:
    """Return the notice of an event that has a kind."""
    assert event.kind is not None, "there is nothing to notify anybody of"
    record = job.records[-1] if job.records else None
    ended = next((one for one in reversed(job.records) if one.reason is not None), None)
    reason = job.reason or (ended.reason if ended else None)
    culprit = event.task or (reason.task if reason else None) or (ended.culprit if ended else None)
    return Notice(
        id=notice_id,
        kind=event.kind,
        at_ms=event.at_ms,
        message=event.message,
        job_id=job.id,
        short_id=job.short_id,
        job_name=job.spec.name,
        project_id=job.project_id,
        workspace_id=job.spec.workspace_id,
        owner=job.owner,
        phase=job.phase,
        attempt=event.attempt or (record.number if record else None),
        reason=reason if event.kind not in _WITHOUT_REASON else None,
        culprit=culprit if event.kind not in _WITHOUT_REASON else None,
        declared=job.spec.declared,
    )


# A job that runs well may still carry the reason of its last attempt's end: that is old news.
_WITHOUT_REASON = frozenset({EventKind.STARTED})
