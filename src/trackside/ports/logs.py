"""How what tasks printed, and where they stood when they seemed to hang, is kept and read."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trackside.domain.job import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlice:
    """Some whole lines of a log; line numbers count from 1."""

    text: str
    first_line: int
    last_line: int

    @property
    def lines(self) -> int:
        """Return how many lines there are."""
        return self.last_line - self.first_line + 1 if self.last_line else 0


class LogStore(Protocol):
    """Reads what tasks printed. A task's log is that of all its attempts, in order."""

    async def tail(self, job_id: JobId, task: str, *, bytes_max: int) -> tuple[str, int]:
        """Return the newest part of the log and the full size in bytes."""
        ...

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
        """Return up to `count` whole lines: descending, those before `base_line` (None: the newest);
        ascending, those after it (None: the oldest). Text is in reading order either way. With `attempts`,
        the log is that of these starts of the task alone."""
        ...

    def chunks(self, job_id: JobId, task: str, attempts: Sequence[int]) -> Generator[bytes, None, None]:
        """Yield what these starts of a task have printed by now, a piece at a time; blocks on the disk."""
        ...

    def path(self, job_id: JobId, attempt: int, task: str) -> Path:
        """Return where the log of one attempt of a task is written."""
        ...

    async def forget(self, job_id: JobId) -> None:
        """Remove the logs of a job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where the processes of a task stood at one moment; kept with its log."""

    task: str
    attempt: int  # of the task, as its log's
    at_ms: int


class StackStore(Protocol):
    """Keeps what was seen of tasks that seemed to hang. A returned write is durable."""

    async def keep(self, job_id: JobId, snapshot: Snapshot, text: str) -> None:
        """Keep a snapshot; one of the same task and moment is replaced."""
        ...

    async def snapshots(self, job_id: JobId) -> tuple[Snapshot, ...]:
        """Return what was kept of a job, the oldest first."""
        ...

    async def read(self, job_id: JobId, snapshot: Snapshot) -> str:
        """Return what was kept; empty if it is gone."""
        ...
