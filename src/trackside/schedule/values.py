"""Knows what the scheduling core is told and what it answers: plain values, no state."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trackside.domain.affinity import Affinity
from trackside.domain.job import JobId, NodeId, ProjectId, Slot
from trackside.domain.pool import Pool
from trackside.domain.resources import Capacity, Resources

PRIORITY_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job asks of its pool. All tasks of all roles start together or not at all."""

    job_id: JobId
    pool_id: str
    project_id: ProjectId
    user: str
    name: str = ""
    priority: int = 1  # 0 to 3, 3 first
    roles: tuple[tuple[Resources, int], ...]  # what one task of the role needs, and how many there are
    created_at_ms: int  # its age, which it keeps however often it is queued again
    number: int = 0
    max_seconds: int | None = None  # it never runs longer than this
    preemptible: bool = False
    front: bool = False  # it was preempted: first of its priority
    evicts: bool = True  # others may be ended to make room for it
    avoid: frozenset[NodeId] = frozenset()  # machines that are closed for this job alone
    affinity: Affinity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A machine as it is now. One that is drained or locked is not open: it takes nothing new."""

    id: NodeId
    capacity: Capacity
    open: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    isolated_cards: frozenset[int] = frozenset()  # these take nothing new


@dataclass(frozen=True, slots=True)
class JobQueued:
    """A job waits; if it held room it holds none any more."""

    job: Request


@dataclass(frozen=True, slots=True)
class JobRunning:
    """A job holds room already (told when the core is built anew): one place per task that lives."""

    job: Request
    slots: tuple[tuple[int, Slot], ...]  # by rank
    since_ms: int


@dataclass(frozen=True, slots=True)
class JobChanged:
    """The job's priority, or whether it may be preempted, is another now."""

    job: Request


@dataclass(frozen=True, slots=True)
class JobDraining:
    """A running job was told to end: its room comes back soon."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """One task's process tree is empty."""

    job_id: JobId
    rank: int


@dataclass(frozen=True, slots=True)
class JobEnded:
    """Nothing of a running job lives any more."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobRemoved:
    """A job, waiting or running, is gone."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A machine came, or has another size, or was drained, locked or opened again."""

    node: NodeSpec


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A machine is gone."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class PoolChanged:
    """A pool came, or has other machines, another policy or other quotas."""

    pool: Pool


@dataclass(frozen=True, slots=True)
class PoolRemoved:
    """A pool is gone; its jobs wait for it to come back."""

    pool_id: str


@dataclass(frozen=True, slots=True)
class Tick:
    """It is this late. The only way the core learns the time."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Start:
    """Start this job in these places, one per task, by rank."""

    job_id: JobId
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Preempt:
    """End this running job, and queue it again, so that the other one can start."""

    job_id: JobId
    for_job: JobId


SchedulingEvent = (
    JobQueued
    | JobRunning
    | JobChanged
    | JobDraining
    | TaskEnded
    | JobEnded
    | JobRemoved
    | NodeChanged
    | NodeRemoved
    | PoolChanged
    | PoolRemoved
    | Tick
)
Decision = Start | Preempt
