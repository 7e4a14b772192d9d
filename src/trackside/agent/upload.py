"""Knows what tasks wrote and what of it was sent; refuses to know how objects are stored.

The task may be hostile and the agent may be root, so nothing here opens a path the task could have bent:
directories are entered and files opened one component at a time, without following symlinks, and only
regular files are read. `os.fwalk` is not enough for that: on Python 3.11 it opens directories in a way that
waits on a FIFO put in their place, and it reads a directory whole before anyone can say it is too large.
"""

import contextlib
import heapq
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trackside.domain.errors import TracksideError
from trackside.domain.event import Level
from trackside.domain.exchange import TaskKey
from trackside.ports import ObjectStore

PERIOD_SECONDS = 30.0
FILES_MAX = 100_000  # per task
DEPTH_MAX = 100  # every level of directories holds a descriptor while it is walked
# A file written this shortly before it was read may change again within the file system's clock tick,
# so that the change would not show: such a file is sent once more.
SETTLED_AFTER_NS = 100_000_000

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UploadError(Exception):
    """A task's outputs could not all be stored; the text is for the job's owner."""


@dataclass(frozen=True, slots=True)
class _Signature:
    """What changes when a file's content does."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> "_Signature":
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(slots=True, eq=False)
class _Watch:
    """What is known of one task's outputs."""

    key: TaskKey
    outputs: dict[str, Path]
    sent: dict[str, _Signature] = field(default_factory=dict)  # by target URL
    warned: bool = False
    busy: threading.Lock = field(default_factory=threading.Lock)


class Uploader:
    """Send what tasks write to their outputs: periodically, from one thread for all, and at the end."""

    def __init__(
        self,
        objects: ObjectStore,
        *,
        note: Callable[[TaskKey, str, Level], None],
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._objects = objects
        self._note = note
        self._period_seconds = period_seconds
        self._watches: dict[TaskKey, _Watch] = {}
        self._due: list[
            tuple[float, int, _Watch]
        ] = []  # a heap; the middle keeps watches from being compared
        self._turn = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def watch(self, key: TaskKey, outputs: Mapping[str, Path]) -> None:
        """Begin to send what appears in the directories, each to its URL."""
        if not outputs:
            return
        with self._changed:
            assert not self._closed, "the uploader is closed"
            self._watches[key] = _Watch(key=key, outputs=dict(outputs))
            self._schedule(self._watches[key])
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="uploads", daemon=True)
                self._thread.start()
            self._changed.notify()

    def finish(self, key: TaskKey) -> None:
        """Send what is new, once, and stop watching; raise UploadError if some of it could not be sent.

        A key that is not watched has nothing to send. Blocks while objects are stored: call it in a thread.
        """
        with self._changed:
            watch = self._watches.pop(key, None)
        if watch is None:
            return
        with watch.busy:
            problems = _Pass(self._objects, watch).run()
        if problems:
            raise UploadError(_sentence(problems))

    def upload_log(self, key: TaskKey, log_path: Path, url: str) -> None:
        """Store a task's log as URL/<task>.log; a task without a log has nothing to store."""
        target = f"{url.rstrip('/')}/{key.task}.log"
        try:
            with _opened(str(log_path), _FILE) as fd:
                self._objects.upload_file(fd, target)
        except FileNotFoundError:
            return
        except (TracksideError, OSError) as error:
            raise UploadError(f"the log of {key.task} was not stored at {target}: {_why(error)}") from error

    def close(self) -> None:
        """Stop the thread; what was not finished is not sent."""
        with self._changed:
            self._closed = True
            self._watches.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _schedule(self, watch: _Watch) -> None:
        self._turn += 1
        heapq.heappush(self._due, (time.monotonic() + self._period_seconds, self._turn, watch))

    def _run(self) -> None:
        while (watch := self._next_due()) is not None:
            with watch.busy:
                if self._watched(watch):
                    self._send_periodically(watch)
            with self._changed:
                if self._watched(watch):
                    self._schedule(watch)

    def _watched(self, watch: _Watch) -> bool:
        return self._watches.get(watch.key) is watch

    def _next_due(self) -> _Watch | None:
        """Wait for the next watch whose time has come; None once closed."""
        with self._changed:
            while not self._closed:
                while self._due and not self._watched(self._due[0][2]):
                    heapq.heappop(self._due)
                if not self._due:
                    self._changed.wait()
                elif (left := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(left)
                else:
                    return heapq.heappop(self._due)[2]
            return None

    def _send_periodically(self, watch: _Watch) -> None:
        problems = _Pass(self._objects, watch, go_on=lambda: self._watched(watch)).run()
        if problems and not watch.warned:
            self._note(watch.key, f"{_sentence(problems)}; this is tried again", Level.WARNING)
        watch.warned = bool(problems)  # a failure that went away and came back is worth another word


class _Pass:
    """One look at all outputs of a task, sending what changed since the one before."""

    def __init__(self, objects: ObjectStore, watch: _Watch, go_on: Callable[[], bool] = lambda: True) -> None:
        self._objects = objects
        self._watch = watch
        self._go_on = go_on  # asked between files: a pass nobody waits for any more ends early
        self._sent: dict[str, _Signature] = {}
        self._problems: list[str] = []
        self._files_left = FILES_MAX

    def run(self) -> list[str]:
        """Send every file that changed; return what went wrong."""
        for url, directory in self._watch.outputs.items():
            try:
                with _entered(directory) as fd:
                    self._directory(fd, url.rstrip("/"), os.fstat(fd).st_uid, DEPTH_MAX)
            except FileNotFoundError:  # the task removed it: nothing to send
                continue
            except OSError as error:
                self._problems.append(f"the output for {url} could not be read: {_why(error)}")
        if self._files_left < 0:
            self._problems.append(
                f"a task's outputs are limited to {FILES_MAX} files; the others were not sent"
            )
        # Forget what is gone, unless the pass ended early and has not seen everything.
        self._watch.sent = self._sent if self._go_on() else {**self._watch.sent, **self._sent}
        return self._problems

    def _directory(self, fd: int, url: str, owner_uid: int, depth_left: int) -> None:
        with os.scandir(fd) as entries:
            for entry in entries:
                if self._files_left < 0 or not self._go_on():
                    return
                target = f"{url}/{entry.name}"
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._subdirectory(fd, entry.name, target, owner_uid, depth_left - 1)
                    elif entry.is_file(follow_symlinks=False):
                        self._file(fd, entry, target, owner_uid)
                except FileNotFoundError:  # removed, or replaced, since it was listed
                    continue
                except (TracksideError, OSError) as error:
                    self._problems.append(f"{target!r}: {_why(error)}")

    def _subdirectory(self, fd: int, name: str, url: str, owner_uid: int, depth_left: int) -> None:
        if depth_left == 0:
            self._problems.append(f"{url!r}: outputs are limited to {DEPTH_MAX} levels of directories")
            return
        with _opened(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd) as child_fd:
            self._directory(child_fd, url, owner_uid, depth_left)

    def _file(self, fd: int, entry: "os.DirEntry[str]", target: str, owner_uid: int) -> None:
        self._files_left -= 1
        if self._files_left < 0:
            return
        seen = _Signature.of(entry.stat(follow_symlinks=False))
        if self._watch.sent.get(target) == seen:
            self._sent[target] = seen
            return
        begun_ns = time.time_ns()
        with _opened(entry.name, _FILE, dir_fd=fd) as file_fd:
            before = os.fstat(file_fd)
            if not _may_send(before, owner_uid):
                return
            self._objects.upload_file(file_fd, target)
        # What is kept is the state before the reading: a change meanwhile shows in the next pass.
        if begun_ns - before.st_mtime_ns > SETTLED_AFTER_NS:
            self._sent[target] = _Signature.of(before)


def _may_send(status: os.stat_result, owner_uid: int) -> bool:
    """Say whether it is a regular file, and no hard link to a file that the task might not even read."""
    return stat.S_ISREG(status.st_mode) and (status.st_nlink == 1 or status.st_uid == owner_uid)


@contextlib.contextmanager
def _opened(path: str, flags: int, dir_fd: int | None = None) -> Iterator[int]:
    fd = os.open(path, flags, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _entered(directory: Path) -> Iterator[int]:
    """Open a directory; follow no symlink at or below the first directory that somebody else may change."""
    nofollow = 0
    with contextlib.ExitStack() as stack:
        fd = stack.enter_context(_opened("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        for part in directory.absolute().parts[1:]:
            status = os.fstat(fd)
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_MAY_WRITE:
                nofollow = os.O_NOFOLLOW
            flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC | nofollow
            fd = stack.enter_context(_opened(part, flags, dir_fd=fd))
        yield stack.enter_context(_opened(".", _DIRECTORY, dir_fd=fd))


def _sentence(problems: list[str]) -> str:
    others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"outputs are not all uploaded: {problems[0]}{others}"


def _why(error: TracksideError | OSError) -> str:
    return error.detail if isinstance(error, TracksideError) else error.strerror or type(error).__name__
