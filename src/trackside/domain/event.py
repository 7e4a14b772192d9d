"""Knows what an event is: one dated sentence about a job."""

from dataclasses import dataclass
from enum import StrEnum

from trackside.domain.job import JobId


class Level(StrEnum):
    """How much an event matters."""

    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"


class EventKind(StrEnum):
    """The turns of a job's life that somebody may want to be told of."""

    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    RESTARTED = "restarted"
    HANGED = "hanged"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Tell what happened to a job, when, and who says so."""

    job_id: JobId
    at_ms: int
    message: str
    level: Level = Level.INFO
    source: str = "trackside"
    task: str | None = None
    attempt: int | None = None
    kind: EventKind | None = None  # None: nothing to notify anybody of
