"""Knows how to have a task's memory or /dev/shm used up by a helper, and when that would harm others."""

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import trackside
from trackside.agent import cgroup
from trackside.agent.chaos import lasting
from trackside.agent.errands import Cannot, Target
from trackside.collect.probe import CgroupDirs
from trackside.domain.exchange import Errand
from trackside.domain.wording import size_text

HELPER_SECONDS_MAX = 25.0
EXHAUST_SECONDS_MAX = 20.0
HOST_RESERVE_BYTES = 512 * 1024**2  # what the machine must have left beside all the task may take
UNLIMITED_BYTES = 2**60  # v1 has a very large number where there is no limit

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from trackside.agent.chaos_inside import main; "
    "main(sys.argv[2], sys.argv[3])"
)
_NO_LIMIT = "this node does not enforce limits of memory: the whole machine would run out of it"


class HelperKilled(OSError):
    """Somebody killed the helper."""


def exhaust_memory(errand: Errand, target: Target) -> str:
    """Let the task's control group hit its limit of memory."""
    limit, used, join = _memory(target)
    counter = cgroup.oom_file(target.dirs) if target.dirs is not None else None
    if counter is None:
        raise Cannot(_NO_LIMIT)
    free = _available_bytes()
    if free < limit - used + HOST_RESERVE_BYTES:
        raise Cannot(
            f"the machine has {size_text(free)} of memory left, and the task may still take "
            f"{size_text(limit - used)}: others would suffer"
        )
    try:
        return _helped(
            "exhaust",
            join=str(join),
            counter=counter,
            pid=target.main_pid,
            ticks=target.main_ticks,
            seconds=min(errand.seconds or EXHAUST_SECONDS_MAX, EXHAUST_SECONDS_MAX),
        )
    except HelperKilled:
        if target.alive:
            raise
        # The last to go: the kernel had killed all of the task's processes and still found no room.
        return "the kernel killed its processes at its limit of memory"


def fill_shm(errand: Errand, target: Target) -> str:
    """Make the task's own /dev/shm `amount` percent full."""
    percent = 100.0 if errand.amount is None else errand.amount
    if not 1 <= percent <= 100:
        raise Cannot(f"a /dev/shm can be 1 to 100 percent full, not {percent:g}")
    return _helped("fill_shm", pid=target.main_pid, percent=percent) + lasting(errand)


def empty_shm(errand: Errand, target: Target) -> None:
    """Make the task's /dev/shm as large as before; it ends with the task."""
    del errand
    if target.alive:
        with contextlib.suppress(Cannot):
            _helped("empty_shm", pid=target.main_pid)


def _memory(target: Target) -> tuple[int, int, Path]:
    """Return the task's limit, what it uses, and the file by which a process joins its group."""
    dirs = target.dirs or CgroupDirs()
    places = (
        (dirs.memory, "memory.limit_in_bytes", "memory.usage_in_bytes", "tasks"),
        (dirs.unified, "memory.max", "memory.current", "cgroup.procs"),
    )
    for directory, limit_name, used_name, join in places:
        if directory is None or not (directory / limit_name).exists():
            continue
        limit = (directory / limit_name).read_text().strip()
        if limit.isdigit() and int(limit) < UNLIMITED_BYTES:
            return int(limit), int((directory / used_name).read_text()), directory / join
    raise Cannot(_NO_LIMIT)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _helped(verb: str, **arguments: Any) -> str:
    """Have the helper do something; return its words, or raise those it refuses with."""
    root = str(Path(trackside.__file__).parent.parent)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _BOOT, root, verb, json.dumps(arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HELPER_SECONDS_MAX,
            cwd="/",
            env={},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"it was not done after {HELPER_SECONDS_MAX:g} s") from None
    try:
        told: dict[str, str] = json.loads(done.stdout)
    except ValueError:
        if done.returncode == -signal.SIGKILL:
            raise HelperKilled("the process that was to do it was killed") from None
        raise OSError(f"the process that was to do it ended with code {done.returncode}") from None
    if "refused" in told:
        raise Cannot(told["refused"])
    if "failed" in told:
        raise OSError(told["failed"])
    return told["done"]
