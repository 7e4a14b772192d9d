"""Knows what the collectors must be told of a task: who it is, where it runs, what it was given.

Whoever starts tasks fills these in; nothing here reads a device.
"""

from dataclasses import dataclass
from pathlib import Path

from trackside.domain.exchange import TaskKey
from trackside.domain.job import MetricSource
from trackside.domain.resources import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupDirs:
    """Name the task's own cgroup directories; None where it has none of that controller.

    On cgroup v2 only `unified` is set, on v1 the others, on a hybrid machine both.
    """

    memory: Path | None = None
    cpu: Path | None = None
    cpuacct: Path | None = None
    pids: Path | None = None
    unified: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProbe:
    """Describe one running task to the collectors."""

    key: TaskKey
    shim_pid: int
    resources: Resources
    cards: tuple[int, ...] = ()
    cgroup: CgroupDirs | None = None
    custom_metrics: tuple[MetricSource, ...] = ()  # where the job's own metrics are read
    log_patterns: tuple[tuple[str, str], ...] = ()  # (name, regular expression) of numbers in its log
    log_file: Path | None = None  # where its output goes


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitTotals:
    """Tell what a task used over its whole life, as its shim counted it after the last exit."""

    cpu_seconds: float
    max_rss_bytes: int
    read_bytes: int | None = None
    write_bytes: int | None = None
    ended_boot_ms: int
