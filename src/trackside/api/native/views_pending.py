"""Knows how Trackside itself shows why a job is where it is."""

import msgspec

from trackside.api.native.views import ReasonView
from trackside.domain.job import Job
from trackside.domain.pending import PendingReason


class AheadView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that goes first; of other projects only its size is told."""

    job_id: str | None
    name: str | None
    user: str | None
    priority: int
    tasks: int
    cpu_cores: float
    memory_bytes: int
    cards: int


class FreeView(msgspec.Struct, frozen=True, kw_only=True):
    """What is free in the pool, together and in the largest piece on one machine."""

    cpu_cores: float
    memory_bytes: int
    cards: int
    largest_cpu_cores: float
    largest_memory_bytes: int
    largest_cards: int


class EstimateView(msgspec.Struct, frozen=True, kw_only=True):
    """When the job starts, as far as anybody can tell, and why not further."""

    earliest_ms: int | None
    likely_ms: int | None
    latest_ms: int | None
    why: str


class PendingView(msgspec.Struct, frozen=True, kw_only=True):
    """What a waiting job waits for."""

    code: str
    text: str
    position: int
    waiting: int
    ahead: tuple[AheadView, ...]
    free: FreeView
    estimate: EstimateView
    hints: tuple[str, ...]


class ExplainView(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is; `pending` only if it waits."""

    schema: str = "trackside/1"
    job_id: str
    phase: str
    reason: ReasonView | None
    pending: PendingView | None


def view_explanation(job: Job, pending: PendingReason | None) -> ExplainView:
    """Return the explanation of a job as the native API shows it."""
    known = job.suspicion or job.reason or (job.ending.reason if job.ending else None)
    reason = pending.reason if pending else known
    return ExplainView(
        job_id=job.id,
        phase=job.phase,
        reason=msgspec.convert(reason, ReasonView, from_attributes=True) if reason else None,
        pending=msgspec.convert(pending, PendingView, from_attributes=True) if pending else None,
    )
