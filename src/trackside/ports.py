"""The seams of the system in one file: what the inside needs from the outside, as Protocols."""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from trackside.domain.event import Event
from trackside.domain.exchange import Orders, Report
from trackside.domain.identity import User
from trackside.domain.job import Job, JobId, NodeId, ProjectId
from trackside.domain.metric import Sample
from trackside.domain.notice import Notice
from trackside.domain.phase import Phase
from trackside.domain.readings import Readings
from trackside.domain.resources import Capacity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Clock(Protocol):
    """Tells the time; tests bring their own."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Return a clock that never goes back and counts suspended time too."""
        ...


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


class IdentityStore(Protocol):
    """Keeps projects and users."""

    async def put_project(self, project_id: ProjectId, name: str) -> None:
        """Store a project."""
        ...

    async def projects(self) -> tuple[tuple[ProjectId, str], ...]:
        """Return all projects: id and name."""
        ...

    async def put_user(self, user: User) -> None:
        """Store or replace a user."""
        ...

    async def delete_user(self, name: str) -> None:
        """Remove a user."""
        ...

    async def users(self) -> tuple[User, ...]:
        """Return all users."""
        ...


class DocumentStore(Protocol):
    """Keeps small JSON documents, by project, kind and id. A returned write is durable."""

    async def put(self, project_id: ProjectId, kind: str, document_id: str, value: Mapping[str, Any]) -> None:
        """Store or replace a document."""
        ...

    async def get(self, project_id: ProjectId, kind: str, document_id: str) -> dict[str, Any] | None:
        """Return a document."""
        ...

    async def list(self, project_id: ProjectId, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return all documents of a kind with their ids, by id."""
        ...

    async def count(self, project_id: ProjectId, kind: str) -> int:
        """Return how many documents of a kind there are."""
        ...

    async def delete(self, project_id: ProjectId, kind: str, document_id: str) -> None:
        """Remove a document if it is there."""
        ...


class PoolStore(Protocol):
    """Keeps the installation's pools, and what was decided about its nodes, as JSON documents."""

    async def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Store or replace a pool."""
        ...

    async def pools(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all pools, by name."""
        ...

    async def delete(self, name: str) -> None:
        """Remove a pool, or raise PoolInUse, saying which of its jobs are not over.

        A job whose insertion began before is seen.
        """
        ...

    async def put_node(self, node_id: str, value: Mapping[str, Any]) -> None:
        """Store or replace what was decided about a node."""
        ...

    async def nodes(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what was decided about nodes, by node."""
        ...


class TopicStore(Protocol):
    """Keeps who can be told of jobs, as JSON documents."""

    async def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Store or replace a topic."""
        ...

    async def topics(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all topics, by name."""
        ...

    async def delete(self, name: str) -> None:
        """Remove a topic if it is there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A notice that a topic has not heard of yet."""

    notice_id: int
    notice: Notice
    topic: str
    tries: int = 0
    due_at_ms: int  # not before


class Outbox(Protocol):
    """Keeps notices from the change of a job until everybody heard; a notice is stored with that change."""

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` in this event loop whenever new notices are durable."""
        ...

    async def fresh(self, *, limit: int) -> list[tuple[int, Notice]]:
        """Return notices that were not addressed yet, oldest first."""
        ...

    async def address(self, topics_of: Mapping[int, Collection[str]], *, due_at_ms: int) -> None:
        """Say which topics hear of each notice; one that nobody hears of goes."""
        ...

    async def due(
        self, now_ms: int, *, wait_ms_max: int, without: Collection[str], limit: int
    ) -> list[Delivery]:
        """Return what can be sent now, but not to some topics, the oldest notices first.

        What waits longer than the longest wait is due too: the clock was set back.
        """
        ...

    async def next_due_ms(self, *, without: Collection[str]) -> int | None:
        """Return when the next delivery is due, but not to some topics; None: nothing waits."""
        ...

    async def failed(self, deliveries: Sequence[Delivery], *, due_at_ms: int) -> None:
        """Count one more try of each, and wait until then with the next."""
        ...

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        """Strike deliveries off; a notice goes with its last."""
        ...


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Name one series of a job."""

    task: str
    metric: str
    card: int | None = None
    labels: tuple[tuple[str, str], ...] = ()


class MetricStore(Protocol):
    """Keeps samples. Appending the same sample twice changes nothing."""

    remote: bool  # whether a query waits for another machine

    def append(self, samples: Sequence[Sample]) -> None:
        """Keep samples; they are durable on return."""
        ...

    def append_readings(self, readings: Sequence[Readings]) -> None:
        """Keep samples that come as rows; they are durable on return."""
        ...

    def means(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, dict[int, float]]:
        """Return, per series, the mean of each step [t, t+step) that has samples, keyed by t."""
        ...

    def latest(
        self, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        """Return the newest sample (time, value) of every series that has one since then."""
        ...

    def revision(self, job_id: JobId) -> int:
        """Return a number that changes whenever samples of the job arrive."""
        ...

    def forget(self, job_id: JobId) -> None:
        """Drop all samples of a job."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MeanColumns:
    """Means of some series as columns: those of the first series, then those of the second, and so on."""

    keys: Sequence[SeriesKey]
    bounds: Sequence[int]  # the means of series n stand from bounds[n] to bounds[n + 1]
    steps_ms: "npt.NDArray[np.int64]"  # the steps that occur, ascending, each once
    which: "npt.NDArray[np.int64] | None"  # whose mean it is, by place in steps_ms; None: each has all
    means: "npt.NDArray[np.float64]"


@runtime_checkable
class MeansInColumns(Protocol):
    """What a metric store may offer besides: means as columns, for answers of a hundred thousand points."""

    def means_columns(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metrics: Sequence[str],
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> MeanColumns:
        """Return the means of tasks as a whole (series of cards and with labels are left out)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LatestColumns:
    """The newest samples of some series of a job."""

    keys: Sequence[SeriesKey]
    at_ms: Sequence[int]
    values: Sequence[float]


@runtime_checkable
class LatestOfMetric(Protocol):
    """What a metric store may offer besides: the newest values of one metric, without reading the others."""

    def latest_of(
        self, metric: str, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, LatestColumns]:
        """Return the newest samples of every series of a metric that has one since then."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """Some whole lines of a log; line numbers count from 1."""

    text: str
    first_line: int
    last_line: int

    @property
    def lines(self) -> int:
        """Return how many lines there are."""
        return self.last_line - self.first_line + 1 if self.last_line else 0


class LogStore(Protocol):
    """Reads what tasks printed. A task's log is that of all its attempts, in order."""

    async def tail(self, job_id: JobId, task: str, *, bytes_max: int) -> tuple[str, int]:
        """Return the newest part of the log and the full size in bytes."""
        ...

    async def lines(
        self,
        job_id: JobId,
        task: str,
        *,
        base_line: int | None,
        count: int,
        descending: bool,
        attempts: Sequence[int] | None = None,
    ) -> LogSlice:
        """Return up to `count` whole lines: descending, those before `base_line` (None: the newest);
        ascending, those after it (None: the oldest). Text is in reading order either way. With `attempts`,
        the log is that of these starts of the task alone."""
        ...

    def chunks(self, job_id: JobId, task: str, attempts: Sequence[int]) -> Generator[bytes, None, None]:
        """Yield what these starts of a task have printed by now, a piece at a time; blocks on the disk."""
        ...

    def path(self, job_id: JobId, attempt: int, task: str) -> Path:
        """Return where the log of one attempt of a task is written."""
        ...

    async def forget(self, job_id: JobId) -> None:
        """Remove the logs of a job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where the processes of a task stood at one moment; kept with its log."""

    task: str
    attempt: int  # of the task, as its log's
    at_ms: int


class StackStore(Protocol):
    """Keeps what was seen of tasks that seemed to hang. A returned write is durable."""

    async def keep(self, job_id: JobId, snapshot: Snapshot, text: str) -> None:
        """Keep a snapshot; one of the same task and moment is replaced."""
        ...

    async def snapshots(self, job_id: JobId) -> tuple[Snapshot, ...]:
        """Return what was kept of a job, the oldest first."""
        ...

    async def read(self, job_id: JobId, snapshot: Snapshot) -> str:
        """Return what was kept; empty if it is gone."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object below a URL: its path relative to it."""

    path: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Holds code, inputs and outputs under obs://bucket/key."""

    def check_url(self, url: str) -> None:
        """Raise Invalid if the URL is not a plain place in the store."""
        ...

    async def exists(self, url: str) -> bool:
        """Say whether there is an object at, or below, the URL."""
        ...

    def list(self, url: str) -> Sequence[ObjectInfo]:
        """Return the objects below a URL."""
        ...

    def download(self, url: str, to: Path) -> int:
        """Copy everything at or below the URL into the directory; return how many objects."""
        ...

    def upload_file(self, from_fd: int, url: str) -> None:
        """Store one file's content at the URL, replacing it whole."""
        ...

    def link(self, url: str, *, seconds: int) -> str:
        """Return an address where the object can be read for a while."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with an agent."""

    id: NodeId
    ip: str
    capacity: Capacity
    last_seen_ms: int  # by the wall clock, to be shown
    seen_monotonic_ms: int  # the same moment by the clock that does not jump, to be reckoned with
    labels: dict[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """Places tasks on nodes: knows nothing of metrics or dialects."""

    def nodes(self) -> Sequence[Node]:
        """Return the nodes that can take tasks."""
        ...

    def free_ports(self, node_id: NodeId, count: int, taken: frozenset[int]) -> int:
        """Return the first of `count` ports in a row that nothing on the node listens on."""
        ...

    def changed(self) -> None:
        """Tell the agents that their orders may have changed."""
        ...

    async def orders(self, node_id: NodeId, version: int, *, wait_seconds: float) -> Orders:
        """Return the node's orders as soon as they are newer than `version`, or after the wait."""
        ...
