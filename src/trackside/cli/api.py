"""Knows which calls the command line makes: ModelArts v2 where it has the operation, else our own API."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from trackside.cli import OWN
from trackside.cli.client import Client, strange_answer
from trackside.cli.views import AttemptsView, AttemptView, ExplainView, JobView, SeriesView, StacksView

LOG_LINES_PER_CALL = 500  # the v2 API's own limit
EVENTS_PER_CALL = 100
JOBS_PER_CALL = 500

T = TypeVar("T")


class JobList(NamedTuple):
    """One page of jobs."""

    jobs: list[JobView]
    matching: int
    total: int


class LogPage(NamedTuple):
    """Some lines of a log; `end` is the number of the last one, None when there are none."""

    lines: list[str]
    end: int | None


class Api:
    """The calls, by what they do."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def endpoint(self) -> str:
        """Return the server's address."""
        return self.client.settings.endpoint

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Create a job; return its details."""
        answer: dict[str, Any] = self.client.post(self._v2("training-jobs"), body)
        return answer

    def job(self, job_id: str) -> JobView:
        """Return one job."""
        return self._read(self.client.get(f"{OWN}/jobs/{job_id}"), JobView)

    def explain(self, job_id: str) -> ExplainView:
        """Return why a job is where it is."""
        return self._read(self.client.get(f"{OWN}/jobs/{job_id}/explain"), ExplainView)

    def attempts(self, job_id: str) -> AttemptsView:
        """Return the attempts of a job, without their tasks."""
        return self._read(self.client.get(f"{OWN}/jobs/{job_id}/attempts"), AttemptsView)

    def attempt(self, job_id: str, number: int) -> AttemptView:
        """Return everything known of one attempt."""
        return self._read(self.client.get(f"{OWN}/jobs/{job_id}/attempts/{number}"), AttemptView)

    def attempt_log(self, job_id: str, number: int, task: str, lines: int) -> list[str]:
        """Return the last lines that a task printed in an attempt."""
        path = f"{OWN}/jobs/{job_id}/attempts/{number}/logs/{task}"
        text = self.client.get(path, [("lines", str(lines))]).get("text") or ""
        return text.removesuffix("\n").split("\n") if text else []

    def export_attempt(self, job_id: str, number: int) -> Iterator[bytes]:
        """Yield everything of one attempt as the pieces of a ZIP file."""
        return self.client.pieces(f"{OWN}/jobs/{job_id}/attempts/{number}/export")

    def stacks(self, job_id: str, *, task: str | None, attempt: int | None) -> tuple[list[StacksView], int]:
        """Return the stacks that were taken of a job, the newest last, and how many are kept."""
        query = [("task", task)] if task else []
        query += [("attempt", str(attempt))] if attempt else []
        answer = self.client.get(f"{OWN}/jobs/{job_id}/stacks", query)
        taken = self._read(answer.get("stacks") or [], list[StacksView])
        return taken, int(answer.get("matching", len(taken)))

    def jobs(
        self, *, states: tuple[str, ...] = (), name: str | None = None, limit: int = 20, offset: int = 0
    ) -> JobList:
        """Return a page of jobs, newest first."""
        query = [("limit", str(limit)), ("offset", str(offset))]
        query += [("state", state) for state in states]
        query += [("name", name)] if name else []
        answer = self.client.get(f"{OWN}/jobs", query)
        jobs = self._read(answer.get("jobs") or [], list[JobView])
        return JobList(jobs, answer.get("matching", len(jobs)), answer.get("total", len(jobs)))

    def all_jobs(
        self, *, states: tuple[str, ...] = (), name: str | None = None, most: int
    ) -> Iterator[JobView]:
        """Yield jobs, newest first, at most so many."""
        offset = 0
        while offset < most:
            page = self.jobs(states=states, name=name, limit=min(JOBS_PER_CALL, most - offset), offset=offset)
            yield from page.jobs
            offset += len(page.jobs)
            if not page.jobs or offset >= page.matching:
                return

    def stop(self, job_id: str) -> None:
        """Ask a job to stop."""
        self.client.post(self._v2(f"training-jobs/{job_id}/actions"), {"action_type": "terminate"})

    def delete(self, job_id: str) -> None:
        """Delete a job and all that is kept of it."""
        self.client.delete(self._v2(f"training-jobs/{job_id}"))

    def details(self, job_id: str) -> dict[str, Any]:
        """Return a job's details in ModelArts' words."""
        return self.client.get(self._v2(f"training-jobs/{job_id}"))

    def log_tail(self, job_id: str, task: str, lines: int) -> LogPage:
        """Return the last lines of a task's log, in order."""
        return self._log(job_id, task, [("lines", str(min(lines, LOG_LINES_PER_CALL))), ("order", "desc")])

    def log_after(self, job_id: str, task: str, line: int) -> LogPage:
        """Return the lines that follow line number `line` (0: from the beginning)."""
        query = [("lines", str(LOG_LINES_PER_CALL)), ("order", "asc"), ("base_line", str(line))]
        return self._log(job_id, task, query)

    def all_events(self, job_id: str, *, level: str | None, most: int) -> Iterator[dict[str, Any]]:
        """Yield a job's events, oldest first."""
        base = [("limit", str(EVENTS_PER_CALL)), ("order", "asc")] + ([("level", level)] if level else [])
        for offset in range(0, most, EVENTS_PER_CALL):
            answer = self.client.get(
                self._v2(f"training-jobs/{job_id}/events"), [*base, ("offset", str(offset))]
            )
            told = answer.get("events") or []
            yield from told
            if offset + EVENTS_PER_CALL >= int(answer.get("total") or 0) or not told:
                return

    def metrics(
        self,
        job_id: str,
        *,
        start_ms: int,
        end_ms: int,
        step_ms: int,
        raw: bool = False,
        task: str | None = None,
    ) -> list[SeriesView]:
        """Return the means of every series of a job or of one task, or the single samples."""
        query = [("start_ms", str(start_ms)), ("end_ms", str(end_ms))]
        query += [("task", task)] if task else []
        query.append(("raw", "true") if raw else ("step_ms", str(step_ms)))
        answer = self.client.get(f"{OWN}/jobs/{job_id}/metrics", query)
        return self._read(answer.get("series") or [], list[SeriesView])

    def flavors(self) -> list[dict[str, Any]]:
        """Return the sizes of task on offer."""
        return self.client.get(self._v2("training-job-flavors")).get("flavors") or []

    def users(self) -> list[dict[str, Any]]:
        """Return the users."""
        return self.client.get(f"{OWN}/users").get("users") or []

    def add_user(self, name: str, role: str) -> dict[str, Any]:
        """Create a user; the answer holds the keys, which are told only once."""
        answer: dict[str, Any] = self.client.post(f"{OWN}/users", {"name": name, "role": role})
        return answer

    def delete_user(self, name: str) -> None:
        """Remove a user."""
        self.client.delete(f"{OWN}/users/{name}")

    def nodes(self) -> list[dict[str, Any]]:
        """Return the machines."""
        return self.client.get(f"{OWN}/nodes").get("nodes") or []

    def put_object(self, bucket: str, key: str, content: bytes) -> None:
        """Store one object."""
        self.client.call(
            "PUT",
            f"{OWN}/objects",
            query=[("url", f"obs://{bucket}/{key}")],
            body=content,
            content_type="application/octet-stream",
        )

    def _v2(self, path: str) -> str:
        return f"/v2/{self.client.settings.project_id}/{path}"

    def _read(self, answer: object, kind: type[T]) -> T:
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as error:
            raise strange_answer(self.endpoint) from error

    def _log(self, job_id: str, task: str, query: list[tuple[str, str]]) -> LogPage:
        answer = self.client.get(self._v2(f"training-jobs/{job_id}/logs/{task}"), query)
        content = answer.get("content") or ""
        if not content:
            return LogPage([], None)
        lines = content.removesuffix("\n").split("\n")
        return LogPage(lines, int(answer["end_line"]))
