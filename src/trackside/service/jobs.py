"""Knows what callers may do with jobs: submit, look, change, stop, delete."""

import secrets
import string
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from trackside.domain import rules
from trackside.domain.errors import Invalid, JobNotFound, TaskNotFound
from trackside.domain.event import Event, Level
from trackside.domain.fault import RecoveryPolicy
from trackside.domain.identity import Caller
from trackside.domain.job import Job, JobId, JobSpec, Record, task_names
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason, ReasonCode
from trackside.ports import Clock, EventPage, EventQuery, JobPage, JobQuery, JobStore, ObjectStore, Update
from trackside.service.catalog import Catalog
from trackside.service.checks import check_objects, check_spec
from trackside.service.quotas import Admit

MESSAGE_LENGTH_MAX = 4096
SHORT_ID_LENGTH = 16
_SHORT_ID_LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """What may change after submission; None leaves a thing as it is."""

    description: str | None = None
    priority: int | None = None
    preemptible: bool | None = None
    annotations: Mapping[str, str] | None = None  # merged over the present ones
    recovery: RecoveryPolicy | None = None
    tags: Mapping[str, str] | None = None  # replace all present ones
    declared: Mapping[str, object] | None = None  # replaces a dialect's own words, by dialect


class PoolGate(Protocol):
    """Says whether a job may wait in the pool it names."""

    def check(self, caller: Caller, spec: JobSpec) -> None:
        """Raise PoolNotFound, Invalid or Exhausted if it could never run there."""
        ...

    def check_open(self, spec: JobSpec) -> None:
        """Raise PoolNotFound if its pool is gone; asked again when the job is stored, by another thread."""
        ...


class Jobs:
    """Everything a caller can do with jobs. Nothing starts in here: the supervisor is woken instead."""

    def __init__(
        self,
        *,
        store: JobStore,
        catalog: Catalog,
        objects: ObjectStore,
        clock: Clock,
        pools: PoolGate,
        grace_seconds: float,
        wake: Callable[[], None],
        orders_changed: Callable[[], None],
        admit: Admit = lambda _: nullcontext(),
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._objects = objects
        self._clock = clock
        self._pools = pools
        self._grace_seconds = grace_seconds
        self._wake = wake
        self._orders_changed = orders_changed
        self._admit = admit

    async def submit(
        self, caller: Caller, spec: JobSpec, *, version_of: Job | None = None, doubts: Sequence[str] = ()
    ) -> Job:
        """Check a job and queue it, as the next version after `version_of` if given; it is then durable.

        `doubts` say what will not work of it, and become events.
        """
        check_spec(spec)
        runtime = self._catalog.resolve(spec.runtime)
        self._pools.check(caller, spec)
        await check_objects(spec, self._objects)
        spec = replace(spec, grace_seconds=self._grace_seconds)
        job_id, short_id, now = JobId(str(uuid.uuid4())), new_short_id(), self._clock.now_ms()
        events = [Event(job_id=job_id, at_ms=now, message=f"submitted by {caller.user}")]
        if spec.runtime.image and runtime is None:
            told = f"the image {spec.runtime.image} was not used: no engine stands for it here"
            events.append(Event(job_id=job_id, at_ms=now, message=told, level=Level.WARNING))
        events += _warnings(job_id, doubts, now)

        def make(number: int) -> Update:
            self._pools.check_open(spec)
            job = Job(
                id=job_id,
                short_id=short_id,
                number=number,
                family=version_of.family if version_of else number,
                version=version_of.version + 1 if version_of else 1,
                project_id=caller.project_id,
                owner=caller.user,
                spec=spec,
                phase=Phase.QUEUED,
                created_at_ms=now,
                records=(Record(number=1, queued_at_ms=now),),
            )
            return Update(job=job, events=tuple(events))

        async with self._admit(caller):
            job = await self._store.insert(caller.project_id, make)
        self._wake()
        return job

    def show(self, caller: Caller, job_id: str) -> Job:
        """Return a job of the caller's project."""
        job = self._store.get(JobId(job_id))
        if job is None or job.project_id != caller.project_id or job.deleting:
            raise JobNotFound(f"there is no job {job_id!r} in this project")
        return job

    def find(self, caller: Caller, *, short_id: str = "", number: int = 0) -> Job:
        """Return a job of the caller's project by its short id or its number."""
        job = self._store.find(caller.project_id, short_id=short_id, number=number)
        if job is None or job.deleting:
            raise JobNotFound(f"there is no job {short_id or number!r} in this project")
        return job

    async def search(self, caller: Caller, query: JobQuery) -> JobPage:
        """Return the jobs of the caller's project that match."""
        return await self._store.search(replace(query, project_id=caller.project_id))

    async def change(
        self, caller: Caller, job_id: str, wanted: JobChange, *, doubts: Sequence[str] = ()
    ) -> Job:
        """Change what may be changed of a job."""
        job = self.show(caller, job_id)

        def change(job: Job) -> Update:
            if wanted.priority not in (None, job.spec.priority) and job.phase is not Phase.QUEUED:
                raise Invalid("the priority can only be changed while the job is queued")
            told = _warnings(job.id, doubts, self._clock.now_ms())
            return Update(job=replace(job, spec=_changed(job.spec, wanted)), events=told)

        job = await self._store.update(job.id, change)
        self._wake()
        return job

    async def stop(self, caller: Caller, job_id: str) -> Job:
        """Ask a job to stop; one that is over already is left as it is."""
        job = self.show(caller, job_id)

        def change(job: Job) -> Update | None:
            if job.final or job.phase is Phase.STOPPING:
                return None
            moved, events = rules.ask_stop(job, by=caller.user, at_ms=self._clock.now_ms())
            return Update(job=moved, events=events)

        job = await self._store.update(job.id, change)
        self._orders_changed()
        self._wake()
        return job

    async def delete(self, caller: Caller, job_id: str) -> None:
        """Delete a job: at once for everybody who looks, and for good once its tasks have drained."""
        job = self.show(caller, job_id)
        reason = Reason(text=f"deleted by {caller.user}", code=ReasonCode.DELETED)

        def change(job: Job) -> Update:
            moved, events = job, tuple[Event, ...]()
            if not job.final:
                moved, events = rules.end_early(job, reason, at_ms=self._clock.now_ms())
            return Update(job=replace(moved, deleting=True), events=events)

        await self._store.update(job.id, change)
        self._orders_changed()
        self._wake()

    async def name_exists(self, caller: Caller, workspace_id: str, name: str) -> bool:
        """Say whether the project has a job of this name."""
        return await self._store.name_exists(caller.project_id, workspace_id, name)

    async def events(self, caller: Caller, query: EventQuery) -> EventPage:
        """Return the events of a job."""
        self.show(caller, query.job_id)
        return await self._store.events(query)

    async def note(self, caller: Caller, job_id: str, task: str, message: str, level: Level) -> None:
        """Take down an event that the job itself reports."""
        job = self.show(caller, job_id)
        if task not in task_names(job.spec):
            raise TaskNotFound(f"job {job_id} has no task {task!r}")
        if len(message) > MESSAGE_LENGTH_MAX:
            raise Invalid(f"an event may have at most {MESSAGE_LENGTH_MAX:,} characters")
        event = Event(
            job_id=job.id, at_ms=self._clock.now_ms(), message=message, level=level, source=task, task=task
        )
        await self._store.add_events([event])


def new_short_id() -> str:
    """Return a fresh short id."""
    return "".join(secrets.choice(_SHORT_ID_LETTERS) for _ in range(SHORT_ID_LENGTH))


def _warnings(job_id: JobId, doubts: Sequence[str], at_ms: int) -> tuple[Event, ...]:
    return tuple(Event(job_id=job_id, at_ms=at_ms, message=text, level=Level.WARNING) for text in doubts)


def _changed(spec: JobSpec, wanted: JobChange) -> JobSpec:
    return replace(
        spec,
        description=spec.description if wanted.description is None else wanted.description,
        priority=spec.priority if wanted.priority is None else wanted.priority,
        preemptible=spec.preemptible if wanted.preemptible is None else wanted.preemptible,
        annotations={**spec.annotations, **(wanted.annotations or {})},
        recovery=wanted.recovery or spec.recovery,
        tags=spec.tags if wanted.tags is None else dict(wanted.tags),
        declared={**spec.declared, **(wanted.declared or {})},
    )
