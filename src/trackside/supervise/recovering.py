"""Knows what recovery needs besides room: faulty parts are isolated first, and nobody waits for ever."""

from collections.abc import Awaitable, Callable, Iterable

from trackside.domain import rules
from trackside.domain.fault import BY_QUEUE, Isolation
from trackside.domain.job import Job, JobId
from trackside.domain.phase import Phase
from trackside.domain.recovery import open_recovery
from trackside.ports import Clock, JobStore, Update


class Recovering:
    """Looks after the jobs that are being brought back through the queue."""

    def __init__(
        self, store: JobStore, clock: Clock, isolate: Callable[[Isolation, str], Awaitable[None]] | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._isolate = isolate
        self._deadlines_ms: dict[tuple[JobId, int], int] = {}  # by the monotonic clock: wall clocks jump
        self._isolated: set[tuple[JobId, int]] = set()

    async def isolate(self, jobs: Iterable[Job]) -> None:
        """Keep the faulty parts of recovering jobs from being given out again; asking twice is harmless."""
        told: set[tuple[JobId, int]] = set()
        for job in jobs:
            trying = open_recovery(job)
            if trying is None or trying.isolated is None or self._isolate is None:
                continue
            key = job.id, job.records[-1].number
            told.add(key)
            if key not in self._isolated:
                await self._isolate(trying.isolated, trying.reason.text)
        self._isolated = told

    async def give_up(self, jobs: Iterable[Job]) -> None:
        """Fail the jobs that got no room to recover for as long as they may wait."""
        now = self._clock.monotonic_ms()
        deadlines: dict[tuple[JobId, int], int] = {}
        for job in jobs:
            limit = job.spec.recovery.wait_seconds_max
            trying = open_recovery(job) if job.phase is Phase.QUEUED else None
            if limit is None or trying is None or trying.level not in BY_QUEUE:
                continue
            record = job.records[-1]
            key = job.id, record.number
            waited_ms = max(0, self._clock.now_ms() - record.queued_at_ms)
            deadlines[key] = self._deadlines_ms.get(key, now + limit * 1000 - waited_ms)
            if now >= deadlines[key]:
                await self._store.update(job.id, self._given_up)
        self._deadlines_ms = deadlines

    def _given_up(self, job: Job) -> Update | None:
        moved = rules.give_up_waiting(job, at_ms=self._clock.now_ms())
        return Update(job=moved[0], events=moved[1]) if moved else None
