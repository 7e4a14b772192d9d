"""Knows the stacks of tasks as files beside their logs: DIR/<job_id>/<attempt>/<task>.<ms>.stacks.

They go when the job's logs go. Knows nothing of jobs, nor of who took them.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from trackside.domain.job import JobId
from trackside.logstore.files import checked_name
from trackside.ports import Snapshot

TEXT_BYTES_MAX = 1024 * 1024  # of one snapshot
CUT = "\n[cut off here: there was more]\n"

_FILE = re.compile(r"(?P<task>.+)\.(?P<at_ms>[0-9]{1,18})\.stacks", re.ASCII)


class FileStacks:
    """Implement StackStore over the directory of the logs."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def keep(self, job_id: JobId, snapshot: Snapshot, text: str) -> None:
        """Keep a snapshot, as far as it is not too long."""
        data = text.encode(errors="replace")
        if len(data) > TEXT_BYTES_MAX:
            data = data[:TEXT_BYTES_MAX] + CUT.encode()
        await asyncio.to_thread(_write, self._path(job_id, snapshot), data)

    async def snapshots(self, job_id: JobId) -> tuple[Snapshot, ...]:
        """Return what was kept of a job, the oldest first."""
        directory = self._root / checked_name(job_id, "job id")
        found = await asyncio.to_thread(lambda: list(_found(directory)))
        return tuple(sorted(found, key=lambda one: (one.at_ms, one.attempt, one.task)))

    async def read(self, job_id: JobId, snapshot: Snapshot) -> str:
        """Return what was kept; empty if it is gone."""
        return await asyncio.to_thread(_read, self._path(job_id, snapshot))

    def _path(self, job_id: JobId, snapshot: Snapshot) -> Path:
        directory = self._root / checked_name(job_id, "job id") / str(snapshot.attempt)
        return directory / f"{checked_name(snapshot.task, 'task name')}.{snapshot.at_ms}.stacks"


def _found(directory: Path) -> Iterator[Snapshot]:
    for attempt in _names(directory):
        if not (attempt.isascii() and attempt.isdigit()):
            continue
        for name in _names(directory / attempt):
            match = _FILE.fullmatch(name)
            if match is not None:
                yield Snapshot(task=match["task"], attempt=int(attempt), at_ms=int(match["at_ms"]))


def _names(directory: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(directory)
    return []


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    os.rename(fresh, path)


def _read(path: Path) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    with os.fdopen(fd, "rb") as file:
        return file.read().decode(errors="replace")
