"""What one reading of a task costs: the agent's sensors against psutil's walk of the same process tree.

psutil is asked for less (processor, memory and disk, no network), the usual way and, for what it is worth,
with the process objects of the last round kept, which misses every process that was started since.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

import psutil

from benchmarks.tools import p50, progress
from trackside.agent.cgroup import Cgroups, detect
from trackside.collect.probe import CgroupDirs, TaskProbe
from trackside.collect.sensors import Sensors, boot_ms
from trackside.domain.exchange import TaskKey
from trackside.domain.job import JobId, TaskName
from trackside.domain.resources import GIB, Resources

TASKS = 8
PROCESSES = 10
ROUNDS = 40
INTERVAL_MS = 5_000
MUST, REACH = 1 / 5, 1 / 10
GIVEN = Resources(cpu_cores=1, memory_bytes=GIB)

# A shim with a tree below it: half of its processes are children of one of them.
SHIM = """
import subprocess, sys
tree = "for i in $(seq {half}); do sleep 600 & done; wait"
commands = [["sleep", "600"]] * ({half} - 1) + [["sh", "-c", tree]]
children = [subprocess.Popen(command) for command in commands]
print("up", flush=True)
sys.stdin.read()
"""


def run() -> None:
    """Print the cost of one task's sample by either way, and their ratio."""
    groups = Cgroups(detect())
    ways = {"processes": False} | ({"control groups": True} if groups.bases.limits_memory else {})
    for words, grouped in ways.items():
        with _tasks(groups if grouped else None) as probes:
            progress(f"{TASKS} tasks of {PROCESSES} processes, by {words}")
            ours = _cost_of_sensors(probes)
            trees = [_tree(probe.shim_pid) for probe in probes]
            walked = _cost(lambda probes=probes: [_read(_tree(one.shim_pid)) for one in probes])  # type: ignore[misc]
            kept = _cost(lambda trees=trees: [_read(tree) for tree in trees])  # type: ignore[misc]
        print(
            f"by {words}: agent {ours * 1e6:.0f} us per task and sample, "
            f"psutil's walk {walked * 1e6:.0f} us: {ours / walked:.3f}   "
            f"(must be <= {MUST:.2f}, reach {REACH:.2f}); "
            f"psutil without looking for new processes {kept * 1e6:.0f} us: {ours / kept:.3f}"
        )


def _cost_of_sensors(probes: list[TaskProbe]) -> float:
    ahead_ms = 0
    with Sensors(INTERVAL_MS, clock=lambda: boot_ms() + ahead_ms) as sensors:
        for probe in probes:
            sensors.add(probe)

        def read() -> int:
            nonlocal ahead_ms
            ahead_ms += INTERVAL_MS
            return len(sensors.read(ahead_ms))

        for _ in range(5):  # what is young is read more often, and files are opened once
            read()
        assert read() >= 6 * len(probes), "not every task was measured"
        return _cost(read)


def _tree(shim_pid: int) -> list[psutil.Process]:
    return psutil.Process(shim_pid).children(recursive=True)


def _read(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
            process.cpu_times()
            process.memory_info()
            process.io_counters()


def _cost(read: Callable[[], object]) -> float:
    """Return the processor seconds of one reading of one task, the median of many."""
    spent = []
    for _ in range(ROUNDS):
        began = time.process_time()
        read()
        spent.append(time.process_time() - began)
    return p50(spent) / TASKS


@contextlib.contextmanager
def _tasks(groups: Cgroups | None) -> Iterator[list[TaskProbe]]:
    """Run tasks, in control groups if given, and end them."""
    names = [f"bench-{uuid.uuid4().hex[:12]}" for _ in range(TASKS)]
    shims: list[subprocess.Popen[str]] = []
    try:
        probes = []
        for name in names:
            dirs = groups.create(name, GIVEN) if groups else None
            shim = subprocess.Popen(
                [sys.executable, "-S", "-c", SHIM.format(half=PROCESSES // 2)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                preexec_fn=lambda dirs=dirs: _join(dirs),  # type: ignore[misc]
            )
            shims.append(shim)
            assert shim.stdout is not None
            assert shim.stdout.readline() == "up\n"
            while len(_tree(shim.pid)) < PROCESSES:  # its shell is still forking
                time.sleep(0.01)
            key = TaskKey(JobId("bench"), 1, TaskName(name))
            probes.append(TaskProbe(key=key, shim_pid=shim.pid, resources=GIVEN, cgroup=dirs))
        yield probes
    finally:
        for shim in shims:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shim.pid, signal.SIGKILL)
            shim.communicate()
        for name in names if groups else ():
            groups.remove(name)


def _join(dirs: CgroupDirs | None) -> None:
    places = {dirs.memory, dirs.cpu, dirs.cpuacct, dirs.pids, dirs.unified} - {None} if dirs else set()
    for place in places:
        assert place is not None
        (place / "cgroup.procs").write_text(str(os.getpid()))
