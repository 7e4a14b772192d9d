"""Remembers what was appended lately, because a remote store shows it only some time later.

Knows two things of it: every sample until it can be read over there, and the newest sample of every series.
Both are bounded and both may forget: what they do not know is asked for remotely.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.ports import SeriesKey

HELD_SAMPLES_MAX = 200_000  # beyond it the oldest are left to the remote store, and answers lag behind
NEWEST_JOBS_MAX = 2_000

Points = dict[int, float]
Newest = dict[SeriesKey, tuple[int, float]]


@dataclass(slots=True)
class Batch:
    """Samples that came together and are let go together."""

    fresh: list[Sample]  # those that were not held already
    keys: list[SeriesKey]
    number: int | None = None  # in the queue, once they are there
    shipped_at: float | None = None  # by the monotonic clock; None: they still wait


@dataclass(slots=True)
class _Job:
    held: dict[SeriesKey, Points] = field(default_factory=dict)
    newest: Newest = field(default_factory=dict)
    known_since_ms: int | None = None  # from when on `newest` is complete; None: only what came by here


class Recent:
    """The samples of the last while, by job and series."""

    def __init__(self, *, visible_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._visible_seconds = visible_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._jobs: dict[JobId, _Job] = {}
        self._batches: deque[Batch] = deque()
        self._held = 0

    def add(self, samples: Sequence[Sample]) -> Batch:
        """Remember samples until they are let go or taken back."""
        batch = Batch([], [])
        with self._lock:
            for one in samples:
                key = SeriesKey(one.task, one.metric, one.card, one.labels)
                job = self._touch(one.job_id)
                held = job.held.setdefault(key, {})
                if one.at_ms in held:
                    continue
                held[one.at_ms] = one.value
                batch.fresh.append(one)
                batch.keys.append(key)
                if key not in job.newest or job.newest[key][0] < one.at_ms:
                    job.newest[key] = (one.at_ms, one.value)
            self._batches.append(batch)
            self._held += len(batch.fresh)
        return batch

    def take_back(self, batch: Batch) -> None:
        """Forget a batch that could not be kept after all."""
        with self._lock:
            self._batches.remove(batch)
            self._drop(batch)
            for job_id in {one.job_id for one in batch.fresh}:
                self._jobs[job_id].newest.clear()
                self._jobs[job_id].known_since_ms = None

    def shipped(self, through: int) -> None:
        """Take note that everything up to this number of the queue has arrived."""
        now = self._monotonic()
        with self._lock:
            for batch in self._batches:
                if batch.shipped_at is None and batch.number is not None and batch.number <= through:
                    batch.shipped_at = now

    def let_go(self) -> set[JobId]:
        """Drop what can be read remotely by now; return whose samples that were."""
        ripe = self._monotonic() - self._visible_seconds
        touched: set[JobId] = set()
        with self._lock:
            while self._batches:
                batch = self._batches[0]
                waiting = batch.shipped_at is None or batch.shipped_at > ripe
                if waiting and self._held <= HELD_SAMPLES_MAX:
                    break
                self._batches.popleft()
                self._drop(batch)
                touched.update(one.job_id for one in batch.fresh)
            self._evict()
        return touched

    def held(
        self, job_id: JobId, *, task: str | None, metric: str | None, start_ms: int, end_ms: int
    ) -> dict[SeriesKey, Points]:
        """Return the samples of a window that the remote store may not show yet."""
        with self._lock:
            job = self._jobs.get(job_id)
            found = {
                key: {at_ms: value for at_ms, value in points.items() if start_ms <= at_ms < end_ms}
                for key, points in (job.held.items() if job else ())
                if task in (None, key.task) and metric in (None, key.metric)
            }
        return {key: points for key, points in found.items() if points}

    def newest(self, job_id: JobId, since_ms: int) -> Newest | None:
        """Return the newest samples of a job since then; None if that is not known here."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.known_since_ms is None or job.known_since_ms > since_ms:
                return None
            return {key: point for key, point in job.newest.items() if point[0] >= since_ms}

    def learn(self, job_id: JobId, found: Newest, since_ms: int) -> None:
        """Take what the remote store knows of a job since then."""
        with self._lock:
            job = self._touch(job_id)
            for key, point in found.items():
                if key not in job.newest or job.newest[key][0] < point[0]:
                    job.newest[key] = point
            job.known_since_ms = since_ms
            self._evict()

    def forget(self, job_id: JobId) -> None:
        """Drop everything of a job; nothing older than now is known of it."""
        with self._lock:
            job = self._jobs.pop(job_id, None)
            if job:
                self._held -= sum(len(points) for points in job.held.values())

    def _touch(self, job_id: JobId) -> _Job:
        """Return a job, as the one used last."""
        job = self._jobs.pop(job_id, None) or _Job()
        self._jobs[job_id] = job
        return job

    def _drop(self, batch: Batch) -> None:
        for one, key in zip(batch.fresh, batch.keys, strict=True):
            job = self._jobs.get(one.job_id)
            points = job.held.get(key) if job else None
            if job and points and points.pop(one.at_ms, None) is not None:
                self._held -= 1
                if not points:
                    del job.held[key]

    def _evict(self) -> None:
        """Forget the newest samples of jobs that were quiet longest; what is held stays."""
        over = len(self._jobs) - NEWEST_JOBS_MAX
        for job_id in [key for key, job in self._jobs.items() if not job.held][: max(0, over)]:
            del self._jobs[job_id]
