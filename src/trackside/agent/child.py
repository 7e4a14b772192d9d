"""Knows the last steps between a shim's fork and the user's command; each can fail and says so plainly.

Standard library only, single-threaded: this runs in a freshly forked process.
"""

import contextlib
import errno
import json
import os
import signal
import stat
from typing import NoReturn

from trackside.agent import linux
from trackside.agent.record import Cover, Plan

OOM_SCORE_RAISE = 200  # when the machine runs out of memory, a task goes before the agent does
EXIT_CANNOT_START = 127
SHM = "/dev/shm"  # noqa: S108 - the place itself
FIRST_LINE_BYTES_MAX = 256  # as much as the kernel reads of it

# Handlers end with exec, but what is ignored stays so: by Python, by the shim, by nohup.
_MAYBE_IGNORED = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE),
    *(signal.SIGCHLD, signal.SIGXFSZ, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)

_WORDS = {
    errno.ENOENT: "no such file: {path}. Check the command and the job's code directory",
    errno.EACCES: "no permission to {verb} {path}. Make it readable and executable (chmod a+rx)",
    errno.ELOOP: "{path}: its symbolic links lead nowhere",
    errno.ENAMETOOLONG: "{path}: the name is too long",
    errno.ENOEXEC: "{path} is not a program. Give it a first line such as #!/bin/sh",
    errno.ENOTDIR: "{path}: a part of the path is not a directory",
    errno.E2BIG: "the arguments and the environment together are too long for the system",
    errno.ETXTBSY: "{path} is being written to",
    errno.ENOMEM: "the system has no memory left to start {path}",
    errno.EAGAIN: "the system's limit of processes is reached",
}
_ENTER_WORDS = {
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "it is not a directory",
    errno.EACCES: "the task's user may not (chmod a+x)",
}


class CannotStart(Exception):
    """The command could not be executed; the text is for the job's owner."""


def run(plan: Plan, log_fd: int, error_fd: int, *, stderr_fd: int | None = None) -> NoReturn:
    """Become the user's command, or tell why not through `error_fd` and exit."""
    try:
        _prepare(plan, log_fd, log_fd if stderr_fd is None else stderr_fd)
        _execute(plan)
    except CannotStart as error:
        _tell(error_fd, str(error))
    except OSError as error:
        _tell(error_fd, f"the task could not be prepared: {error.strerror} ({error.filename})")
    finally:
        os._exit(EXIT_CANNOT_START)


def _prepare(plan: Plan, log_fd: int, stderr_fd: int) -> None:
    os.setsid()
    os.umask(0o022)
    for path in plan["cgroup_joins"]:
        join(path)
    _raise_oom_score()
    if plan["covers"]:
        cover(plan["covers"])
    shm_bytes = plan.get("shm_bytes")
    if shm_bytes is not None:
        _give_shm(shm_bytes, own_mounts=bool(plan["covers"]))
    null_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for source, target in ((null_fd, 0), (log_fd, 1), (stderr_fd, 2)):
        os.dup2(source, target)
    if plan["user"] is not None:
        drop_privileges(*plan["user"])
    _enter(plan["cwd"])
    for number in _MAYBE_IGNORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def cover(covers: list[Cover]) -> None:
    """Hide directories the user may not pass, and show just the needed paths below them."""
    try:
        linux.unshare_mounts()
    except PermissionError as error:
        hidden = ", ".join(bind[1] for entry in covers for bind in entry["binds"])
        raise CannotStart(
            f"the task's user cannot reach {hidden}, and this system lets the agent make no mount namespace. "
            "Move the data directory and Python to places every user can pass, or set task_user to root"
        ) from error
    # Everything is opened before anything is hidden.
    sources = {source for entry in covers for source, _ in entry["binds"]}
    opened = {source: os.open(source, os.O_PATH | os.O_CLOEXEC) for source in sources}
    for entry in covers:
        linux.mount("trackside", entry["at"], "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755,size=1m")
        for source, target in entry["binds"]:
            _make_mount_point(opened[source], target)
            linux.mount(f"/proc/self/fd/{opened[source]}", target, None, linux.MS_BIND | linux.MS_REC)
    for fd in opened.values():
        os.close(fd)


def _give_shm(size_bytes: int, *, own_mounts: bool) -> None:
    """Give the task a /dev/shm of its own, where the system allows: its contents go with the task."""
    with contextlib.suppress(OSError):  # then it has the machine's
        if not own_mounts:
            linux.unshare_mounts()
        flags = linux.MS_NOSUID | linux.MS_NODEV
        linux.mount("trackside", SHM, "tmpfs", flags, f"mode=1777,size={size_bytes}")


def drop_privileges(uid: int, gid: int) -> None:
    """Become an ordinary user for good: no groups, no capabilities, no way back."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    linux.forbid_new_privileges()


def _execute(plan: Plan) -> NoReturn:
    needed = plan["must_exist"]
    if needed is not None:
        try:
            os.close(os.open(needed, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise CannotStart(_words(error.errno or 0, needed, "read")) from error
    program = plan["argv"][0]
    why = ""
    for path in [program] if "/" in program else _candidates(program, plan["env"]["PATH"]):
        try:
            os.execve(path, plan["argv"], plan["env"])  # noqa: S606  # the user's command is the point
        except (FileNotFoundError, NotADirectoryError):
            if not os.path.exists(path):
                continue
            why = missing_interpreter(path)
            break
        except OSError as error:
            why = _words(error.errno or 0, path)
            if error.errno != errno.EACCES:
                break
        except ValueError as error:
            raise CannotStart(f"the command or its environment cannot be passed on: {error}") from error
    raise CannotStart(why or _words(errno.ENOENT, program))


def missing_interpreter(path: str) -> str:
    """Say what a file that is there, but that the kernel says is not, lacks: the program that runs it."""
    name = _interpreter(path)
    if name is None:
        return f"{path} needs a loader that this machine does not have: it was built for another system"
    if name.endswith("\r"):
        return f"the first line of {path} ends as on Windows. Save it with Unix line ends (dos2unix)"
    return f"the interpreter {name}, named in the first line of {path}, does not exist"


def interpreter_is_missing(path: str) -> bool:
    """Say whether a file names a program that should run it and is not there."""
    name = _interpreter(path)
    return name is not None and not os.path.exists(name)


def _interpreter(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            first = file.read(FIRST_LINE_BYTES_MAX).partition(b"\n")[0]
    except OSError:
        return None
    words = first[2:].strip(b" \t").split(b" ", 1) if first.startswith(b"#!") else []
    return words[0].decode(errors="replace") or None if words else None


def _candidates(program: str, path: str) -> list[str]:
    return [f"{directory or '.'}/{program}" for directory in path.split(":")]


def _enter(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        why = _ENTER_WORDS.get(error.errno or 0, error.strerror)
        raise CannotStart(f"the working directory {path} cannot be entered: {why}") from error


def join(path: str) -> None:
    """Move this single thread into a v1 group.

    "0" into `tasks` is the one way that takes no machine-wide lock: `cgroup.procs` waits for every CPU.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def _raise_oom_score() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+b", buffering=0) as file:
        file.write(b"%d" % min(1000, int(file.read()) + OOM_SCORE_RAISE))


def _make_mount_point(source_fd: int, target: str) -> None:
    if stat.S_ISDIR(os.fstat(source_fd).st_mode):
        os.makedirs(target, exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _words(number: int, path: str, verb: str = "run") -> str:
    return _WORDS.get(number, "{path}: " + os.strerror(number)).format(path=path, verb=verb)


def _tell(error_fd: int, message: str) -> None:
    os.write(error_fd, json.dumps({"message": message[:2000]}).encode())
