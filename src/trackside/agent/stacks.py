"""Knows how to say where every process of a task stands; changes nothing.

Python processes are read by py-spy where it is installed beside the agent, the others from /proc. A process
may end while it is looked at: then there is less to tell.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from trackside.agent.errands import Cannot, Target
from trackside.domain.exchange import Errand

TEXT_BYTES_MAX = 64 * 1024
PROCESSES_MAX = 64
SECONDS_MAX = 20.0
PY_SPY = "py-spy"
PY_SPY_SECONDS_MAX = 5.0  # it stops the process for a moment, which does not always work
NO_PY_SPY = "py-spy is not installed beside the agent (pip install 'trackside[stacks]'): no Python stacks"

_CUT = "\n[cut]"


def stacks(errand: Errand, target: Target) -> str:
    """Return where the processes of a task stand, the oldest first."""
    del errand
    pids = sorted(target.processes())
    if not pids:
        raise Cannot("the task has no process any more")
    program = py_spy()
    deadline = time.monotonic() + SECONDS_MAX
    parts = [] if program else [NO_PY_SPY]
    share = TEXT_BYTES_MAX // min(len(pids), PROCESSES_MAX)
    for pid in pids[:PROCESSES_MAX]:
        left = deadline - time.monotonic()
        found = look(pid, program, left) if left > 0 else f"process {pid}: there was no time left to look"
        parts.append(cut(found, share))
    if len(pids) > PROCESSES_MAX:
        parts.append(f"and {len(pids) - PROCESSES_MAX} more processes")
    return cut("\n\n".join(parts), TEXT_BYTES_MAX)


def py_spy() -> str | None:
    """Return where py-spy is."""
    beside = os.path.join(os.path.dirname(sys.executable), PY_SPY)
    return beside if os.access(beside, os.X_OK) else shutil.which(PY_SPY)


def look(pid: int, program: str | None, seconds: float) -> str:
    """Return where one process stands."""
    if program is None or not is_python(pid):
        return from_proc(pid)
    trouble = ""
    for options in ([], ["--nonblocking"]):
        try:
            done = subprocess.run(
                [program, "dump", "--pid", str(pid), *options],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=min(seconds, PY_SPY_SECONDS_MAX),
                check=False,
            )
        except subprocess.TimeoutExpired:
            trouble = "it took too long"
            continue
        if done.returncode == 0:
            return done.stdout.decode(errors="replace").strip()
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        trouble = lines[-1] if lines else f"it exited with code {done.returncode}"
    return f"{from_proc(pid)}\npy-spy could not read it: {trouble}"


def is_python(pid: int) -> bool:
    """Say whether a process runs Python, by its program or a library it has loaded."""
    with contextlib.suppress(OSError):
        if os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python"):
            return True
        return "/libpython" in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    return False


def from_proc(pid: int) -> str:
    """Return what the kernel says of a process: state, threads, and what it waits in."""
    try:
        command = _read(pid, "cmdline").replace("\0", " ").strip()
        fields = dict(line.split(":\t", 1) for line in _read(pid, "status").splitlines() if ":\t" in line)
    except OSError:
        return f"process {pid}: it has ended"
    told = [f"process {pid}: {command or fields.get('Name', '')}"]
    told.append(
        f"state {fields.get('State')}, {fields.get('Threads')} threads, resident {fields.get('VmRSS')}"
    )
    with contextlib.suppress(OSError):
        waits = _read(pid, "wchan")
        told += [f"waits in {waits}"] if waits not in ("", "0") else []
    with contextlib.suppress(OSError):
        told += [f"  {line}" for line in _read(pid, "stack").splitlines()]
    return "\n".join(told)


def cut(text: str, bytes_max: int) -> str:
    """Return a text, or as much of its beginning as fits."""
    data = text.encode()
    if len(data) <= bytes_max:
        return text
    return data[: max(0, bytes_max - len(_CUT))].decode(errors="ignore") + _CUT


def _read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
