"""Knows the small files a task leaves on its node, how they survive a full disk, and who holds a lock.

Standard library only: the forker and the shims import this. What the files mean is decided elsewhere.
"""

import contextlib
import fcntl
import json
import os
import struct
from collections.abc import Mapping
from typing import NotRequired, TypedDict

RECORD_BYTES = 4096  # one block: overwritten in place it needs no new space

ORDER, PLAN, SHIM, LOCK = "order.json", "launch.json", "shim.json", "lock"
STARTED, EXIT, STOP, STAGED, ENDED = "started", "exit", "stop.json", "staged.json", "ended.json"
ERRANDS = "errands.json"

_FLOCK = "hhqqixxxx"  # struct flock: type, whence, start, length, pid


class Cover(TypedDict):
    """Hide a directory behind an empty one in which only these (source, target) paths are shown."""

    at: str
    binds: list[list[str]]


class Plan(TypedDict):
    """Everything a shim needs to know to run one task."""

    key: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    must_exist: str | None  # a file the command cannot do without
    log: str
    grace_seconds: float
    user: list[int] | None  # uid and gid to drop to
    covers: list[Cover]
    cgroup_joins: list[str]  # files into which the process writes itself
    cgroup_unified: str | None
    oom_file: str | None  # has a line "oom_kill N"
    memory_peak_file: str | None
    tmp_dir: str
    shm_bytes: NotRequired[int | None]  # the size of a /dev/shm of its own; None: it has the machine's


class StartedRecord(TypedDict):
    """Say that the user's process runs."""

    pid: int
    start_ticks: int | None
    boot_id: str
    at_ms: int


class ExitRecord(TypedDict):
    """Say how a task ended; written once its process tree was seen empty."""

    cause: str
    message: str
    exit_code: int | None
    signal: int | None
    at_ms: int
    ended_boot_ms: int
    duration_ms: int | None
    cpu_seconds: float
    max_rss_bytes: int
    read_bytes: int | None
    write_bytes: int | None
    stop_asked: bool
    oom_kills: int
    memory_peak_bytes: int | None
    # Since evidence is kept; a shim of an earlier version wrote none of these.
    oom_kills_before: NotRequired[int | None]  # the counter itself; None: there is none
    oom_kills_after: NotRequired[int | None]
    room: NotRequired[dict[str, list[int]]]  # by place: bytes used, free and in all when it ended
    shm_own: NotRequired[bool]  # its /dev/shm was its own


def preallocate(path: str) -> None:
    """Make a record's file with room for its later content."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(fd, b" " * RECORD_BYTES)
    finally:
        os.close(fd)


def overwrite(path: str, value: object) -> None:
    """Put a value into a preallocated file; it is durable on return, even on a full disk."""
    data = json.dumps(value).encode() + b"\n"
    assert len(data) <= RECORD_BYTES, len(data)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, data, 0)
        os.fdatasync(fd)
    finally:
        os.close(fd)


def replace(path: str, data: bytes) -> None:
    """Write a whole file such that a reader sees the old or the new one."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(fd, data)
    finally:
        os.close(fd)
    os.rename(path + ".new", path)


def read(path: str) -> dict[str, object] | None:
    """Return a record; None if there is none or it is not whole."""
    try:
        with open(path, "rb") as file:
            line, newline, _ = file.read().partition(b"\n")
    except FileNotFoundError:
        return None
    if not newline:
        return None
    with contextlib.suppress(ValueError):
        value = json.loads(line)
        if isinstance(value, dict):
            return value
    return None


def line(value: Mapping[str, object]) -> bytes:
    """Return a value as `read` takes it."""
    return json.dumps(value).encode() + b"\n"


def lock(path: str) -> int | None:
    """Take the lock for the life of this process; return its file descriptor, None if it is held.

    Record locks belong to a process: children do not inherit them and the kernel tells who holds one.
    The process must never open the file again, for closing it would give the lock up.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def lock_holder(path: str) -> int | None:
    """Return the process that holds the lock."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else pid


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
