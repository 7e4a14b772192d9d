"""Knows the working set of a task in bytes: what it needs, without page cache that can be dropped.

What is exact: with a cgroup the kernel's own account (usage less inactive file pages; it includes the
task's kernel memory and unmapped shared memory). Without one, for a single process, its anonymous and
shared-memory pages; for several processes the proportional sizes (Pss) of those, which split shared
pages fairly. Pss walks page tables and gets dear for big processes, so it is read as often as a small
share of a core allows; in between, the cheap sum is scaled by what Pss last made of it. Without a cgroup
shared memory that no process has mapped is not seen.
"""

import time

from trackside.collect.probe import CgroupDirs
from trackside.collect.processes import ProcessTree
from trackside.collect.procfile import ProcFile, read_once

PSS_PAUSE = 10_000  # a reading that took 1 ms of processor time is repeated after 10 s at the earliest,
PSS_PAUSE_CHANGED = 2_500  # or after 2.5 s when the task has more or fewer processes than then

# cgroup file of the usage, and the line of memory.stat to take from it
_V1 = ("memory.usage_in_bytes", b"\ntotal_inactive_file ")
_V2 = ("memory.current", b"\ninactive_file ")
_RSS_FIELDS = (b"\nRssAnon:", b"\nRssShmem:")
_PSS_FIELDS = (b"\nPss_Anon:", b"\nPss_Shmem:")


class MemoryMeter:
    """Reads the working set of one task."""

    def __init__(self, cgroup: CgroupDirs | None) -> None:
        self._cgroup = _CgroupMemory.find(cgroup)
        self._shares = _SharedPages()

    def read(self, tree: ProcessTree) -> int | None:
        """Return the bytes in use now; None when nothing of the task runs."""
        if self._cgroup is not None:
            return self._cgroup.read()
        # A process without these lines is a zombie or a kernel thread: it holds no memory.
        sizes = {pid: size for pid, p in tree.processes.items() if (size := _rss_bytes(p.status)) is not None}
        if not sizes:
            return None
        rss_bytes = sum(sizes.values())
        return rss_bytes if len(sizes) == 1 else self._shares.settle(list(sizes), rss_bytes)

    def close(self) -> None:
        """Close the files."""
        if self._cgroup is not None:
            self._cgroup.close()


class _CgroupMemory:
    def __init__(self, usage: ProcFile, stat: ProcFile, droppable: bytes) -> None:
        self._usage = usage
        self._stat = stat
        self._droppable = droppable

    @classmethod
    def find(cls, cgroup: CgroupDirs | None) -> "_CgroupMemory | None":
        """Return the account of whichever cgroup version has the memory controller."""
        for place, (usage, droppable) in (
            (cgroup.memory if cgroup else None, _V1),
            (cgroup.unified if cgroup else None, _V2),
        ):
            # On a hybrid machine the unified directory is there without a memory controller.
            if place is not None and (place / usage).exists():
                return cls(ProcFile(place / usage), ProcFile(place / "memory.stat"), droppable)
        return None

    def read(self) -> int | None:
        usage, stat = self._usage.read(), self._stat.read()
        if not usage or not stat:
            return None
        return max(0, int(usage) - (_number_after(stat, self._droppable) or 0))

    def close(self) -> None:
        self._usage.close()
        self._stat.close()


class _SharedPages:
    """Tells how much of a sum of resident sizes is left when shared pages are counted once."""

    def __init__(self) -> None:
        self._ratio = 1.0
        self._count = 0  # of processes, at the last exact reading
        self._cost_ns: int | None = None
        self._read_ns = 0

    def settle(self, pids: list[int], rss_bytes: int) -> int:
        """Return the proportional size, read if that is due and estimated if not."""
        if self._due(len(pids)):
            began_ns = time.thread_time_ns()
            pss_bytes = _pss_bytes(pids)
            self._cost_ns = time.thread_time_ns() - began_ns
            self._read_ns = time.monotonic_ns()
            self._count = len(pids)
            if pss_bytes is None:
                self._ratio = 1.0
            elif rss_bytes > 0:
                self._ratio = min(1.0, pss_bytes / rss_bytes)
        return round(rss_bytes * self._ratio)

    def _due(self, count: int) -> bool:
        if self._cost_ns is None:
            return True
        pause = PSS_PAUSE if count == self._count else PSS_PAUSE_CHANGED
        return time.monotonic_ns() >= self._read_ns + self._cost_ns * pause


def _rss_bytes(status: ProcFile) -> int | None:
    return _sum_of_kib(status.read(), _RSS_FIELDS)


def _pss_bytes(pids: list[int]) -> int | None:
    """Return the proportional size of all; None where the kernel does not tell it to us."""
    total = 0
    for pid in pids:
        try:
            text = read_once(f"/proc/{pid}/smaps_rollup")
        except PermissionError:
            return None
        if not text:
            continue  # it has just exited
        size = _sum_of_kib(text, _PSS_FIELDS)
        if size is None:
            size = _sum_of_kib(text, (b"\nPss:",))  # before Linux 5.9: mapped files included
        total += size or 0
    return total


def _sum_of_kib(text: bytes | None, fields: tuple[bytes, ...]) -> int | None:
    if not text:
        return None
    values = [_number_after(text, field) for field in fields]
    known = [value for value in values if value is not None]
    return sum(known) * 1024 if known else None


def _number_after(text: bytes, field: bytes) -> int | None:
    at = text.find(field)
    if at < 0:
        return None
    return int(text[at + len(field) : at + len(field) + 32].split(None, 1)[0])
