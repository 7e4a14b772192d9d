"""Knows how to use up what a task has, from within: its memory, its /dev/shm. Runs as a process of its own.

Standard library only (`python -I -S`), single-threaded: only such a process can enter mounts, and what it
takes is given back when it ends. It prints one JSON line: what it did, or why it could not.
"""

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from trackside.agent import child, linux, tree

STEP_BYTES = 4 * 1024**2
SHM = "/dev/shm"  # noqa: S108  # the place this is about
SHM_BYTES = 64 * 1024**2  # what a container is given by default
SHM_SOURCE = "trackside-chaos"  # what the mount is called, to know it again
SHM_FILE = "trackside-chaos"
OOM_SCORE_LOWEST = -999

_AT_THE_LIMIT = (errno.ENOMEM, errno.ENOSPC, errno.EINTR)


class Refused(Exception):
    """It cannot be done here; the text is for whoever asked."""


def main(verb: str, argument: str) -> NoReturn:
    """Do one thing and say how it went."""
    told = {}
    try:
        told["done"] = _VERBS[verb](**json.loads(argument))
    except Refused as refusal:
        told["refused"] = str(refusal)
    except OSError as error:
        told["failed"] = f"{error.strerror} ({error.filename})" if error.filename else str(error.strerror)
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    os._exit(0)


def exhaust(join: str, counter: str, pid: int, ticks: int | None, seconds: float) -> str:
    """Take memory in the task's group until the kernel has killed a process of it.

    What is taken is no process's own (a file without a name), so that the kernel chooses one of the task's.
    """
    deadline = time.monotonic() + seconds
    before = _kills(counter)
    child.join(join)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"%d" % OOM_SCORE_LOWEST)
    fd = os.memfd_create("trackside-chaos")
    size = 0
    while _kills(counter) == before:
        if tree.start_ticks(pid) != ticks:
            return "the task ended meanwhile"
        if time.monotonic() > deadline:
            raise Refused(f"the kernel killed nothing in {seconds:g} s, with {size:,} bytes taken")
        try:
            os.posix_fallocate(fd, size, STEP_BYTES)
        except OSError as error:
            if error.errno not in _AT_THE_LIMIT:
                raise
            time.sleep(0.01)
        else:
            size += STEP_BYTES
    return f"{size:,} bytes were taken until the kernel killed a process of it"


def fill_shm(pid: int, percent: float) -> str:
    """Give the task a small /dev/shm of its own, on top of the one it sees: full from the first moment."""
    mounts = _mounts_of(pid)
    made = linux.make_tmpfs(SHM_SOURCE, {"mode": "1777", "size": str(SHM_BYTES)})
    fd = os.open(SHM_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=made)
    _fill(fd, int(SHM_BYTES * percent / 100))
    os.close(fd)
    linux.join_namespace(mounts)
    linux.attach(made, SHM)
    os.close(made)
    return f"its {SHM} is {percent:g} % full, of {SHM_BYTES // 1024**2} MiB"


def _fill(fd: int, size: int) -> None:
    """Make a file this large, or as large as there is room for."""
    written = 0
    piece = b"\0" * 65536
    with contextlib.suppress(OSError):
        while written < size:
            written += os.write(fd, piece[: size - written])


def empty_shm(pid: int) -> str:
    """Take that /dev/shm away again; what lies below was not touched."""
    linux.join_namespace(_mounts_of(pid))
    taken = 0
    while _mounted():
        linux.unmount(SHM)
        taken += 1
    return f"{taken} taken away"


def _mounts_of(pid: int) -> int:
    """Return what stands for the task's own mounts; refuse if they are everybody's."""
    fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    own = os.stat("/proc/self/ns/mnt")
    if (os.fstat(fd).st_dev, os.fstat(fd).st_ino) == (own.st_dev, own.st_ino):
        raise Refused(
            f"the task's {SHM} is the machine's own, which others use too. Only a task that has mounts of "
            "its own can be given a full one: one whose user may not pass the agent's data directory"
        )
    return fd


def _mounted() -> bool:
    """Say whether the topmost mount there is ours."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        there = [line.split() for line in file if line.split()[4] == SHM]
    return bool(there) and SHM_SOURCE in there[-1]


def _kills(counter: str) -> int:
    with open(counter, "rb") as file:
        for line in file:
            words = line.split()
            if len(words) == 2 and words[0] == b"oom_kill":
                return int(words[1])
    raise Refused("this kernel does not count what it kills for memory")


_VERBS: dict[str, Callable[..., str]] = {"exhaust": exhaust, "fill_shm": fill_shm, "empty_shm": empty_shm}
