"""Knows the words of recovery: what went wrong, what can be done about it, and how that turned out."""

from dataclasses import dataclass
from enum import StrEnum

from trackside.domain.reason import Reason


class Scenario(StrEnum):
    """What kind of fault a recovery answers."""

    CHIP = "chip_fault"
    NODE = "node_fault"
    FAILED = "job_failed"
    HANGED = "job_hanged"


class RecoverLevel(StrEnum):
    """What is started again, the finest first."""

    TASK_RESTART = "task_restart"  # one task, where it was, by its role's own policy
    NPU_PROC_RESTART = "npu_proc_restart"
    GPU_PROC_RESTART = "gpu_proc_restart"
    PROC_RESTART = "proc_restart"  # all tasks, where they were
    POD_RESCHEDULE = "pod_reschedule"  # the failed task, wherever there is room
    JOB_RESCHEDULE = "job_reschedule"  # all tasks, through the queue
    JOB_RESCHEDULE_WITH_TAINT = "job_reschedule_with_taint"  # the same, without the faulty node or card


IN_PLACE = (RecoverLevel.NPU_PROC_RESTART, RecoverLevel.GPU_PROC_RESTART, RecoverLevel.PROC_RESTART)
BY_QUEUE = (RecoverLevel.JOB_RESCHEDULE, RecoverLevel.JOB_RESCHEDULE_WITH_TAINT)


class RecoverResult(StrEnum):
    """How a recovery turned out."""

    RECOVERING = "recovering"
    SUCCESS = "success"
    FAILED = "failed"
    DOWNGRADE = "downgrade"  # it could not be carried out; the next coarser level was taken
    TERMINATED = "terminated"  # somebody stopped the job meanwhile
    QUOTA_EXCEEDED = "quotaExceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A node, or some of its cards, that must take no more tasks."""

    node_id: str
    cards: tuple[int, ...] = ()  # none: the whole node


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One try to bring a job back after a fault; written when it begins, closed once."""

    level: RecoverLevel
    scenario: Scenario
    reason: Reason  # what went wrong
    task: str | None = None
    started_at_ms: int  # when it went wrong
    ended_at_ms: int | None = None  # when all ran again, or the try was given up
    result: RecoverResult = RecoverResult.RECOVERING
    isolated: Isolation | None = None
    charged: bool = True  # it counts against the job's budget
    note: str | None = None  # why it was given up, or why a coarser level was taken


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPolicy:
    """What a job asks to be done about faults; by default nothing."""

    job_retries: int = 0  # through the queue
    task_retries: int = 0  # replacing single tasks
    process_retries: int = 0  # in place
    unconditional: bool = False  # also for the job's own failures, not for the environment's alone
    consecutive_max: int | None = 3  # of unconditional restarts in a row; None: no such limit
    hang_restart: bool = False  # restart in place when it hangs; not charged
    wait_seconds_max: int | None = 1800  # in the queue, before a recovery is given up


class HangRule(StrEnum):
    """How a hang is recognised."""

    ACTIVITY = "activity"  # input and output stand still, and the accelerators' use does not change
    SILENCE = "silence"  # no task writes to its log
    NONE = "none"  # not at all while it runs, only at its end


@dataclass(frozen=True, slots=True, kw_only=True)
class HangPolicy:
    """When a job counts as hanging."""

    rule: HangRule = HangRule.ACTIVITY
    window_seconds: int = 1800
    exit_seconds: int | None = None  # one task is done and the job does not end for so long
