"""Knows how one source of a job's own metrics is read: a command, a port, the log. Blocks; decides nothing.

Each reader is used by one thread at a time; `cancel` may come from another.
"""

import contextlib
import json
import os
import select
import socket
import threading
import time
from pathlib import Path
from typing import Protocol, cast

from trackside.agent import inside, linux, tree
from trackside.agent.inside import Request, Verdict
from trackside.agent.insider import Insider
from trackside.agent.matching import Matcher, Refused
from trackside.agent.state import TaskFiles
from trackside.collect.custom import Problem, Read, TaskSeries
from trackside.collect.exposition import NotText
from trackside.collect.fetch import Connect, FetchFailed, fetch
from trackside.collect.probe import TaskProbe
from trackside.collect.sensors import boot_ms
from trackside.domain.job import MetricSource

READ_SECONDS_MAX = 5.0
TEXT_BYTES_MAX = 100 * 1024
END_SECONDS_MAX = 3.0  # beyond that, to kill what was started
LOG_BYTES_MAX = 256 * 1024  # searched per period and task
LINE_CHARS_MAX = 4096
LOOPBACK = "127.0.0.1"
FAILED, NOT_OPEN = "failed", "port"  # kinds of trouble that a program may grow out of
LISTENING = b"0A"  # in /proc/net/tcp


class SourceFailed(Exception):
    """The source gave nothing; why, in words for the job's owner."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(kind, text)


class TaskIsOver(Exception):
    """There is no task any more to read from."""


class Reader(Protocol):
    """One source of one task."""

    name: str

    def read(self, at_ms: int | None = None) -> Read:
        """Return what the source says now; raise SourceFailed or TaskIsOver."""
        ...

    def cancel(self) -> None:
        """Have a reading that goes on come to its end."""
        ...


def make_reader(
    source: MetricSource, probe: TaskProbe, insider: Insider, files: TaskFiles, series: TaskSeries
) -> Reader:
    """Return the reader of a job's source."""
    if source.command:
        return CommandReader(source.command, insider, files, series)
    assert source.path is not None, "a source has a command, or a path and a port"
    assert source.port is not None
    return PortReader(source.path, source.port, probe.shim_pid, files, series)


class CommandReader:
    """Runs a command inside the task and reads its output."""

    def __init__(
        self, command: tuple[str, ...], insider: Insider, files: TaskFiles, series: TaskSeries
    ) -> None:
        self.name = f"the command {command[0]}"[:100]
        self._command = command
        self._insider = insider
        self._files = files
        self._series = series
        self._lock = threading.Lock()
        self._leash: socket.socket | None = None
        self._cancelled = False

    def read(self, at_ms: int | None = None) -> Read:
        """Return what the command prints."""
        del at_ms
        pid, start_ticks = _main_process(self._files)
        request: Request = {
            "state_dir": str(self._files.directory),
            "pid": pid,
            "start_ticks": start_ticks,
            "command": list(self._command),
            "seconds": READ_SECONDS_MAX,
        }
        leash, output_fd = self._insider.begin(request, seconds_max=READ_SECONDS_MAX + END_SECONDS_MAX)
        try:
            self._hold(leash)
            text, told = _converse(leash, output_fd)
        finally:
            self._let_go(leash)
            os.close(output_fd)
        if told["verdict"] == inside.TASK_OVER or self._cancelled:
            raise TaskIsOver
        if len(text) > TEXT_BYTES_MAX:
            raise SourceFailed("size", f"printed more than {TEXT_BYTES_MAX // 1024} KB")
        if told["verdict"] == inside.TOO_SLOW:
            raise SourceFailed("time", f"took more than {READ_SECONDS_MAX:g} s and was killed")
        if told["verdict"] != inside.DONE:
            raise SourceFailed(FAILED, f"failed: {told['message']}")
        return _understood(self._series, text)

    def cancel(self) -> None:
        """Pull the leash: what was started is killed."""
        with self._lock:
            self._cancelled = True
            if self._leash is not None:
                with contextlib.suppress(OSError):
                    self._leash.shutdown(socket.SHUT_WR)

    def _hold(self, leash: socket.socket) -> None:
        with self._lock:
            if self._cancelled:
                raise TaskIsOver
            self._leash = leash

    def _let_go(self, leash: socket.socket) -> None:
        """Pull the leash and wait until nothing of the command is left."""
        with self._lock:
            self._leash = None
        with leash, contextlib.suppress(OSError):
            leash.shutdown(socket.SHUT_WR)
            leash.settimeout(END_SECONDS_MAX)
            while leash.recv(4096):
                pass


def _converse(leash: socket.socket, output_fd: int) -> tuple[bytes, Verdict]:
    """Read the output to its end, or to more than is allowed, and how the command went."""
    text, told = b"", b""
    slow: Verdict = {"verdict": inside.TOO_SLOW, "message": ""}
    deadline = time.monotonic() + READ_SECONDS_MAX + END_SECONDS_MAX
    while select.select([output_fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(output_fd, 65536)
        text += piece
        if not piece or len(text) > TEXT_BYTES_MAX:
            break
    else:
        return text, slow
    if len(text) > TEXT_BYTES_MAX:
        return text, {"verdict": inside.DONE, "message": ""}
    leash.settimeout(max(0.1, deadline - time.monotonic()))
    try:
        while not told.endswith(b"\n") and (piece := leash.recv(4096)):
            told += piece
    except TimeoutError:
        return text, slow
    if not told:
        return text, {"verdict": inside.FAILED, "message": "it could not be run"}
    return text, cast(Verdict, json.loads(told))


class PortReader:
    """Reads a page on a port of the task, in its own network namespace if it has one."""

    def __init__(self, path: str, port: int, shim_pid: int, files: TaskFiles, series: TaskSeries) -> None:
        self.name = f"port {port}"
        self._path = path if path.startswith("/") else f"/{path}"
        self._port = port
        self._shim_pid = shim_pid
        self._files = files
        self._series = series

    def read(self, at_ms: int | None = None) -> Read:
        """Return what the page says. Only a socket of the task's own will do: a port may be a neighbour's."""
        del at_ms
        pid, _ = _main_process(self._files)
        if not listens(pid, self._shim_pid, self._port):
            raise SourceFailed(NOT_OPEN, "is not open: no process of the task listens there")
        try:
            text = fetch(
                LOOPBACK,
                self._port,
                self._path,
                seconds_max=READ_SECONDS_MAX,
                bytes_max=TEXT_BYTES_MAX,
                connect=_connector(pid),
            )
        except FetchFailed as error:
            raise SourceFailed(type(error).__name__, f"gave nothing: {error}") from error
        return _understood(self._series, text)

    def cancel(self) -> None:
        """Nothing to do: it ends by itself, soon."""


class LogReader:
    """Searches what the task printed since the last reading."""

    name = "the log"

    def __init__(
        self,
        patterns: tuple[tuple[str, str], ...],
        log: Path,
        matcher: Matcher,
        series: TaskSeries,
    ) -> None:
        self._patterns = dict(patterns)
        self._log = log
        self._matcher = matcher
        self._series = series
        self._at = 0
        self._rest = b""

    def read(self, at_ms: int | None = None) -> Read:
        """Return the last number each pattern finds in the new lines."""
        text, problems = self._new_text(whole=at_ms is not None)
        lines = [line[:LINE_CHARS_MAX] for line in text.decode(errors="replace").splitlines()]
        samples = []
        for name, pattern in list(self._patterns.items()) if lines else ():
            try:
                found = self._matcher.last(pattern, lines)
                if found is None:
                    continue
                read = self._series.read_number(
                    name, float(found), at_ms=_now_ms() if at_ms is None else at_ms
                )
            except Refused as error:
                del self._patterns[name]
                problems.append(Problem(f"pattern {name}", f"is searched for {name} no longer: {error}"))
                continue
            except ValueError:
                problems.append(Problem(f"number {name}", f"has no number where {name} is looked for"))
                continue
            samples += read.samples
            problems += read.problems
        return Read(samples, problems)

    def cancel(self) -> None:
        """Nothing to do: the last reading comes after the task's end."""

    def _new_text(self, *, whole: bool) -> tuple[bytes, list[Problem]]:
        """Return the new lines; a line that has not ended yet waits, unless the task is over."""
        problems: list[Problem] = []
        try:
            with open(self._log, "rb") as file:
                behind = os.fstat(file.fileno()).st_size - self._at
                if behind > LOG_BYTES_MAX:
                    if self._at > 0:  # else: it was there before us
                        words = (
                            f"grew by more than {LOG_BYTES_MAX // 1024} KB at once: only its end is searched"
                        )
                        problems.append(Problem("size", words))
                    self._at += behind - LOG_BYTES_MAX
                    self._rest = b""
                file.seek(self._at)
                text = self._rest + file.read(LOG_BYTES_MAX)
                self._at = file.tell()
        except FileNotFoundError:
            return b"", problems
        if whole:
            return text, problems
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self._rest = text[end:][-LINE_CHARS_MAX:]
        return text[:end], problems


def listens(main_pid: int, shim_pid: int, port: int) -> bool:
    """Say whether a process of the task listens on a TCP port."""
    inodes: set[bytes] = set()
    wanted = b"%04X" % port
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/{main_pid}/net/{table}", "rb") as file:
            for line in file.readlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and fields[1].endswith(b":" + wanted):
                    inodes.add(b"socket:[%s]" % fields[9])
    return bool(inodes) and any(inodes & _links(pid) for pid in tree.descendants([shim_pid]))


def _connector(pid: int) -> Connect:
    """Return how to connect from within the network namespace of a process."""

    def connect(host: str, port: int, seconds_max: float) -> socket.socket:
        made = _socket_within(pid)
        try:
            made.settimeout(seconds_max)
            made.connect((host, port))
        except BaseException:
            made.close()
            raise
        return made

    return connect


def _socket_within(pid: int) -> socket.socket:
    """Make a socket in the namespace of a process: a socket stays where it was made, the thread returns."""
    with contextlib.ExitStack() as opened:
        try:
            home = opened.enter_context(open("/proc/thread-self/ns/net", "rb", buffering=0))
            there = opened.enter_context(open(f"/proc/{pid}/ns/net", "rb", buffering=0))
        except PermissionError:  # a process we may not look into has no namespace of its own from us
            return socket.socket()
        if os.fstat(home.fileno()).st_ino == os.fstat(there.fileno()).st_ino:
            return socket.socket()
        linux.join_namespace(there.fileno())
        try:
            return socket.socket()
        finally:
            linux.join_namespace(home.fileno())


def _links(pid: int) -> set[bytes]:
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{name}".encode()))
    return found


def _main_process(files: TaskFiles) -> tuple[int, int]:
    """Return the task's main process and when it began, if it is still there."""
    started = files.started()
    if started is None or started["start_ticks"] is None or started["boot_id"] != tree.boot_id():
        raise TaskIsOver
    if tree.start_ticks(started["pid"]) != started["start_ticks"]:
        raise TaskIsOver
    return started["pid"], started["start_ticks"]


def _understood(series: TaskSeries, text: bytes) -> Read:
    try:
        return series.read_text(text, at_ms=_now_ms(), boot_ms=boot_ms())
    except NotText as error:
        raise SourceFailed("text", f"gave no Prometheus text: {error}") from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
