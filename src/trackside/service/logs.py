"""Knows how callers read what their tasks printed, also through links that work for a while."""

import hashlib
import hmac
from urllib.parse import quote

from trackside.domain.errors import Forbidden, TaskNotFound
from trackside.domain.identity import Caller
from trackside.domain.job import Job, JobId, task_names
from trackside.ports import Clock, LogSlice, LogStore
from trackside.service.jobs import Jobs

PREVIEW_BYTES_MAX = 5 * 1024 * 1024
DOWNLOAD_BYTES_MAX = 1024 * 1024 * 1024
LINK_SECONDS = 300
LINK_PATH = "/download/logs"


class Logs:
    """Read the logs of a job's tasks."""

    def __init__(self, jobs: Jobs, store: LogStore, *, clock: Clock, endpoint: str, link_key: bytes) -> None:
        self._jobs = jobs
        self._store = store
        self._clock = clock
        self.endpoint = endpoint
        self._link_key = link_key

    async def preview(self, caller: Caller, job_id: str, task: str) -> tuple[str, int]:
        """Return the newest part of a task's log and its full size in bytes."""
        job = self._job_with_task(caller, job_id, task)
        return await self._store.tail(job.id, task, bytes_max=PREVIEW_BYTES_MAX)

    async def lines(
        self, caller: Caller, job_id: str, task: str, *, base_line: int | None, count: int, descending: bool
    ) -> LogSlice:
        """Return some whole lines of a task's log, before or after a line."""
        job = self._job_with_task(caller, job_id, task)
        return await self._store.lines(job.id, task, base_line=base_line, count=count, descending=descending)

    def link(self, caller: Caller, job_id: str, task: str) -> str:
        """Return an address where the log can be read for five minutes, by whoever holds it."""
        job = self._job_with_task(caller, job_id, task)
        expires = self._clock.now_ms() // 1000 + LINK_SECONDS
        seal = self._seal(job.id, task, expires)
        return f"{self.endpoint}{LINK_PATH}?job={job.id}&task={quote(task)}&expires={expires}&seal={seal}"

    async def linked(self, job_id: str, task: str, expires: int, seal: str) -> str:
        """Return the log a link leads to, or refuse one that is over or was not made here."""
        if not hmac.compare_digest(self._seal(JobId(job_id), task, expires).encode(), seal.encode()):
            raise Forbidden("this link was not made by this server")
        if self._clock.now_ms() // 1000 > expires:
            raise Forbidden("this link is over: ask for a new one")
        text, _ = await self._store.tail(JobId(job_id), task, bytes_max=DOWNLOAD_BYTES_MAX)
        return text

    def _seal(self, job_id: JobId, task: str, expires: int) -> str:
        said = f"{job_id}\n{task}\n{expires}".encode()
        return hmac.new(self._link_key, said, hashlib.sha256).hexdigest()

    def _job_with_task(self, caller: Caller, job_id: str, task: str) -> Job:
        job = self._jobs.show(caller, job_id)
        if task not in task_names(job.spec):
            raise TaskNotFound(
                f"job {job.id} has no task {task!r}; it has {', '.join(task_names(job.spec)[:8])}"
            )
        return job
