"""Knows what callers can learn of one attempt: its times, its part of the log, all of it as one file."""

from collections.abc import AsyncIterator

from trackside.domain.errors import NotFound, TaskNotFound
from trackside.domain.identity import Caller
from trackside.domain.job import Job, Record, task_names
from trackside.domain.timing import first_starts
from trackside.ports import Clock, LogSlice, LogStore, StackStore
from trackside.service.archive import Archive
from trackside.service.export import Export, log_starts
from trackside.service.jobs import Jobs
from trackside.service.metrics import Metrics

NAMES_SHOWN = 8


class Attempts:
    """Read single attempts; everything is there for as long as the job is kept."""

    def __init__(
        self, jobs: Jobs, logs: LogStore, stacks: StackStore, metrics: Metrics, *, clock: Clock
    ) -> None:
        self._jobs = jobs
        self._logs = logs
        self._stacks = stacks
        self._metrics = metrics
        self._clock = clock

    def now_ms(self) -> int:
        """Return the time by which attempts that go on are told."""
        return self._clock.now_ms()

    def find(self, caller: Caller, job_id: str, number: int) -> tuple[Job, Record]:
        """Return a job and its attempt of this number, counted from 1."""
        job = self._jobs.show(caller, job_id)
        record = next((one for one in job.records if one.number == number), None)
        if record is None:
            last = job.records[-1].number if job.records else 0
            raise NotFound(f"job {job.id} has no attempt {number}; its last one is {last}")
        return job, record

    def span(self, job: Job, record: Record) -> tuple[int, int] | None:
        """Return [start, end) of what ran in an attempt, by the wall clock; None: nothing did."""
        started = first_starts(job).get(record.number)
        if started is None:
            return None
        ended = self._clock.now_ms() if record.ended_at_ms is None else record.ended_at_ms
        return started, max(started, ended) + 1

    async def log_lines(
        self,
        caller: Caller,
        job_id: str,
        number: int,
        task: str,
        *,
        base_line: int | None,
        count: int,
        descending: bool,
    ) -> LogSlice:
        """Return some whole lines of what a task printed in an attempt; they are counted from its start."""
        job, record = self.find(caller, job_id, number)
        if task not in task_names(job.spec):
            known = ", ".join(task_names(job.spec)[:NAMES_SHOWN])
            raise TaskNotFound(f"job {job.id} has no task {task!r}; it has {known}")
        return await self._logs.lines(
            job.id,
            task,
            base_line=base_line,
            count=count,
            descending=descending,
            attempts=log_starts(job, record).get(task, []),
        )

    def export(self, caller: Caller, job: Job, record: Record, described: bytes) -> AsyncIterator[bytes]:
        """Return everything of an attempt as the pieces of one ZIP file; `described` says it all as JSON."""
        at_ms = record.ended_at_ms or self._clock.now_ms()
        export = Export(
            caller=caller,
            job=job,
            record=record,
            span=self.span(job, record),
            now_ms=self._clock.now_ms(),
            logs=self._logs,
            stacks=self._stacks,
            metrics=self._metrics,
            jobs=self._jobs,
        )
        return export.pieces(Archive(at_ms=at_ms), described)
