"""Knows how the answer to "why does my job wait" is made: a reason, a place in the line, numbers, a guess."""

from dataclasses import dataclass

from trackside.domain.job import JobId, ProjectId
from trackside.domain.reason import Reason, ReasonCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """A job that goes first, and how large it is."""

    job_id: JobId | None  # None, like the name and the user: those of other projects are not told
    project_id: ProjectId
    name: str | None
    user: str | None
    priority: int
    tasks: int
    cpu_cores: float
    memory_bytes: int
    cards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """What is free: on the pool's open machines together, and the largest piece on one of them."""

    cpu_cores: float
    memory_bytes: int
    cards: int
    largest_cpu_cores: float
    largest_memory_bytes: int
    largest_cards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When a job starts: at the earliest, probably, at the latest; None, with why, where nobody can tell."""

    earliest_ms: int | None = None
    likely_ms: int | None = None
    latest_ms: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingReason:
    """Why a job waits, what for, behind whom, and until when."""

    code: ReasonCode
    text: str
    position: int  # 1: the first in line
    waiting: int  # jobs in the same line
    ahead: tuple[Ahead, ...]  # the first few of them
    free: Free
    estimate: Estimate
    hints: tuple[str, ...]

    @property
    def reason(self) -> Reason:
        """Return the reason alone."""
        return Reason(text=self.text, code=self.code, hint=self.hints[0] if self.hints else None)
