"""Knows the system calls Python has no words for; decides nothing.

Standard library only: the forker and the shims import this, and they must stay small.
"""

import ctypes
import os
import struct

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

MS_NOSUID = 2
MS_NODEV = 4
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19

_CLONE_NEWNS = 0x00020000
_CLONE_INTO_CGROUP = 0x200000000
_SYS_CLONE3 = 435  # the same number on every architecture
_SIGCHLD = 17

# PyDLL keeps the interpreter lock: clone3 must return into a child whose only thread holds it.
_held = ctypes.PyDLL(None, use_errno=True)
_libc = ctypes.CDLL(None, use_errno=True)


def set_name(name: str) -> None:
    """Name this process, as ps shows it."""
    _check(_libc.prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0), "prctl")


def become_subreaper() -> None:
    """Make orphaned descendants children of this process."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def forbid_new_privileges() -> None:
    """Make set-uid programs powerless for this process and all it starts."""
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def unshare_mounts() -> None:
    """Give this process a mount table of its own that takes changes from outside but lets none out."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    mount("none", "/", None, MS_REC | MS_SLAVE)


def join_namespace(fd: int) -> None:
    """Move this thread into the namespace that a descriptor stands for."""
    _check(_libc.setns(fd, 0), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount, as mount(2) does."""
    filesystem = None if kind is None else kind.encode()
    code = _libc.mount(
        os.fsencode(source), os.fsencode(target), filesystem, ctypes.c_ulong(flags), options.encode()
    )
    _check(code, f"mount {target}")


def fork_into(cgroup: str | None) -> int:
    """Fork a child that is born in the v2 cgroup, if there is one."""
    if cgroup is None:
        return os.fork()
    fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _fork_into(fd)  # joining a cgroup later waits for every CPU of the machine
    finally:
        os.close(fd)


def _fork_into(cgroup_fd: int) -> int:
    arguments = struct.pack("<11Q", _CLONE_INTO_CGROUP, 0, 0, 0, _SIGCHLD, 0, 0, 0, 0, 0, cgroup_fd)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _held.syscall(
        ctypes.c_long(_SYS_CLONE3), ctypes.c_char_p(arguments), ctypes.c_size_t(len(arguments))
    )
    error = ctypes.get_errno()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(error, os.strerror(error), "clone3")
    return pid


def _check(code: int, what: str) -> None:
    if code != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)
