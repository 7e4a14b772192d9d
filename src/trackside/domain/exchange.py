"""Knows what the server and a node's agent say to each other: orders one way, reports the other.

Orders are repeated until their effect was reported, so an agent must take each of them any number of
times. Reports carry a sequence number within the agent's stream: the server applies each exactly once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trackside.domain.event import Level
from trackside.domain.evidence import Evidence
from trackside.domain.job import Channel, JobId, MetricSource, NodeId, TaskName
from trackside.domain.metric import Sample
from trackside.domain.readings import Readings, samples_of
from trackside.domain.resources import Capacity, Resources

REPORTS_PER_BATCH_MAX = 500


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Name one start of one task; a key is never started twice."""

    job_id: JobId
    attempt: int
    task: TaskName

    def __str__(self) -> str:
        return f"{self.job_id}.{self.attempt}.{self.task}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start this task, unless this key was started (or refused) before."""

    key: TaskKey
    shell_command: str | None  # run by sh -c with `arguments` behind it; or else:
    boot_file: str | None  # run by the environment's python, a path below the staged code
    arguments: tuple[str, ...] = ()  # --name=value
    environment: Mapping[str, str] = field(default_factory=dict)
    path_prefix: tuple[str, ...] = ()  # directories put before the node's own PATH
    resources: Resources
    cards: tuple[int, ...] = ()
    code_url: str | None = None
    local_code_dir: str | None = None
    working_dir: str | None = None
    inputs: tuple[Channel, ...] = ()
    outputs: tuple[Channel, ...] = ()
    grace_seconds: float
    log_export_url: str | None = None
    custom_metrics: tuple[MetricSource, ...] = ()
    log_patterns: tuple[tuple[str, str], ...] = ()  # (metric's name, regular expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End this task: TERM, grace, KILL; if its key is unknown, never start it and say so."""

    key: TaskKey
    grace_seconds: float


class ErrandKind(StrEnum):
    """What a node can be asked to do to a running task besides ending it."""

    STACKS = "stacks"  # say where every process of it stands
    KILL = "kill"  # the rest are faults, made on purpose
    FREEZE = "freeze"
    EXHAUST_MEMORY = "exhaust_memory"
    FILL_SHM = "fill_shm"
    SLOW_DOWN = "slow_down"
    CUT_OFF = "cut_off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """Do this to a task once; an id that was done (or refused) before is only answered again."""

    id: str
    key: TaskKey
    kind: str  # an ErrandKind; or one that only a newer version knows, which is answered and not done
    seconds: float | None = None  # how long it lasts, where it can be undone; None: to the task's end
    amount: float | None = None  # how much, where the kind has a measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """All that a node should act on now. `version` lets the agent wait for the next change."""

    version: int
    launch: tuple[Launch, ...] = ()
    stop: tuple[Stop, ...] = ()
    errands: tuple[Errand, ...] = ()


class EndCause(StrEnum):
    """How a task came to its end, as far as its node can tell."""

    EXITED = "exited"  # exit_code or signal says how
    NOT_STARTED = "not_started"  # stopped before its process began
    CANNOT_START = "cannot_start"  # the command could not be executed
    STAGING_FAILED = "staging_failed"  # code or inputs could not be fetched
    SHIM_LOST = "shim_lost"  # its parent was killed; the tree was cleaned up, the exit code is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The task's process runs."""

    key: TaskKey
    at_ms: int
    pid: int
    ip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The task is over and its process tree was seen empty."""

    key: TaskKey
    at_ms: int
    cause: EndCause
    exit_code: int | None = None  # as the process gave it; None when a signal ended it
    signal: int | None = None
    duration_ms: int | None = None
    ended_boot_ms: int | None = None  # node's boot clock at the exit: orders exits of one node
    stopped_by_us: bool = False  # after a Stop order
    oom_killed: bool = False  # the task's cgroup counted an out-of-memory kill
    memory_peak_bytes: int | None = None
    message: str = ""  # why it could not start, or why its outputs could not be stored
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something worth an event."""

    key: TaskKey
    at_ms: int
    message: str
    level: Level = Level.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An errand was done, or could not be."""

    id: str
    key: TaskKey
    kind: str  # as it was asked
    at_ms: int
    done: bool
    text: str = ""  # what was found, or why it could not be done


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of the tasks of a node."""

    readings: tuple[Readings, ...] = ()
    samples: tuple[Sample, ...] = ()  # one by one: how it was told before readings; spools may hold such

    def each(self) -> Iterator[Sample]:
        """Yield the samples, one by one."""
        yield from self.samples
        for readings in self.readings:
            yield from samples_of(readings)

    @property
    def count(self) -> int:
        """Return how many samples these are."""
        return len(self.samples) + sum(readings.count for readings in self.readings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One numbered report; exactly one of the five is set."""

    seq: int
    started: Started | None = None
    ended: Ended | None = None
    noted: Noted | None = None
    measured: Measured | None = None
    answered: Answered | None = None

    @property
    def understood(self) -> bool:
        """Say whether it says anything: a newer agent may say what this version has no name for."""
        said = (self.measured, self.noted, self.answered, self.started, self.ended)
        return any(one is not None for one in said)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch:
    """What an agent sends; `stream` is made anew when an agent begins with an empty spool."""

    node_id: NodeId
    stream: str
    reports: tuple[Report, ...]
    sent_boot_ms: int | None = None  # the node's boot clock when it sent this: relates its times to ours


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedReport:
    """A report that the server could make nothing of, and why."""

    seq: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAck:
    """Everything up to and including `through` is durable, or refused, and may be dropped."""

    through: int
    refused: tuple[RefusedReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """An agent introduces its node."""

    node_id: NodeId
    agent_pid: int
    host_ip: str
    capacity: Capacity
    version: str
