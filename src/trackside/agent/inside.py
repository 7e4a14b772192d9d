"""Knows how to run one short command inside a running task and to leave nothing of it behind.

Runs outside the agent (`python -I -S`, standard library only, single-threaded): a small process that is up
and forks one runner per request, because starting Python costs more than most commands. The command has the
task's user, environment, working directory, control groups, and its main process's mounts and network. Its
runner stays outside, as the subreaper of whatever the command starts, and kills all of it when the command
ends, when its time is up, or when the agent lets go of its end of the leash.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import time
from typing import NoReturn, TypedDict, cast

from trackside.agent import child, linux, record, tree
from trackside.agent.record import Plan

TASK_OVER = "task_over"  # verdicts
FAILED = "failed"
TOO_SLOW = "too_slow"
DONE = "done"
MESSAGE_CHARS_MAX = 500
KILL_ROUND_SECONDS = 0.05
NAMESPACES = ("net", "mnt")  # the mounts last: what is opened before must be found


class Request(TypedDict):
    """What to run, where, and for how long; the first line that comes over the leash."""

    state_dir: str
    pid: int  # of the task's main process
    start_ticks: int
    command: list[str]
    seconds: float


class Verdict(TypedDict):
    """How it went; the only line that goes back over the leash."""

    verdict: str
    message: str


def serve(control_fd: int) -> NoReturn:
    """Fork a runner whenever a leash and an output arrive, until the agent goes away."""
    linux.set_name("trackside-look")
    control = socket.socket(fileno=control_fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps runners
    gc.collect()
    gc.freeze()  # a fork shares these pages for as long as nobody touches them
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1, 2)
        if not message:
            os._exit(0)
        for fd in fds:
            os.set_inheritable(fd, False)
        if os.fork() == 0:
            control.close()
            _runner(*fds)
        for fd in fds:
            os.close(fd)


def _runner(leash_fd: int, output_fd: int) -> NoReturn:
    """Run the command that the leash tells of, and say over it how that went."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        linux.become_subreaper()
        line = _first_line(leash_fd)
        if line:
            verdict, message = _run(cast(Request, json.loads(line)), leash_fd, output_fd)
            _kill_rest()
            told: Verdict = {"verdict": verdict, "message": message[:MESSAGE_CHARS_MAX]}
            with contextlib.suppress(OSError):  # nobody holds the other end any more
                os.write(leash_fd, json.dumps(told).encode() + b"\n")
    finally:
        os._exit(0)


def _first_line(leash_fd: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(leash_fd, 65536)
        if not piece:
            return b""
        line += piece
    return line


def _run(asked: Request, leash_fd: int, output_fd: int) -> tuple[str, str]:
    deadline = time.monotonic() + asked["seconds"]
    try:
        with open(f"{asked['state_dir']}/{record.PLAN}", "rb") as file:
            plan = cast(Plan, json.load(file))
    except FileNotFoundError:
        return TASK_OVER, ""
    # It joins the task's mounts: they are covered already, and have the /dev/shm the task has.
    plan |= {"argv": asked["command"], "must_exist": None, "covers": [], "shm_bytes": None}
    alive = tree.start_ticks(asked["pid"]) == asked["start_ticks"]
    if not alive or not os.path.exists(f"/proc/{asked['pid']}/ns/mnt"):  # a zombie has none
        return TASK_OVER, ""
    told_fd, tell_fd = os.pipe()
    null_fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    pid = linux.fork_into(plan["cgroup_unified"])
    if pid == 0:
        _become(plan, asked["pid"], tell_fd, output_fd, null_fd)
    for fd in (tell_fd, null_fd, output_fd):  # the output must end with the command
        os.close(fd)
    if not _ended(pid, leash_fd, deadline):
        return TOO_SLOW, ""
    refused = os.read(told_fd, 4096)
    if refused:
        return FAILED, str(json.loads(refused)["message"])
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        return FAILED, f"it exited with code {code}" if code > 0 else f"signal {-code} ended it"
    return DONE, ""


def _become(plan: Plan, main_pid: int, tell_fd: int, output_fd: int, null_fd: int) -> NoReturn:
    """Be the command, from within the task."""
    try:
        for path in plan["cgroup_joins"]:
            child.join(path)
        _enter(main_pid, must=plan["user"] is not None)
    except OSError as error:
        text = f"the task could not be entered: {error.strerror} ({error.filename})"
        os.write(tell_fd, json.dumps({"message": text}).encode())
        os._exit(child.EXIT_CANNOT_START)
    child.run({**plan, "cgroup_joins": []}, output_fd, tell_fd, stderr_fd=null_fd)


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


def _ended(pid: int, leash_fd: int, deadline: float) -> bool:
    """Wait for the command, the end of its time, or the end of the agent's patience."""
    pidfd = os.pidfd_open(pid)
    ready, _, _ = select.select([pidfd, leash_fd], [], [], max(0.0, deadline - time.monotonic()))
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
