"""Knows the jobs as last committed: all that somebody must still act on, and recently used finished ones.

Written by the writer's thread only, after a commit; read from any thread.
"""

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from trackside.domain.job import Job, JobId, ProjectId

FINISHED_WEIGHT_MAX = 50_000  # one per job and one per task it ever had: about 50 MB

Alias = tuple[ProjectId, int | str]  # a number or a short id, within its project


class JobCache:
    """Hold jobs in memory."""

    def __init__(self, *, finished_weight_max: int = FINISHED_WEIGHT_MAX) -> None:
        self._open: dict[JobId, Job] = {}  # not in a final phase, in order of arrival
        self._deleted: dict[JobId, Job] = {}  # over and marked as deleted
        self._finished: OrderedDict[JobId, Job] = OrderedDict()
        self._ids: dict[Alias, JobId] = {}
        self._finished_weight = 0
        self._finished_weight_max = finished_weight_max
        self._epoch = 0
        self._lock = Lock()

    @property
    def epoch(self) -> int:
        """Return a number that changes with every commit; take it before reading the database."""
        return self._epoch

    def get(self, job_id: JobId) -> Job | None:
        """Return the job if it is here."""
        job = self._open.get(job_id) or self._deleted.get(job_id)
        if job is not None or job_id not in self._finished:
            return job
        with self._lock:
            job = self._finished.get(job_id)
            if job is not None:
                self._finished.move_to_end(job_id)
            return job

    def find(self, alias: Alias) -> Job | None:
        """Return the job of that number or short id if it is here."""
        job_id = self._ids.get(alias)
        return None if job_id is None else self.get(job_id)

    def open_jobs(self) -> tuple[Job, ...]:
        """Return every job that is not in a final phase, oldest first."""
        with self._lock:
            return tuple(self._open.values())

    def deleted_jobs(self) -> tuple[Job, ...]:
        """Return every job that is over and marked as deleted."""
        with self._lock:
            return tuple(self._deleted.values())

    def remember(self, jobs: Iterable[Job], epoch: int) -> None:
        """Keep finished jobs that were read at `epoch`, unless something was committed since."""
        with self._lock:
            if epoch == self._epoch:
                for job in jobs:
                    if job.final:
                        self._put(job.id, job)
                self._shrink()

    def publish(self, changes: Iterable[tuple[JobId, Job | None]]) -> None:
        """Take over what was committed; None means deleted."""
        with self._lock:
            self._epoch += 1
            for job_id, job in changes:
                self._put(job_id, job)
            self._shrink()

    def reset(self, jobs: Iterable[Job]) -> None:
        """Start anew with these jobs."""
        with self._lock:
            self._epoch += 1
            self._open = {}
            self._deleted = {}
            self._finished = OrderedDict()
            self._ids = {}
            self._finished_weight = 0
            for job in jobs:
                self._put(job.id, job)

    def _put(self, job_id: JobId, job: Job | None) -> None:
        old = self._finished.pop(job_id, None)
        if old is not None:
            self._finished_weight -= _weight(old)
        if job is None:
            old = old or self._open.pop(job_id, None) or self._deleted.pop(job_id, None)
            self._forget_aliases(old)
            return
        self._ids.update((alias, job_id) for alias in _aliases(job))
        if not job.final:
            self._open[job_id] = job
        else:
            if job.deleting:
                self._deleted[job_id] = job
            else:
                self._finished[job_id] = job
                self._finished_weight += _weight(job)
            self._open.pop(job_id, None)

    def _shrink(self) -> None:
        while self._finished_weight > self._finished_weight_max:
            _, job = self._finished.popitem(last=False)
            self._finished_weight -= _weight(job)
            self._forget_aliases(job)

    def _forget_aliases(self, job: Job | None) -> None:
        for alias in _aliases(job) if job is not None else ():
            self._ids.pop(alias, None)


def _aliases(job: Job) -> tuple[Alias, ...]:
    return ((job.project_id, job.number), (job.project_id, job.short_id))


def _weight(job: Job) -> int:
    return 1 + len(job.tasks) + len(job.past_tasks)
