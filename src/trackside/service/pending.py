"""Knows how callers ask why a job waits; what belongs to other projects is not told."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from trackside.domain.identity import Caller
from trackside.domain.job import Job, JobId, ProjectId
from trackside.domain.pending import Ahead, PendingReason
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason
from trackside.service.jobs import Jobs


class Pending:
    """Answers from what the scheduler knows; nothing is read from the database."""

    def __init__(
        self,
        jobs: Jobs,
        *,
        explain: Callable[[JobId], PendingReason | None],
        reasons: Callable[[Iterable[JobId]], Mapping[JobId, Reason]],
    ) -> None:
        self._jobs = jobs
        self._explain = explain
        self._reasons = reasons

    def explain(self, caller: Caller, job_id: str) -> tuple[Job, PendingReason | None]:
        """Return a job of the caller's and, if it waits, why."""
        job = self._jobs.show(caller, job_id)
        found = self._explain(job.id) if job.phase is Phase.QUEUED else None
        if found is not None:
            found = replace(found, ahead=tuple(_told(one, caller.project_id) for one in found.ahead))
        return job, found

    def with_reasons(self, jobs: Iterable[Job]) -> list[Job]:
        """Return jobs with the present reason of those that wait."""
        shown = list(jobs)
        reasons = self._reasons([job.id for job in shown if job.phase is Phase.QUEUED])
        return [replace(job, reason=reasons[job.id]) if job.id in reasons else job for job in shown]


def _told(one: Ahead, project_id: ProjectId) -> Ahead:
    if one.project_id == project_id:
        return one
    return replace(one, job_id=None, name=None, user=None, project_id=ProjectId(""))
