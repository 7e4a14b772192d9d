"""Knows logs as files: DIR/<job_id>/<attempt>/<task>.log. Knows no jobs: a missing file is an empty log.

A task's log is that of all its attempts, in order; an attempt always begins a new line. Files are read by
chunks, in worker threads, so that neither memory nor the event loop feels how large a log is.
"""

import asyncio
import contextlib
import errno
import os
import re
import shutil
import stat
import threading
from collections import OrderedDict, deque
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.logstore.lines import LineFile, LineIndex
from trackside.ports import LogSlice

TEXT_BYTES_MAX = 5 * 1024 * 1024  # of one answer
COPY_BYTES = 256 * 1024  # of a log that is handed on whole, at a time
INDEXES_MAX = 512  # files whose lines are known by heart

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NOTHING = LogSlice(text="", first_line=0, last_line=0)


def open_logs(root: Path) -> "FileLogs":
    """Open the logs kept in a directory; it need not exist yet."""
    return FileLogs(root)


class FileLogs:
    """Implement LogStore over a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._indexes = _Indexes()

    def path(self, job_id: JobId, attempt: int, task: str) -> Path:
        """Return where the log of one attempt of a task is written."""
        if attempt < 0:
            raise Invalid(f"{attempt} is no attempt of a job")
        return self._job_dir(job_id) / str(attempt) / f"{checked_name(task, 'task name')}.log"

    async def tail(self, job_id: JobId, task: str, *, bytes_max: int) -> tuple[str, int]:
        """Return the newest part of the log, from the start of a line, and the full size in bytes."""
        paths = self._paths(job_id, task)
        return await asyncio.to_thread(_tail, paths, min(bytes_max, TEXT_BYTES_MAX))

    async def lines(
        self,
        job_id: JobId,
        task: str,
        *,
        base_line: int | None,
        count: int,
        descending: bool,
        attempts: Sequence[int] | None = None,
    ) -> LogSlice:
        """Return up to `count` whole lines before (descending) or after (ascending) `base_line`.

        Fewer come where they would be more than TEXT_BYTES_MAX: those next to `base_line` do, so that
        asking on from the last one (or the first) misses nothing. With `attempts`, lines are counted in the
        log of these starts alone.
        """
        paths = self._paths(job_id, task, attempts)
        return await asyncio.to_thread(self._lines, paths, base_line, count, descending)

    def chunks(self, job_id: JobId, task: str, attempts: Sequence[int]) -> Generator[bytes, None, None]:
        """Yield what these starts of a task have printed by now; each begins a new line."""
        with _opened(self._paths(job_id, task, attempts)) as fds:
            for fd in fds:
                last = b"\n"
                for chunk in _whole(fd):
                    yield chunk
                    last = chunk[-1:]
                if last != b"\n" and fd is not fds[-1]:
                    yield b"\n"

    async def forget(self, job_id: JobId) -> None:
        """Remove the logs of a job."""
        directory = self._job_dir(job_id)
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, directory)

    def _job_dir(self, job_id: JobId) -> Path:
        return self._root / checked_name(job_id, "job id")

    def _paths(self, job_id: JobId, task: str, wanted: Sequence[int] | None = None) -> list[Path]:
        """Return the files of some attempts, or of all, the oldest first."""
        directory = self._job_dir(job_id)
        checked_name(task, "task name")
        if wanted is not None:
            return [self.path(job_id, attempt, task) for attempt in sorted(set(wanted))]
        try:
            attempts = sorted(
                int(name) for name in os.listdir(directory) if name.isascii() and name.isdigit()
            )
        except FileNotFoundError:
            return []
        return [self.path(job_id, attempt, task) for attempt in attempts]

    def _lines(self, paths: Sequence[Path], base_line: int | None, count: int, descending: bool) -> LogSlice:
        with _opened(paths) as fds:
            files = [self._line_file(fd) for fd in fds]
            total = sum(file.count for file in files)
            first, end = _range(total, base_line, count, descending)
            if first >= end:
                return _NOTHING
            lines = _all_lines(files, first, end)
            if descending:
                newest = _newest(lines)
                return LogSlice(text="".join(newest), first_line=end - len(newest) + 1, last_line=end)
            oldest = _oldest(lines)
            return LogSlice(text="".join(oldest), first_line=first + 1, last_line=first + len(oldest))

    def _line_file(self, fd: int) -> LineFile:
        index, size = self._indexes.of(fd)
        return LineFile(fd, size, index)


class _Indexes:
    """Keep the line indexes of the files read last."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], LineIndex] = OrderedDict()
        self._changing = threading.Lock()

    def of(self, fd: int) -> tuple[LineIndex, int]:
        """Return the index and the size of a file; a new index if the file was cut shorter."""
        status = os.fstat(fd)
        identity = (status.st_dev, status.st_ino)
        with self._changing:
            index = self._known.pop(identity, None) or LineIndex()
            # The size is read last: another thread may have counted what was added meanwhile.
            counted, size = index.bytes_counted, os.fstat(fd).st_size
            if counted > size:
                index = LineIndex()
            self._known[identity] = index
            if len(self._known) > INDEXES_MAX:
                self._known.popitem(last=False)
        return index, size


def checked_name(name: str, what: str) -> str:
    """Return a name that is safe as a file's, or raise Invalid."""
    if not _NAME.fullmatch(name):
        raise Invalid(f"{name!r} is no {what}")
    return name


@contextlib.contextmanager
def _nothing_there() -> Iterator[None]:
    """Take a missing file, or a symlink in its place, as no log at all."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise


@contextlib.contextmanager
def _opened(paths: Sequence[Path]) -> Iterator[list[int]]:
    """Open the files that are there."""
    fds: list[int] = []
    try:
        for path in paths:
            with _nothing_there():
                fds.append(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
        yield [fd for fd in fds if stat.S_ISREG(os.fstat(fd).st_mode)]
    finally:
        for fd in fds:
            os.close(fd)


def _whole(fd: int) -> Iterator[bytes]:
    """Yield a file as it is now, by pieces: what is added meanwhile is left out."""
    offset, size = 0, os.fstat(fd).st_size
    while offset < size and (chunk := os.pread(fd, min(COPY_BYTES, size - offset), offset)):
        yield chunk
        offset += len(chunk)


def _range(total: int, base_line: int | None, count: int, descending: bool) -> tuple[int, int]:
    """Return which lines were asked for, counted from 0, the end not included."""
    if descending:
        end = total if base_line is None else max(0, min(base_line - 1, total))
        return max(0, end - count), end
    first = max(0, base_line or 0)
    return first, min(first + count, total)


def _all_lines(files: Sequence[LineFile], first: int, end: int) -> Iterator[str]:
    """Yield lines of files that follow each other; a last line left open is closed before the next file."""
    before = 0
    for file in files:
        for line in file.lines(max(0, first - before), min(end - before, file.count)):
            yield line if line.endswith("\n") or file is files[-1] else line + "\n"
        before += file.count


def _oldest(lines: Iterator[str]) -> list[str]:
    """Return the first lines that fit into an answer; one always does."""
    kept: list[str] = []
    left = TEXT_BYTES_MAX
    for line in lines:
        left -= len(line.encode())
        if left < 0:
            break
        kept.append(line)
    return kept


def _newest(lines: Iterator[str]) -> Sequence[str]:
    """Return the last lines that fit into an answer, never holding more than that."""
    kept: deque[str] = deque()
    left = TEXT_BYTES_MAX
    for line in lines:
        kept.append(line)
        left -= len(line.encode())
        while left < 0:
            left += len(kept.popleft().encode())
    return kept


def _tail(paths: Sequence[Path], bytes_max: int) -> tuple[str, int]:
    """Return the end of files that follow each other, and how large they are together."""
    with _opened(paths) as fds:
        sizes = [os.fstat(fd).st_size for fd in fds]
        left, newest = bytes_max, b""
        for fd, size in zip(reversed(fds), reversed(sizes), strict=True):
            if left <= 0:
                break
            part = os.pread(fd, min(left, size), max(0, size - left))
            if size > left and os.pread(fd, 1, size - left - 1) != b"\n":
                part = _from_line_start(part, alone=not newest)
            glue = b"\n" if newest and part and not part.endswith(b"\n") else b""
            newest = part + glue + newest
            left -= size
    return newest.decode(errors="replace"), sum(sizes)


def _from_line_start(part: bytes, *, alone: bool) -> bytes:
    """Return what follows the first newline; of a single long line, what follows a broken character."""
    rest = part.partition(b"\n")[2]
    return rest if rest or not alone else part.lstrip(bytes(range(0x80, 0xC0)))
