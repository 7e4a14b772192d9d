"""Knows how to be the parent of one task: start it, wait for it, end its whole tree, leave the exit on disk.

Standard library only, and a single thread until the user's process was forked. Forked from the forker, it
outlives it and the agent. It talks to nobody: the agent reads its files. Refuses to know jobs, servers and
orders.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from typing import NoReturn, cast

from trackside.agent import child, linux, record, tally, tree
from trackside.agent.record import ExitRecord, Plan, StartedRecord

LOG_MODE = 0o600
KILL_ROUND_SECONDS = 0.05
START_ROUND_SECONDS = 0.05
DIRECTORY_BYTES_MAX = 4096
GO = b"go"  # said through the doorbell when the task's files are complete
PROCESS = b"process"  # comes back through it with the user's process
MESSAGE_CHARS_MAX = 500  # six bytes each, escaped at worst: it must fit its record
SHM = "/dev/shm"  # noqa: S108 - the place itself

_WATCHED = {signal.SIGCHLD, signal.SIGTERM}


def block_signals() -> None:
    """Hold back the signals a shim waits for; the forker does this before it forks, so that none is lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)


def main(orders: socket.socket) -> NoReturn:
    """Wait to be told which task to be the shim of: the directory of its files, and a doorbell.

    It is told as early as possible, so that it gets ready while the agent still writes the plan. The doorbell
    says when to go, and rings by being closed, once the task runs or never will.
    """
    code = 1
    try:
        os.setsid()
        linux.set_name("trackside-shim")
        linux.become_subreaper()
        os.chdir("/")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        _warm_up()
        told, fds, _, _ = socket.recv_fds(orders, DIRECTORY_BYTES_MAX, 1)
        orders.close()
        if told:
            os.set_inheritable(fds[0], False)
            os.set_blocking(fds[0], True)
            _serve(os.fsdecode(told), fds[0])
        code = 0
    except BaseException:  # nothing may get back into the code of the forker, whose copy this is
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _warm_up() -> None:
    """Use what every start uses: a fork shares memory until it is written to, and that is slow at first."""
    json.loads(json.dumps({"a": [1, "b", None, {"c": 0.5}]}))
    tree.start_ticks(os.getpid())
    tree.boot_id()
    for fd in os.pipe():
        os.close(fd)
    _boot_ms(), _wall_ms(), _boot_seconds()
    os.path.exists("/nowhere/at/all")


def _serve(state_dir: str, doorbell_fd: int) -> None:
    """Take the task, and run it once its plan is complete; give it back if that never happens."""
    if not _claim(state_dir):
        return
    if os.read(doorbell_fd, len(GO)) == GO:
        _Shim(state_dir, doorbell_fd).run()
    else:  # nothing was started, and the lock is still ours: the next shim may have it
        os.unlink(f"{state_dir}/{record.SHIM}")


def _claim(state_dir: str) -> bool:
    """Make this the one shim this task ever has. The lock comes first: a shim file without it means dead."""
    if record.lock(f"{state_dir}/{record.LOCK}") is None:
        return False
    try:
        fd = os.open(f"{state_dir}/{record.SHIM}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    with contextlib.suppress(OSError):  # on a full disk the empty file and the lock say enough
        os.write(fd, record.line({"pid": os.getpid()}))
    os.close(fd)
    return True


class _Shim:
    def __init__(self, state_dir: str, doorbell_fd: int) -> None:
        self._dir = state_dir
        self._doorbell_fd = doorbell_fd
        with open(f"{state_dir}/{record.PLAN}", "rb") as file:
            self._plan = cast(Plan, json.load(file))
        self._main_pid: int | None = None
        self._main_status: int | None = None
        self._ended_boot_ms: int | None = None
        self._started_boot_ms: int | None = None
        self._totals = tally.Totals()
        self._oom_kills_before = self._oom_kills()
        self._settling: threading.Thread | None = None
        self._mounts_fd: int | None = None
        self._shm_fd: int | None = None  # of the task's own /dev/shm, which goes with its last process
        self._room: dict[str, list[int]] = {}
        self._stop_asked = False
        self._kill_at: float | None = None  # CLOCK_BOOTTIME seconds

    def run(self) -> None:
        if self._stop_ordered():
            self._stop_asked = True
            self._leave("not_started", "stopped before its process began")
            return
        refused = self._start()
        if refused is not None:
            self._kill_rest()
            self._leave("not_started" if self._stop_asked else "cannot_start", refused)
            return
        self._wait()
        self._room = self._look_around()
        self._kill_rest()
        self._leave("exited", "")

    # --- start

    def _start(self) -> str | None:
        """Start the user's process; return why that was not possible."""
        try:
            log_fd = os.open(
                self._plan["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, LOG_MODE
            )
        except OSError as error:
            return f"the log cannot be written: {error.strerror}. Make room on the disk that holds the logs"
        read_fd, write_fd = os.pipe()
        pid = linux.fork_into(self._plan["cgroup_unified"])
        if pid == 0:
            child.run(self._plan, log_fd, write_fd)
        os.close(write_fd)
        os.close(log_fd)
        started_at_ms, self._started_boot_ms = _wall_ms(), _boot_ms()
        self._main_pid = pid
        self._hand_over(pid)
        refused = self._hear(read_fd)
        os.close(read_fd)
        if refused is not None:
            return refused
        self._hold_mounts(pid)
        value: StartedRecord = {
            "pid": pid,
            "start_ticks": tree.start_ticks(pid),
            "boot_id": tree.boot_id(),
            "at_ms": started_at_ms,
        }
        # Disks take their time: when the process ends meanwhile, that must be noticed at once.
        self._settling = threading.Thread(target=self._settle, args=(value,))
        self._settling.start()
        return None

    def _hear(self, read_fd: int) -> str | None:
        """Wait until the command runs (the pipe closes) or its process says why it cannot."""
        while not select.select([read_fd], [], [], START_ROUND_SECONDS)[0]:
            if self._stop_ordered():
                self._stop_asked = True
                return "stopped before its process began"
        told = b""
        while piece := os.read(read_fd, 65536):
            told += piece
        return str(json.loads(told)["message"]) if told else None

    def _hand_over(self, pid: int) -> None:
        """Let the agent see for itself in which order the processes of a job end."""
        with contextlib.suppress(OSError):  # the agent may be gone
            fd = os.pidfd_open(pid)
            with socket.socket(fileno=os.dup(self._doorbell_fd)) as doorbell:
                socket.send_fds(doorbell, [PROCESS], [fd])
            os.close(fd)

    def _hold_mounts(self, pid: int) -> None:
        """Keep the task's own mounts: nobody else's end waits for theirs, and /dev/shm can be looked at then.

        A process that is the last to use mounts takes milliseconds to end after its files and connections
        were closed. Its peers, who hear of that at once, would seem to have ended before it.
        """
        with contextlib.suppress(OSError):  # it may be over already, or may not be looked into
            self._mounts_fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            if self._plan.get("shm_bytes") is None:
                return
            fd = os.open(f"/proc/{pid}/root{SHM}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if os.fstat(fd).st_dev == os.stat(SHM).st_dev:
                os.close(fd)
            else:
                self._shm_fd = fd

    def _settle(self, value: StartedRecord) -> None:
        """Make it durable that this task was begun, before anyone is told that it runs."""
        record.overwrite(f"{self._dir}/{record.STARTED}", value)
        for path in (f"{self._dir}/{record.SHIM}", self._dir, os.path.dirname(self._dir)):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.fsync(fd)
            os.close(fd)
        os.close(self._doorbell_fd)

    def _stop_ordered(self) -> bool:
        return signal.SIGTERM in signal.sigpending() or os.path.exists(f"{self._dir}/{record.STOP}")

    # --- wait and stop

    def _wait(self) -> None:
        """Wait for the main process; after a stop, for the whole tree or the end of its grace."""
        if self._stop_ordered() and not self._ended_by_itself():
            self._begin_stop()
        while self._reap():
            if self._main_status is not None and not self._stop_asked:
                return
            left = None if self._kill_at is None else self._kill_at - _boot_seconds()
            if left is not None and left <= 0:
                return
            got = signal.sigwaitinfo(_WATCHED) if left is None else signal.sigtimedwait(_WATCHED, left)
            if got is not None and got.si_signo == signal.SIGTERM and not self._ended_by_itself():
                self._begin_stop()

    def _ended_by_itself(self) -> bool:
        """Say whether the main process had ended when the order to stop came: then that did not end it."""
        self._reap()
        return self._main_status is not None and not self._stop_asked

    def _begin_stop(self) -> None:
        """Ask every process to end; another request may shorten the grace but not lengthen it."""
        order = record.read(f"{self._dir}/{record.STOP}") or {}
        grace = order.get("grace_seconds", self._plan["grace_seconds"])
        assert isinstance(grace, int | float)
        kill_at = _boot_seconds() + max(0.0, grace)
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
        if not self._stop_asked:
            self._stop_asked = True
            # A stopped process takes TERM only when it goes on.
            pids = self._tree()
            tree.send(pids, signal.SIGTERM)
            tree.send(pids, signal.SIGCONT)

    def _kill_rest(self) -> None:
        """Kill until the kernel says there is no child left: orphans are ours too, so the tree is empty."""
        while self._reap():
            unified = self._plan["cgroup_unified"]
            if unified is not None:
                with contextlib.suppress(OSError), open(f"{unified}/cgroup.kill", "wb", buffering=0) as file:
                    file.write(b"1")
            tree.freeze_and_kill(self._tree)
            if self._reap():
                signal.sigtimedwait({signal.SIGCHLD}, KILL_ROUND_SECONDS)

    def _tree(self) -> set[int]:
        return tree.descendants([os.getpid()])

    def _reap(self) -> bool:
        """Take all that ended; say whether any child is left."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None:
                return True
            self._take(ended.si_pid)

    def _take(self, pid: int) -> None:
        if pid == self._main_pid:
            self._ended_boot_ms = _boot_ms()
        status = self._totals.reap(pid)
        if pid == self._main_pid:
            self._main_status = status

    # --- leave

    def _look_around(self) -> dict[str, list[int]]:
        """Return how much room there is where the task may write, if it ended badly."""
        if self._main_status == 0:
            return {}
        return tally.room(
            {
                "shm": SHM if self._shm_fd is None else self._shm_fd,
                "work": self._plan["cwd"],
                "tmp": self._plan["tmp_dir"],
                "log": self._plan["log"],
            }
        )

    def _leave(self, cause: str, message: str) -> None:
        status = self._main_status if cause == "exited" else None
        ended = self._ended_boot_ms or _boot_ms()
        began = self._started_boot_ms
        code = None if status is None else os.waitstatus_to_exitcode(status)
        before, after = self._oom_kills_before, self._oom_kills()
        value: ExitRecord = {
            "cause": cause,
            "message": message[:MESSAGE_CHARS_MAX],
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "at_ms": _wall_ms() - (_boot_ms() - ended),
            "ended_boot_ms": ended,
            "duration_ms": ended - began if cause == "exited" and began is not None else None,
            "cpu_seconds": round(self._totals.cpu_seconds, 6),
            "max_rss_bytes": self._totals.max_rss_bytes,
            "read_bytes": self._totals.read_bytes,
            "write_bytes": self._totals.write_bytes,
            "stop_asked": self._stop_asked,
            "oom_kills": max(0, (after or 0) - (before or 0)),
            "memory_peak_bytes": tally.number(self._plan["memory_peak_file"]),
            "oom_kills_before": before,
            "oom_kills_after": after,
            "room": self._room,
            "shm_own": self._shm_fd is not None,
        }
        if self._settling is not None:
            self._settling.join()
        record.overwrite(f"{self._dir}/{record.EXIT}", value)

    def _oom_kills(self) -> int | None:
        return tally.counter(self._plan["oom_file"], b"oom_kill")


def _boot_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
