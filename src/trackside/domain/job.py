"""Knows what was asked for (JobSpec) and what became of it (Job, its records and tasks)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType

from trackside.domain.affinity import Affinity
from trackside.domain.evidence import Evidence
from trackside.domain.fault import HangPolicy, Recovery, RecoveryPolicy, Scenario
from trackside.domain.phase import FINAL, Phase
from trackside.domain.reason import Reason
from trackside.domain.resources import Resources

JobId = NewType("JobId", str)  # a UUID; never issued twice
ProjectId = NewType("ProjectId", str)
NodeId = NewType("NodeId", str)
TaskName = NewType("TaskName", str)  # "worker-0": role and index

DEFAULT_POOL = "default"
DEFAULT_GRACE_SECONDS = 30.0
NO_RECOVERY = RecoveryPolicy()


class Access(StrEnum):
    """How a task learns where a channel's directory is."""

    PARAMETER = "parameter"  # --name=DIR is added to the command's arguments
    ENV = "env"  # NAME=DIR is added to its environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Name data that is staged in before, or uploaded during and after, a run."""

    name: str
    url: str  # obs://bucket/key
    local_dir: str | None = None  # where the job expects it; None: Trackside chooses
    access: Access = Access.PARAMETER


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeChoice:
    """Say which prepared environment the job wants; all None: the host's own."""

    engine_id: str | None = None
    engine_name: str | None = None
    engine_version: str | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSource:
    """Say where the job's own metrics are read: a command's output or a port of the task."""

    command: tuple[str, ...] = ()
    path: str | None = None
    port: int | None = None


class RestartPolicy(StrEnum):
    """When a task that has ended is started again, in its place."""

    NEVER = "never"
    ON_FAILURE = "on_failure"  # whenever it ended badly
    EXIT_CODE = "exit_code"  # only for exit codes of 128 and above: signals, faults from outside
    ALWAYS = "always"  # also when it exited 0


class SuccessPolicy(StrEnum):
    """Which tasks must exit 0 for the job to have succeeded."""

    ALL = "all"  # all but those of service roles, which never end by themselves
    CHIEF = "chief"  # the first task of the chief role alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Ask for `count` like tasks, named role-0, role-1 …"""

    name: str = "worker"
    count: int = 1
    resources: Resources
    flavor_id: str | None = None
    command: str | None = None  # overrides the job's
    image: str | None = None  # overrides the job's
    chief: bool = False  # its first task speaks for the job under SuccessPolicy.CHIEF
    service: bool = False  # serves the others (a parameter server): stopped when they are done
    restart: RestartPolicy = RestartPolicy.NEVER
    restarts_max: int = 0  # per task


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Everything a caller asked for, in no vendor's words."""

    name: str
    kind: str = "job"
    description: str = ""
    workspace_id: str = "0"
    annotations: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[Role, ...]
    command: str | None = None  # run by sh -c; or else:
    code_dir: str | None = None  # obs:// directory, staged before the start
    boot_file: str | None = None  # a path below code_dir
    local_code_dir: str | None = None
    working_dir: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()  # passed as --name=value
    environments: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[Channel, ...] = ()
    outputs: tuple[Channel, ...] = ()
    runtime: RuntimeChoice = RuntimeChoice()
    pool_id: str = DEFAULT_POOL
    priority: int = 1
    preemptible: bool = False
    affinity: Affinity | None = None  # which machines, and how close together
    success: SuccessPolicy = SuccessPolicy.ALL
    framework: str | None = None  # "tensorflow" adds TF_CONFIG to the tasks' environments
    tags: Mapping[str, str] = field(default_factory=dict)
    max_seconds: int | None = None  # stop it when it has run this long
    grace_seconds: float = DEFAULT_GRACE_SECONDS  # between TERM and KILL
    log_export_url: str | None = None
    custom_metrics: tuple[MetricSource, ...] = ()
    log_patterns: tuple[tuple[str, str], ...] = ()  # (metric's name, regular expression) of numbers in logs
    recovery: RecoveryPolicy = NO_RECOVERY
    hang: HangPolicy | None = None  # None: nobody looks
    # What the creator's dialect said beyond the above, by dialect: kept word for word and given back.
    declared: Mapping[str, Any] = field(default_factory=dict)

    @property
    def node_count(self) -> int:
        """Return how many tasks the job has."""
        return sum(role.count for role in self.roles)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one task: a node and the cards there that become its own."""

    node_id: NodeId
    cards: tuple[int, ...] = ()


class TaskState(StrEnum):
    """Where one task of the current attempt stands."""

    PLACED = "placed"  # recorded for a node; its agent may or may not know yet
    STARTING = "starting"  # the node is staging and launching it
    RUNNING = "running"
    ENDED = "ended"  # its whole process tree was seen empty
    WAITING = "waiting"  # it failed and is to be replaced; has no place yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One role+index of one attempt, on one node."""

    name: TaskName
    role: str
    index: int  # within the role
    rank: int  # within the job
    attempt: int  # counts the task's own starts, over all records
    record: int = 1  # the number of the record it belongs to
    node_id: NodeId
    resources: Resources
    cards: tuple[int, ...] = ()  # which cards of the node are its own
    state: TaskState = TaskState.PLACED
    ip: str | None = None
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    duration_ms: int | None = None  # by the node's monotonic clock
    exit_code: int | None = None  # 128+n when signal n ended it
    signal: int | None = None
    reason: Reason | None = None
    ended_order_ms: int | None = None  # when it ended, by a clock all nodes of the job share
    stopped_by_us: bool = False
    memory_peak_bytes: int | None = None
    evidence: Evidence | None = None


class StartType(StrEnum):
    """How an attempt began."""

    SCHEDULED = "init_or_rescheduled"
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How one task of an attempt ended."""

    task: TaskName
    exit_code: int | None = None
    signal: int | None = None
    order_ms: int | None = None  # by a clock all nodes of the job share
    stopped_by_us: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One attempt, from the moment it was queued; appended, and closed once."""

    number: int  # 1, 2, …
    start_type: StartType = StartType.SCHEDULED
    queued_at_ms: int
    placed_at_ms: int | None = None
    running_at_ms: int | None = None  # the last of its tasks came up
    ended_at_ms: int | None = None
    duration_ms: int | None = None  # of the longest task, monotonic
    reason: Reason | None = None
    culprit: TaskName | None = None
    recoveries: tuple[Recovery, ...] = ()  # of faults in this attempt, in order; the last may have ended it
    exits: tuple[Exit, ...] = ()  # once it is over: the first to end first
    master_port: int | None = None  # where rank 0 listens for the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What the attempt ends in, decided while some of its tasks still live.

    QUEUED: it was preempted, or is recovered through the queue; RESTARTING: all is started again in place.
    """

    phase: Phase
    reason: Reason
    decided_at_ms: int
    scenario: Scenario | None = None  # a fault ends it: what follows is decided when all tasks have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job and everything known of it. `revision` grows with every stored change.

    Some APIs speak of versions of a job: each is a job of its own, and `family` is the number of the first.
    """

    id: JobId
    short_id: str = ""  # 16 of [a-z0-9]; never issued twice
    number: int  # 1, 2, … within the project; never issued twice
    family: int = 0  # the number of version 1
    version: int = 1
    project_id: ProjectId
    owner: str
    spec: JobSpec
    phase: Phase
    created_at_ms: int
    started_at_ms: int | None = None  # when it first ran
    ended_at_ms: int | None = None
    records: tuple[Record, ...] = ()
    tasks: tuple[Task, ...] = ()  # of the current attempt
    past_tasks: tuple[Task, ...] = ()  # of earlier attempts
    node_counts: tuple[tuple[int, int], ...] = ()  # (ms, running tasks) at every change
    ending: Ending | None = None
    reason: Reason | None = None  # why it is where it is
    suspicion: Reason | None = None  # why it seems to hang; gone when it moves again
    deleting: bool = False  # its owner deleted it; it goes once its tasks have drained
    revision: int = 0

    @property
    def final(self) -> bool:
        """Say whether the job will never change phase again."""
        return self.phase in FINAL

    def task(self, name: str) -> Task | None:
        """Return the task of that name in the current attempt."""
        return next((task for task in self.tasks if task.name == name), None)


def task_name(role: str, index: int) -> TaskName:
    """Return the name of a task."""
    return TaskName(f"{role}-{index}")


def task_names(spec: JobSpec) -> tuple[TaskName, ...]:
    """Return the names of all tasks a job will have."""
    return tuple(task_name(role.name, index) for role in spec.roles for index in range(role.count))
