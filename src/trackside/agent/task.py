"""Knows what the agent holds of one task while it lives, and what it needs from its other parts."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from trackside.agent.cgroup import Cgroups
from trackside.agent.kernel_log import KernelLog
from trackside.agent.launcher import Launcher
from trackside.agent.loop import Loop
from trackside.agent.plan import Node
from trackside.agent.record import ExitRecord
from trackside.agent.stage import Staged
from trackside.agent.state import TaskFiles
from trackside.collect.probe import CgroupDirs, ExitTotals, TaskProbe
from trackside.domain.event import Level
from trackside.domain.evidence import DeviceFault
from trackside.domain.exchange import EndCause, Ended, Launch, Noted, Report, Stop, TaskKey


class Outputs(Protocol):
    """What takes care of a task's outputs."""

    def begin(self, launch: Launch, staged: Staged) -> None:
        """Begin to upload what the task writes."""
        ...

    def finish(self, launch: Launch) -> str | None:
        """Upload the rest; return what could not be uploaded. Blocks."""
        ...


class Meters(Protocol):
    """What measures tasks."""

    def add(self, probe: TaskProbe) -> None:
        """Measure a task from now on."""
        ...

    def missed(self, probe: TaskProbe) -> None:
        """Take a task that ended before it was seen to run."""
        ...

    def faults(self, key: TaskKey) -> tuple[DeviceFault, ...]:
        """Return what went wrong with the cards of a task that has just failed."""
        ...

    def remove(self, key: TaskKey, at_ms: int, totals: ExitTotals | None) -> tuple[Report, ...]:
        """Measure it no longer; return the last of its measurements."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Everything the tasks need from the rest of the agent."""

    node: Node
    ip: str
    loop: Loop
    launcher: Launcher
    cgroups: Cgroups
    movers: Executor  # fetch and upload: may be busy for hours
    cleaners: Executor
    report: Callable[..., None]
    stage: Callable[[Launch], Staged]
    outputs: Outputs
    meters: Meters
    kernel: KernelLog

    def note(self, key: TaskKey, message: str, level: Level) -> None:
        """Tell something about a task; may be called from any thread."""
        self.report(Report(seq=0, noted=Noted(key=key, at_ms=now_ms(), message=message, level=level)))


@dataclass(slots=True, eq=False)
class Task:
    """What is known of one task while the agent lives; its files know the rest."""

    key: TaskKey
    files: TaskFiles
    launch: Launch | None = None
    stop: Stop | None = None
    staged: Staged | None = None
    dirs: CgroupDirs | None = None
    doorbell: socket.socket | None = None
    pidfd: int | None = None
    main_process: tuple[int, int | None] | None = None
    tries: int = 0
    started_told: bool = False
    exit_watched: bool = False  # its main process is held: the order of its end will be known
    truncated_told: bool = False
    delivering: bool = False  # its outputs are being watched
    staging: bool = False  # a worker fetches its files
    finishing: bool = False  # a worker cleans up after it or uploads the rest
    ended: bool = False


def short_end(task: Task, cause: EndCause, message: str) -> Ended:
    """Return the end of a task that left no exit status."""
    return Ended(
        key=task.key,
        at_ms=now_ms(),
        cause=cause,
        stopped_by_us=task.stop is not None,
        ended_boot_ms=boot_ms(),
        message=message,
    )


def exit_end(task: Task, left: ExitRecord) -> Ended:
    """Return the end that a shim wrote down."""
    return Ended(
        key=task.key,
        at_ms=left["at_ms"],
        cause=EndCause(left["cause"]),
        exit_code=left["exit_code"],
        signal=left["signal"],
        duration_ms=left["duration_ms"],
        ended_boot_ms=left["ended_boot_ms"],
        # Somebody else may have asked the shim as well; only an order makes it ours.
        stopped_by_us=left["stop_asked"] and task.stop is not None,
        oom_killed=left["oom_kills"] > 0,
        memory_peak_bytes=left["memory_peak_bytes"],
        message=left["message"],
    )


def exit_totals(left: ExitRecord) -> ExitTotals:
    """Return what a task used over its whole life."""
    return ExitTotals(
        cpu_seconds=left["cpu_seconds"],
        max_rss_bytes=left["max_rss_bytes"],
        read_bytes=left["read_bytes"],
        write_bytes=left["write_bytes"],
        ended_boot_ms=left["ended_boot_ms"],
    )


def disk_words(error: OSError) -> str:
    """Say that a task could not be prepared, and where to look."""
    why = error.strerror or str(error)
    return f"the node could not prepare the task: {why}. Check the disk of its data directory"


def boot_ms() -> int:
    """Return the boot clock: it counts suspended time and never goes back."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000
