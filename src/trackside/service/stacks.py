"""Knows how the stacks of all tasks of a job are taken and found again; not what a stack looks like."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from trackside.domain.errors import TracksideError
from trackside.domain.event import Event, Level
from trackside.domain.exchange import Answered, ErrandKind
from trackside.domain.identity import Caller
from trackside.domain.job import Job, Task, TaskState
from trackside.domain.wording import counted
from trackside.ports import Clock, Snapshot, StackStore
from trackside.service.jobs import Jobs

WAIT_SECONDS_MAX = 30.0  # for a node's answer: a hanging job can wait that long
SHOWN_MAX = 64
REASONS_TOLD_MAX = 3
_NO_ANSWER = "its node did not answer in time"


class Errands(Protocol):
    """What this needs of those who send nodes on errands."""

    def ask(self, job: Job, task: str, kind: ErrandKind) -> str:
        """Send the node of a running task on an errand; return the errand's id."""
        ...

    async def answer(self, errand_id: str, *, wait_seconds: float) -> Answered | None:
        """Wait for an answer; None if none came in that time."""
        ...

    def withdraw(self, errand_id: str) -> None:
        """Ask no longer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """One snapshot of one task, as it is shown."""

    snapshot: Snapshot
    record: int | None  # the number of the job's attempt; None: it is not known any more
    text: str


class StackTaker:
    """Take and show stacks."""

    def __init__(self, jobs: Jobs, store: StackStore, errands: Errands, clock: Clock) -> None:
        self._jobs = jobs
        self._store = store
        self._errands = errands
        self._clock = clock

    async def take(self, job: Job) -> list[Event]:
        """Keep where every running task of a job stands; return what is to be told of it."""
        running = [task for task in job.tasks if task.state is TaskState.RUNNING]
        at_ms = self._clock.now_ms()  # the same of all: one look at the whole job
        troubles = await asyncio.gather(*(self._take_one(job, task, at_ms) for task in running))
        missing = [(task, why) for task, why in zip(running, troubles, strict=True) if why is not None]
        events, now = [], self._clock.now_ms()
        taken = len(running) - len(missing)
        if taken:
            told = f"the stacks of {counted(taken, 'task')} were taken: trackside stacks {job.spec.name}"
            events.append(Event(job_id=job.id, at_ms=now, message=told))
        for task, why in missing[:REASONS_TOLD_MAX]:
            told = f"the stacks of {task.name} could not be taken: {why}"
            event = Event(job_id=job.id, at_ms=now, message=told, level=Level.WARNING, task=task.name)
            events.append(event)
        return events

    async def shown(
        self, caller: Caller, job_id: str, *, task: str | None = None, record: int | None = None
    ) -> tuple[list[Stacks], int]:
        """Return the newest stacks that were kept, of a task or an attempt alone, and how many there are."""
        job = self._jobs.show(caller, job_id)
        record_of: dict[tuple[str, int], int]
        record_of = {(one.name, one.attempt): one.record for one in (*job.past_tasks, *job.tasks)}
        wanted = [
            (one, record_of.get((one.task, one.attempt))) for one in await self._store.snapshots(job.id)
        ]
        wanted = [
            (one, number) for one, number in wanted if task in (None, one.task) and record in (None, number)
        ]
        newest = wanted[-SHOWN_MAX:]
        texts = [await self._store.read(job.id, one) for one, _ in newest]
        shown = [
            Stacks(snapshot=one, record=number, text=text)
            for (one, number), text in zip(newest, texts, strict=True)
        ]
        return shown, len(wanted)

    async def _take_one(self, job: Job, task: Task, at_ms: int) -> str | None:
        """Keep the stacks of one task; return why that was not possible."""
        try:
            errand_id = self._errands.ask(job, task.name, ErrandKind.STACKS)
        except TracksideError as error:
            return str(error)
        answered = await self._errands.answer(errand_id, wait_seconds=WAIT_SECONDS_MAX)
        if answered is None:
            self._errands.withdraw(errand_id)
            return _NO_ANSWER
        if not answered.done:
            return answered.text
        snapshot = Snapshot(task=task.name, attempt=task.attempt, at_ms=at_ms)
        await self._store.keep(job.id, snapshot, answered.text)
        return None
