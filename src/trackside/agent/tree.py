"""Knows how to find every process below one, or of one task, and how to kill what keeps forking.

Standard library only: the forker and the shims import this. Refuses to know what a task is for.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable

KEY_VARIABLE = "TRACKSIDE_TASK_KEY"  # in the environment of every process of a task

_FREEZE_ROUNDS_MAX = 20


def parents() -> dict[int, int]:
    """Return the parent of every living process; zombies are left out."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            state_and_parent = _state_and_parent(name)
            if state_and_parent is not None and state_and_parent[0] not in "ZX":
                found[int(name)] = state_and_parent[1]
    return found


def descendants(roots: Iterable[int]) -> set[int]:
    """Return every living process below the roots, themselves left out."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    left = list(roots)
    while left:
        for pid in children.get(left.pop(), ()):
            if pid not in found:
                found.add(pid)
                left.append(pid)
    return found


def marked(key: str) -> set[int]:
    """Return the living processes whose environment names the task."""
    marker = f"{KEY_VARIABLE}={key}".encode()
    return {pid for pid in parents() if marker in _environ(pid)}


def state(pid: int) -> str | None:
    """Return the letter of a process's state; None if it is gone."""
    found = _state_and_parent(str(pid))
    return None if found is None else found[0]


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot: with the pid it names a process for good."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None


def boot_id() -> str:
    """Return what names this run of the machine: pids and ticks mean nothing in another."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def freeze_and_kill(find: Callable[[], set[int]]) -> set[int]:
    """Stop all that `find` finds until nothing new appears, then kill it: a stopped process cannot fork."""
    frozen: set[int] = set()
    for _ in range(_FREEZE_ROUNDS_MAX):
        fresh = find() - frozen
        if not fresh:
            break
        send(fresh, signal.SIGSTOP)
        frozen |= fresh
    send(frozen, signal.SIGKILL)
    return frozen


def _state_and_parent(name: str) -> tuple[str, int] | None:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split(None, 2)[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return state.decode(), int(parent)


def _environ(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:  # gone, or not ours to read: then it is not of a task of ours
        return []
