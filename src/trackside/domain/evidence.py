"""Knows what a node can find out about why a task ended; draws no conclusions from it."""

from dataclasses import dataclass
from enum import StrEnum

TRACEBACK_CHARS_MAX = 4000
LINE_CHARS_MAX = 500


class DeviceKind(StrEnum):
    """The kinds of cards."""

    GPU = "gpu"
    NPU = "npu"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFault:
    """An error that one of the task's cards reported while the task ran."""

    card: int
    kind: DeviceKind
    code: str  # "XID 79", "ECC": in the words of the device's library
    text: str
    heals: bool  # the card works again once the process was started anew


@dataclass(frozen=True, slots=True, kw_only=True)
class FullPlace:
    """A file system without room at the moment the task ended."""

    path: str  # as the task knows it: "/dev/shm", or the directory of its work
    used_bytes: int
    size_bytes: int
    shared: bool  # the node's own disk: not the task's doing alone
    told: str | None = None  # it had room again at the end; this line of the log says that it had none


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was seen at a task's end; a field that could not be looked at is None or empty."""

    oom_kills_before: int | None = None  # the counter of the task's cgroup at its start
    oom_kills_after: int | None = None
    host_oom: str | None = None  # the kernel's line, when the whole machine was out of memory
    full: tuple[FullPlace, ...] = ()
    traceback: str | None = None  # the last one in its log
    collective_error: str | None = None  # a line that says that a peer was lost
    shell_error: str | None = None  # the shell's own words about a command that it could not run
    shell_error_only: bool = False  # nothing else stands in the log: nothing ran before
    device_faults: tuple[DeviceFault, ...] = ()
    injected: tuple[str, ...] = ()  # faults that were made on purpose while it ran
