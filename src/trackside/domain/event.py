"""Knows what an event is: one dated sentence about a job."""

from dataclasses import dataclass
from enum import StrEnum

from trackside.domain.job import JobId


class Level(StrEnum):
    """How much an event matters."""

    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"


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
