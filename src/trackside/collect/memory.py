"""Knows the memory of a task in bytes: its working set (what it needs, without page cache that can be
dropped), the most it ever held, and what of it is shared memory.

What is exact: with a cgroup the kernel's own account (usage less inactive file pages; it includes the
task's kernel memory and unmapped shared memory). Without one, for a single process, its anonymous and
shared-memory pages; for several processes the proportional sizes (Pss) of those, which split shared
pages fairly. Pss walks page tables and gets dear for big processes, so it is read as often as a small
share of a core allows; in between, the cheap sum is scaled by what Pss last made of it. Without a cgroup
shared memory that no process has mapped is not seen.

The peak is the kernel's own with a cgroup, and then includes page cache; without one it is the highest
working set that a reading saw. Shared memory (files in /dev/shm among it, mapped or not) is told by the
cgroup alone.
"""

import time
from pathlib import Path
from typing import NamedTuple

from trackside.collect.probe import CgroupDirs
from trackside.collect.processes import ProcessTree
from trackside.collect.procfile import ProcFile, read_once

PSS_PAUSE = 10_000  # a reading that took 1 ms of processor time is repeated after 10 s at the earliest,
PSS_PAUSE_CHANGED = 2_500  # or after 2.5 s when the task has more or fewer processes than then


class _Names(NamedTuple):
    """What a version of cgroups calls its files, and the lines of memory.stat."""

    usage: str
    peak: str
    droppable: bytes
    shared: bytes


_V1 = _Names(
    "memory.usage_in_bytes", "memory.max_usage_in_bytes", b"\ntotal_inactive_file ", b"\ntotal_shmem "
)
_V2 = _Names("memory.current", "memory.peak", b"\ninactive_file ", b"\nshmem ")
_RSS_FIELDS = (b"\nRssAnon:", b"\nRssShmem:")
_PSS_FIELDS = (b"\nPss_Anon:", b"\nPss_Shmem:")


class MemoryReading(NamedTuple):
    """Bytes in use now, the most ever, and what of the first is shared memory; None is not known."""

    used_bytes: int
    peak_bytes: int | None
    shared_bytes: int | None


class MemoryMeter:
    """Reads the memory of one task."""

    def __init__(self, cgroup: CgroupDirs | None) -> None:
        self._cgroup = _CgroupMemory.find(cgroup)
        self._shares = _SharedPages()
        self._highest_bytes = 0

    def read(self, tree: ProcessTree) -> MemoryReading | None:
        """Return what is in use now; None when nothing of the task runs."""
        if self._cgroup is not None:
            return self._cgroup.read()
        used_bytes = self._working_set(tree)
        if used_bytes is None:
            return None
        self._highest_bytes = max(self._highest_bytes, used_bytes)
        return MemoryReading(used_bytes, self._highest_bytes, None)

    def _working_set(self, tree: ProcessTree) -> int | None:
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
    def __init__(self, place: Path, names: _Names) -> None:
        self._usage = ProcFile(place / names.usage)
        self._stat = ProcFile(place / "memory.stat")
        self._peak = ProcFile(place / names.peak)
        self._names = names

    @classmethod
    def find(cls, cgroup: CgroupDirs | None) -> "_CgroupMemory | None":
        """Return the account of whichever cgroup version has the memory controller."""
        for place, names in (
            (cgroup.memory if cgroup else None, _V1),
            (cgroup.unified if cgroup else None, _V2),
        ):
            # On a hybrid machine the unified directory is there without a memory controller.
            if place is not None and (place / names.usage).exists():
                return cls(place, names)
        return None

    def read(self) -> MemoryReading | None:
        usage, stat = self._usage.read(), self._stat.read()
        if not usage or not stat:
            return None
        peak = self._peak.read()  # before Linux 5.19 the newer version has none
        return MemoryReading(
            max(0, int(usage) - (_number_after(stat, self._names.droppable) or 0)),
            int(peak) if peak else None,
            _number_after(stat, self._names.shared),
        )

    def close(self) -> None:
        for file in (self._usage, self._stat, self._peak):
            file.close()


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
