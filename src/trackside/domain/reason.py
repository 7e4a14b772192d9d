"""Knows how Trackside says why: one sentence, a stable code, and how sure it is."""

from dataclasses import dataclass
from enum import StrEnum


class Certainty(StrEnum):
    """How sure a reason is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    UNKNOWN = "unknown"


class ReasonCode(StrEnum):
    """The stable names of reasons; docs/reasons.md lists them."""

    COMPLETED = "completed"
    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    KILLED_FROM_OUTSIDE = "killed-from-outside"
    EXCEPTION = "exception"
    OUT_OF_MEMORY = "out-of-memory"
    HOST_OUT_OF_MEMORY = "host-out-of-memory"
    SHM_FULL = "shm-full"
    DISK_FULL = "disk-full"
    DEVICE_FAULT = "device-fault"
    HANGED = "hanged"
    RECOVERY_TIMEOUT = "recovery-timeout"
    CANNOT_START = "cannot-start"
    STAGING_FAILED = "staging-failed"
    UPLOAD_FAILED = "upload-failed"
    STOPPED_BY_USER = "stopped-by-user"
    MAX_DURATION = "max-duration"
    SHIM_LOST = "shim-lost"
    NODE_LOST = "node-lost"
    PEER_FAILED = "peer-failed"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    WAITING_FOR_ROOM = "waiting-for-room"
    WAITING_SCATTERED = "waiting-scattered"
    WAITING_FOR_TURN = "waiting-for-turn"
    WAITING_FOR_PREEMPTED = "waiting-for-preempted"
    OVER_QUOTA = "over-quota"
    TOO_LARGE = "too-large"
    NO_MACHINES = "no-machines"
    NO_SUCH_POOL = "no-such-pool"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Explain one thing; every page, command and API shows this and nothing else."""

    text: str
    code: ReasonCode
    certainty: Certainty = Certainty.CERTAIN
    task: str | None = None
    evidence: tuple[str, ...] = ()
    hint: str | None = None
