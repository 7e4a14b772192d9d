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
SHM_FILE = f"{SHM}/trackside-chaos"
SHM_FILE_BYTES = 64 * 1024  # so that something is in it: a size of nothing would mean no limit
SHM_ROUNDS = 50
SHM_ROUND_SECONDS = 0.01
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
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
    """Make the task's own /dev/shm so small that what is in it fills it; how large it was is kept in it."""
    _enter_shm(pid)
    fd = os.open(SHM_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.write(fd, b"%d\n".ljust(SHM_FILE_BYTES) % _shm_room()[1])
    os.close(fd)
    size = _tighten(percent)
    return f"its {SHM} holds no more than {size // 1024:,} KiB and is {percent:g} % full"


def _tighten(percent: float) -> int:
    """Make /dev/shm as small as can be, for a while: the task may just be about to free something."""
    before = smallest = _shm_room()[1]
    for _ in range(SHM_ROUNDS):
        used, _ = _shm_room()
        size = max(used, int(used * 100 / percent) // PAGE_BYTES * PAGE_BYTES)
        if size < smallest:
            with contextlib.suppress(OSError):  # the task wrote something in this moment
                _resize_shm(size)
                smallest = size
        time.sleep(SHM_ROUND_SECONDS)
    if smallest == before:
        raise OSError(errno.EBUSY, "the task writes to it all the time")
    return smallest


def empty_shm(pid: int) -> str:
    """Make the task's /dev/shm as large as it was."""
    _enter_shm(pid)
    try:
        fd = os.open(SHM_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return "there was nothing to undo"
    size = os.read(fd, SHM_FILE_BYTES).split(b"\n")[0]
    if os.fstat(fd).st_uid == os.geteuid() and size.isdigit():
        _resize_shm(int(size))
    os.unlink(SHM_FILE)
    return f"its {SHM} is as large as before"


def _enter_shm(pid: int) -> None:
    """Enter the task's own mounts; refuse if its /dev/shm is everybody's."""
    machines = os.stat(SHM).st_dev
    fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    own = os.stat("/proc/self/ns/mnt")
    if (os.fstat(fd).st_dev, os.fstat(fd).st_ino) != (own.st_dev, own.st_ino):
        linux.join_namespace(fd)
        if os.stat(SHM).st_dev != machines:
            return
    raise Refused(
        f"the task's {SHM} is the machine's own, which others use too: tasks have one of their own where the "
        "agent is root and they are not"
    )


def _shm_room() -> tuple[int, int]:
    """Return what is used of /dev/shm, and its size."""
    disk = os.statvfs(SHM)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_blocks * disk.f_frsize


def _resize_shm(size: int) -> None:
    flags = linux.MS_REMOUNT | linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("trackside", SHM, None, flags, f"size={size}")


def _kills(counter: str) -> int:
    with open(counter, "rb") as file:
        for line in file:
            words = line.split()
            if len(words) == 2 and words[0] == b"oom_kill":
                return int(words[1])
    raise Refused("this kernel does not count what it kills for memory")


_VERBS: dict[str, Callable[..., str]] = {"exhaust": exhaust, "fill_shm": fill_shm, "empty_shm": empty_shm}
