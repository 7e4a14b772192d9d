"""How jobs and their events are kept and found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trackside.domain.event import Event
from trackside.domain.exchange import Report
from trackside.domain.job import Job, JobId, NodeId, ProjectId
from trackside.domain.phase import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a change makes of a job: its next state and the events to tell of it."""

    job: Job
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Which jobs to list. Every list is OR within and AND with the others; empty means any."""

    project_id: ProjectId
    workspace_id: str | None = None
    ids: tuple[str, ...] = ()
    short_ids: tuple[str, ...] = ()
    families: tuple[int, ...] = ()
    newest_versions: bool = False  # of each family only its newest version that exists
    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()  # key and values it may have (none: any)
    names: tuple[str, ...] = ()  # exact
    names_like: tuple[str, ...] = ()  # contained, case-insensitive
    phases: frozenset[Phase] = frozenset()
    kinds: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    pool_ids: tuple[str, ...] = ()
    descriptions_like: tuple[str, ...] = ()
    not_names: tuple[str, ...] = ()
    not_phases: frozenset[Phase] = frozenset()
    not_owners: tuple[str, ...] = ()
    created_from_ms: int | None = None  # inclusive
    created_to_ms: int | None = None  # inclusive
    ended_from_ms: int | None = None
    ended_to_ms: int | None = None
    # created_at | name | description | phase | kind | ended_at | started_at | owner | number | duration
    sort_by: str = "created_at"
    descending: bool = True
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """One page of jobs; `matching` counts what the query matches, `total` all jobs of the project."""

    jobs: tuple[Job, ...]
    matching: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events of a job to list."""

    job_id: JobId
    levels: tuple[str, ...] = ()
    contains: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    task: str | None = None
    descending: bool = False
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """One page of events and how many match."""

    events: tuple[Event, ...]
    matching: int


class JobStore(Protocol):
    """Keeps jobs, their records, tasks and events. A returned write is durable."""

    async def insert(self, project_id: ProjectId, make: Callable[[int], Update]) -> Job:
        """Store a new job: `make` gets the project's next number; a number is never issued twice."""
        ...

    async def update(self, job_id: JobId, change: Callable[[Job], Update | None]) -> Job:
        """Apply a pure change to the stored job, alone among writers; None changes nothing.

        Raise JobNotFound if it is gone; what `change` raises comes out and nothing is stored.
        """
        ...

    async def update_many(self, changes: Sequence[tuple[JobId, Callable[[Job], Update | None]]]) -> None:
        """Apply many changes in one transaction; a job that is gone is passed over."""
        ...

    async def apply_reports(
        self,
        node_id: NodeId,
        stream: str,
        reports: Sequence[Report],
        apply: Callable[[Job, Report], Update | None],
    ) -> int:
        """Apply each report of the stream exactly once; return the highest sequence number done."""
        ...

    def find(self, project_id: ProjectId, *, short_id: str = "", number: int = 0) -> Job | None:
        """Return the job of that short id, or of that number; None if the project has none."""
        ...

    def get(self, job_id: JobId) -> Job | None:
        """Return the job as last stored; None if there is none. Cheap: called on every request."""
        ...

    async def search(self, query: JobQuery) -> JobPage:
        """Return the jobs that match, sorted and paged."""
        ...

    async def active(self) -> tuple[Job, ...]:
        """Return every job that is not in a final phase."""
        ...

    async def count(self, project_id: ProjectId) -> int:
        """Return how many jobs the project has."""
        ...

    async def counts(self, project_id: ProjectId | None, *, pool_id: str) -> dict[tuple[str, Phase], int]:
        """Return how many jobs of each kind are in each phase in a pool (None: of all projects).

        Nothing is counted for it: it takes as long with a million jobs as with ten.
        """
        ...

    async def name_exists(self, project_id: ProjectId, workspace_id: str, name: str) -> bool:
        """Say whether a job of this name exists."""
        ...

    async def events(self, query: EventQuery) -> EventPage:
        """Return the job's events, by time."""
        ...

    async def add_events(self, events: Sequence[Event]) -> None:
        """Store events that change no job."""
        ...

    async def deleted(self) -> tuple[Job, ...]:
        """Return the jobs that are marked as deleted and over: they can go. Cheap: asked every round."""
        ...

    async def delete(self, job_id: JobId) -> None:
        """Remove a job and everything stored of it; its id and number are never issued again."""
        ...
