"""Knows which processes belong to a task and what each of them used so far; knows no rates.

A task is all that descends from its shim, which is a subreaper: orphans come back to it. Once found, a
process stays with its task until it is gone, so a search only has to find new ones.

What an exited process used is not lost: the kernel adds it to the parent that reaps it (times into
cutime and cstime, disk bytes into the parent's own io). Summing all living processes and the shim thus
counts everything once. Only children that nobody waits for vanish with their numbers; for them the tree
keeps what was last seen.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from trackside.collect.probe import CgroupDirs
from trackside.collect.procfile import ProcFile, read_once

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
READ_ROUNDS_MAX = 3  # an exit during a round makes it worth another one
SCANS_PER_FULL_SCAN = 12  # how long a reused pid could be taken for the stranger it was


class Usage(NamedTuple):
    """What one process used since its start; `child` is of children it has reaped."""

    own_ticks: int
    child_ticks: int
    read_bytes: int
    write_bytes: int
    call_bytes: int  # read and written by system calls, whatever became of it


class Stat(NamedTuple):
    """The parts of /proc/PID/stat that matter here."""

    parent: int
    own_ticks: int
    child_ticks: int
    start_ticks: int  # since boot


def parse_stat(text: bytes) -> Stat:
    """Read the fields of /proc/PID/stat; the name in parentheses may hold anything."""
    fields = text[text.rindex(b")") + 2 :].split(None, 20)
    return Stat(
        parent=int(fields[1]),
        own_ticks=int(fields[11]) + int(fields[12]),
        child_ticks=int(fields[13]) + int(fields[14]),
        start_ticks=int(fields[19]),
    )


def parse_io(text: bytes) -> tuple[int, int, int]:
    """Return of /proc/PID/io what came from and went to the device, and what all calls moved together."""
    fields = text.split()
    return int(fields[9]), int(fields[11]), int(fields[1]) + int(fields[3])


class Process:
    """One process of a task, read through files that stay open."""

    __slots__ = ("_io", "_stat", "io_denied", "parent", "pid", "start_ticks", "status")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.parent = 0
        self.start_ticks: int | None = None
        self.io_denied = False
        self.status = ProcFile(f"/proc/{pid}/status")
        self._stat = ProcFile(f"/proc/{pid}/stat")
        self._io = ProcFile(f"/proc/{pid}/io")

    def read(self) -> Usage | None:
        """Return what the process used so far; None when it is gone."""
        text = self._stat.read()
        if not text:
            return None
        stat = parse_stat(text)
        if self.start_ticks is None:
            self.start_ticks = stat.start_ticks
        elif self.start_ticks != stat.start_ticks:
            return None  # the pid went to another process
        self.parent = stat.parent
        return Usage(stat.own_ticks, stat.child_ticks, *self._read_io())

    def close(self) -> None:
        """Close the process's files."""
        for file in (self._stat, self._io, self.status):
            file.close()

    def _read_io(self) -> tuple[int, int, int]:
        if self.io_denied:
            return 0, 0, 0
        try:
            text = self._io.read()
        except PermissionError:  # it changed its user; its disk bytes cannot be known
            self.io_denied = True
            return 0, 0, 0
        return parse_io(text) if text else (0, 0, 0)


class ProcessTree:
    """All processes of one task, with sums that only grow."""

    def __init__(self, shim_pid: int, cgroup: CgroupDirs | None) -> None:
        self.shim = Process(shim_pid)
        self.processes: dict[int, Process] = {}
        self.shim_in_cgroup = False
        self.shim_own_ticks = 0  # processor time of the shim itself, which is not the task's
        self._procs = _cgroup_procs(cgroup)
        self._usage: dict[Process, Usage] = {}
        self._kept = Usage(0, 0, 0, 0, 0)

    @property
    def searched(self) -> bool:
        """Say whether new processes must be searched for, having no cgroup that lists them."""
        return self._procs is None

    def adopt(self, pid: int) -> None:
        """Count a process as one of the task's."""
        if pid != self.shim.pid and pid not in self.processes:
            self.processes[pid] = Process(pid)

    def refresh(self) -> None:
        """Read every process, let go of those that are gone, keep what nobody inherited from them."""
        self._adopt_from_cgroup()
        before, gone = self._usage, set[Process]()
        for _ in range(READ_ROUNDS_MAX):
            gone_now = self._read_all()
            if not gone_now:
                break
            gone |= gone_now
        self._keep_lost([before[process] for process in gone if process in before], before)

    @property
    def over(self) -> bool:
        """Say whether neither the shim nor any process was there at the last reading."""
        return not self._usage

    @property
    def cpu_ticks(self) -> int:
        """Return the processor time of the task since its start, without the shim's own."""
        living = sum(usage.own_ticks + usage.child_ticks for usage in self._usage.values())
        return living + self._kept.child_ticks

    @property
    def disk_bytes(self) -> tuple[int, int] | None:
        """Return bytes read and written since the start, the shim's few included; None if not for us."""
        if any(process.io_denied for process in self._usage):
            return None
        values = self._usage.values()
        return (
            sum(usage.read_bytes for usage in values) + self._kept.read_bytes,
            sum(usage.write_bytes for usage in values) + self._kept.write_bytes,
        )

    @property
    def call_bytes(self) -> int | None:
        """Return bytes moved by system calls since the start, guests' left out; None if not for us."""
        if any(process.io_denied for process in self._usage):
            return None
        return sum(usage.call_bytes for usage in self._usage.values()) + self._kept.call_bytes

    @property
    def shim_disk_bytes(self) -> tuple[int, int]:
        """Return the bytes that the shim and the children it has reaped read and wrote."""
        shim = self._usage.get(self.shim)
        return (shim.read_bytes, shim.write_bytes) if shim else (0, 0)

    def close(self) -> None:
        """Close all files."""
        for process in (self.shim, *self.processes.values()):
            process.close()
        if self._procs is not None:
            self._procs.close()

    def _adopt_from_cgroup(self) -> None:
        text = self._procs.read() if self._procs is not None else None
        if not text:
            return
        pids = [int(pid) for pid in text.split()]
        self.shim_in_cgroup = self.shim.pid in pids
        for pid in pids:
            self.adopt(pid)

    def _read_all(self) -> set[Process]:
        """Read the shim and every process, parents first; return those that are gone.

        Parents first, because the other way round a child that exits in between would be counted by
        itself and by its parent. This way it may be missed once; the next round finds it with its parent.
        """
        usage: dict[Process, Usage] = {}
        gone: set[Process] = set()
        known = self._usage
        for process in (self.shim, *self.processes.values()):
            now = process.read()
            if now is not None:
                usage[process] = now if process is not self.shim else self._without_own(now)
                continue
            if self.processes.pop(process.pid, None) is not None or process in known:
                gone.add(process)
            process.close()
        guests = () if self.searched else [one for one in self.processes.values() if self._is_guest(one)]
        for process in guests:
            usage[process] = usage[process]._replace(call_bytes=0)
        self._usage = usage
        return gone

    def _is_guest(self, process: Process) -> bool:
        """Say whether a process was put into the task's cgroup from outside, to read its own metrics there.

        It uses what the task was given, but what it reads and writes says nothing of what the task does.
        """
        for _ in range(len(self.processes)):
            if process.parent == self.shim.pid:
                return False
            parent = self.processes.get(process.parent)
            if parent is None:
                break
            process = parent
        return True

    def _without_own(self, usage: Usage) -> Usage:
        self.shim_own_ticks = usage.own_ticks
        return usage._replace(own_ticks=0)

    def _keep_lost(self, lost: Sequence[Usage], before: dict[Process, Usage]) -> None:
        """Keep of the processes that are gone what no living ancestor has been given."""
        if not lost:
            return
        grown = [(now, before[process]) for process, now in self._usage.items() if process in before]
        ticks = sum(u.own_ticks + u.child_ticks for u in lost) - sum(
            now.child_ticks - old.child_ticks for now, old in grown
        )
        read_bytes = sum(u.read_bytes for u in lost) - sum(n.read_bytes - o.read_bytes for n, o in grown)
        write_bytes = sum(u.write_bytes for u in lost) - sum(n.write_bytes - o.write_bytes for n, o in grown)
        call_bytes = sum(u.call_bytes for u in lost) - sum(n.call_bytes - o.call_bytes for n, o in grown)
        self._kept = Usage(
            0,
            self._kept.child_ticks + max(0, ticks),
            self._kept.read_bytes + max(0, read_bytes),
            self._kept.write_bytes + max(0, write_bytes),
            self._kept.call_bytes + max(0, call_bytes),
        )


class ProcessScan:
    """Finds new descendants of shims in one look at /proc for all tasks of the node.

    One listing costs less than following the children files of every thread of every process, and those
    leave children out while siblings exit. Strangers are remembered: they can never join a task.
    """

    def __init__(self) -> None:
        self._strangers: set[int] = set()
        self._scans = 0

    def expect(self, shim_pid: int) -> None:
        """Look for the processes of a new shim, though it may be known as a stranger by now."""
        if shim_pid in self._strangers:
            self._strangers.clear()  # its descendants are known as strangers too

    def find(self, trees: Iterable[ProcessTree]) -> None:
        """Give every tree the processes that descend from it."""
        owner: dict[int, ProcessTree] = {}
        for tree in trees:
            owner[tree.shim.pid] = tree
            owner.update(dict.fromkeys(tree.processes, tree))
        if not any(tree.searched for tree in owner.values()):
            return
        self._scans += 1
        if self._scans % SCANS_PER_FULL_SCAN == 0:
            self._strangers.clear()
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._strangers &= pids
        self._sort_out(pids - owner.keys() - self._strangers, owner)

    def _sort_out(self, unknown: set[int], owner: dict[int, ProcessTree]) -> None:
        stats = {pid: stat for pid in unknown if (stat := _stat_of(pid)) is not None}
        # Oldest first, so that a parent is placed before its children. One whose parent has not been seen
        # yet stays undecided until the next scan.
        for pid in sorted(stats, key=lambda pid: (stats[pid].start_ticks, pid)):
            parent = stats[pid].parent
            tree = owner.get(parent)
            if tree is not None:
                owner[pid] = tree
                tree.adopt(pid)
            elif parent == 0 or parent in self._strangers:
                self._strangers.add(pid)


def _stat_of(pid: int) -> Stat | None:
    try:
        text = read_once(f"/proc/{pid}/stat")
    except PermissionError:  # /proc is mounted so that others' processes are hidden
        return None
    return parse_stat(text) if text else None


def _cgroup_procs(cgroup: CgroupDirs | None) -> ProcFile | None:
    if cgroup is None:
        return None
    places: tuple[Path | None, ...] = (
        cgroup.unified,
        cgroup.pids,
        cgroup.memory,
        cgroup.cpuacct,
        cgroup.cpu,
    )
    for place in places:
        if place is not None:
            return ProcFile(place / "cgroup.procs")
    return None
