"""Knows when a waiting job's reason is worth an event: when it becomes another, once a minute at most."""

from collections.abc import Sequence

from trackside.domain.event import Event
from trackside.domain.job import Job, JobId
from trackside.domain.phase import Phase
from trackside.domain.reason import ReasonCode
from trackside.schedule.core import Scheduler
from trackside.schedule.explain import Reasons

EVERY_MS = 60_000  # one event per job in this time
LOOK_EVERY_MS = 5_000  # all waiting jobs are looked at again this often at most
SOURCE = "scheduler"


class Telling:
    """Remembers what was told of each waiting job."""

    def __init__(self) -> None:
        self._told: dict[JobId, tuple[ReasonCode, int]] = {}
        self._looked_ms = 0

    def events(self, core: Scheduler, jobs: Sequence[Job], now_ms: int) -> list[Event]:
        """Return the events to store now: of jobs new to the queue at once, of the others in time."""
        waiting = [job.id for job in jobs if job.phase is Phase.QUEUED and core.waits(job.id)]
        if 0 <= now_ms - self._looked_ms < LOOK_EVERY_MS:
            looked_at = [job_id for job_id in waiting if job_id not in self._told]
        else:
            looked_at, self._looked_ms = waiting, now_ms
            self._told = {job_id: self._told[job_id] for job_id in waiting if job_id in self._told}
        reasons, events = Reasons(core), []
        for job_id in looked_at:
            code = reasons.code(job_id)
            before, at_ms = self._told.get(job_id, (None, 0))
            if code != before and (before is None or now_ms - at_ms >= EVERY_MS):
                message = f"waiting: {reasons.text(job_id)}"
                events.append(Event(job_id=job_id, at_ms=now_ms, message=message, source=SOURCE))
                self._told[job_id] = code, now_ms
        return events
