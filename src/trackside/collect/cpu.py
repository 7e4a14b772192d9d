"""Knows how much processor time a task has used; knows no rates and no percent.

With a cgroup the number is the kernel's own, in nanoseconds, and includes every exited child. Without
one it is the sum over the process tree: complete too, but each process is rounded down to clock ticks.
"""

from trackside.collect.probe import CgroupDirs
from trackside.collect.processes import TICKS_PER_SECOND, ProcessTree
from trackside.collect.procfile import ProcFile


class CpuMeter:
    """Reads the processor time of one task."""

    def __init__(self, cgroup: CgroupDirs | None) -> None:
        self._nanoseconds: ProcFile | None = None  # cgroup v1
        self._stat: ProcFile | None = None  # cgroup v2, also on hybrid machines
        if cgroup is not None and cgroup.cpuacct is not None:
            self._nanoseconds = ProcFile(cgroup.cpuacct / "cpuacct.usage")
        elif cgroup is not None and cgroup.unified is not None:
            self._stat = ProcFile(cgroup.unified / "cpu.stat")

    def read(self, tree: ProcessTree) -> float:
        """Return the seconds used since the task's start, without the shim's own."""
        seconds = self._cgroup_seconds()
        if seconds is None:
            return tree.cpu_ticks / TICKS_PER_SECOND
        return seconds - (tree.shim_own_ticks / TICKS_PER_SECOND if tree.shim_in_cgroup else 0.0)

    def close(self) -> None:
        """Close the files."""
        for file in (self._nanoseconds, self._stat):
            if file is not None:
                file.close()

    def _cgroup_seconds(self) -> float | None:
        if self._nanoseconds is not None:
            text = self._nanoseconds.read()
            return int(text) / 1e9 if text else None
        if self._stat is not None:
            text = self._stat.read()
            return int(text.split(None, 2)[1]) / 1e6 if text else None  # usage_usec stands first
        return None
