"""Knows how to run one short command inside a running task and to leave nothing of it behind.

Runs as a process of its own (`python -I -S`, standard library only, single-threaded). The command has the
task's user, environment, working directory, control groups, and its main process's mounts and network; its
output goes to ours. This process stays outside, as the subreaper of whatever the command starts, and kills
all of it when the command ends, when its time is up, or when the agent lets go of our standard input.
"""

import json
import os
import select
import signal
import sys
import time
from typing import NoReturn, TypedDict, cast

from trackside.agent import child, linux, record, tree
from trackside.agent.record import Plan

TASK_OVER = 3  # exit codes
FAILED = 4
TOO_SLOW = 5
KILL_ROUND_SECONDS = 0.05
NAMESPACES = ("net", "mnt")  # the mounts last: what is opened before must be found


class Request(TypedDict):
    """What to run, where, and for how long; the first line of our standard input."""

    state_dir: str
    pid: int  # of the task's main process
    start_ticks: int
    command: list[str]
    seconds: float


def main() -> NoReturn:
    """Run the command that standard input tells of; say on standard error what went wrong."""
    asked = cast(Request, json.loads(_first_line()))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    linux.set_name("trackside-look")
    linux.become_subreaper()
    code, message = _run(asked)
    _kill_rest()
    os.write(2, message.encode()[:2000])
    os._exit(code)


def _first_line() -> bytes:
    """Read to the end of the first line; what remains of the input is the leash."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece:
            sys.exit(FAILED)
        line += piece
    return line


def _run(asked: Request) -> tuple[int, str]:
    deadline = time.monotonic() + asked["seconds"]
    with open(f"{asked['state_dir']}/{record.PLAN}", "rb") as file:
        plan = cast(Plan, json.load(file))
    plan |= {"argv": asked["command"], "must_exist": None, "covers": []}
    alive = tree.start_ticks(asked["pid"]) == asked["start_ticks"]
    if not alive or not os.path.exists(f"/proc/{asked['pid']}/ns/mnt"):  # a zombie has none
        return TASK_OVER, ""
    told_fd, tell_fd = os.pipe()
    null_fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    pid = _fork(plan)
    if pid == 0:
        _become(plan, asked["pid"], tell_fd, null_fd)
    os.close(tell_fd)
    os.close(null_fd)
    os.close(1)  # so that the output ends with the command
    if not _ended(pid, deadline):
        return TOO_SLOW, ""
    refused = os.read(told_fd, 4096)
    if refused:
        return FAILED, str(json.loads(refused)["message"])
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        return FAILED, f"it exited with code {code}" if code > 0 else f"signal {-code} ended it"
    return 0, ""


def _fork(plan: Plan) -> int:
    unified = plan["cgroup_unified"]
    if unified is None:
        return os.fork()
    fd = os.open(unified, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return linux.fork_into_cgroup(fd)
    finally:
        os.close(fd)


def _become(plan: Plan, main_pid: int, tell_fd: int, null_fd: int) -> NoReturn:
    """Be the command, from within the task."""
    try:
        for path in plan["cgroup_joins"]:
            child.join(path)
        _enter(main_pid, must=plan["user"] is not None)
    except OSError as error:
        text = f"the task could not be entered: {error.strerror} ({error.filename})"
        os.write(tell_fd, json.dumps({"message": text}).encode())
        os._exit(child.EXIT_CANNOT_START)
    child.run({**plan, "cgroup_joins": []}, 1, tell_fd, stderr_fd=null_fd)


def _enter(main_pid: int, *, must: bool) -> None:
    """Join the namespaces of the task's main process; who is not root may not, and shares them anyway."""
    fds = []
    for name in NAMESPACES:
        fd = os.open(f"/proc/{main_pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        own = os.stat(f"/proc/self/ns/{name}")
        if (os.fstat(fd).st_dev, os.fstat(fd).st_ino) != (own.st_dev, own.st_ino):
            fds.append(fd)
    for fd in fds:
        try:
            linux.join_namespace(fd)
        except PermissionError:
            if must:
                raise


def _ended(pid: int, deadline: float) -> bool:
    """Wait for the command, the end of its time, or the end of the agent's patience."""
    pidfd = os.pidfd_open(pid)
    ready, _, _ = select.select([pidfd, 0], [], [], max(0.0, deadline - time.monotonic()))
    os.close(pidfd)
    return pidfd in ready


def _kill_rest() -> None:
    """Kill until no child is left: what was orphaned below us is ours."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        tree.freeze_and_kill(lambda: tree.descendants([os.getpid()]))
        signal.sigtimedwait({signal.SIGCHLD}, KILL_ROUND_SECONDS)
