"""Knows how a job is watched from outside: one line per change, and what its end means for a script."""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from trackside.cli.errors import CliError, ExitCode, Unreachable
from trackside.cli.session import Session
from trackside.cli.views import JobView
from trackside.cli.words import clock, duration, state
from trackside.domain.wording import counted

POLL_SECONDS = 0.4
POLL_SECONDS_MAX = 2.0
SERVER_AWAY_SECONDS_MAX = 300.0
LAST_LINES = 20
CODE_OF_PHASE = {
    "succeeded": ExitCode.DONE,
    "failed": ExitCode.JOB_FAILED,
    "create_failed": ExitCode.JOB_FAILED,
    "stopped": ExitCode.JOB_STOPPED,
}
T = TypeVar("T")


class Patience:
    """Rides out a server that is away for a while, and says so once per absence."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._away_since: float | None = None

    def ask(self, call: Callable[[], T]) -> T | None:
        """Return the call's answer; None while the server is away; raise when that takes too long."""
        try:
            answer = call()
        except Unreachable as error:
            self._bear(error)
            return None
        if self._away_since is not None:
            self._session.talk("the server is back")
            self._away_since = None
        return answer

    def _bear(self, error: Unreachable) -> None:
        now = time.monotonic()
        if self._away_since is None:
            self._session.talk(f"{error.message}; trying again")
            self._away_since = now
        if now - self._away_since > SERVER_AWAY_SECONDS_MAX:
            raise error


def changes(session: Session, job: JobView, timeout_seconds: float | None = None) -> Iterator[JobView]:
    """Yield the job now and after every change, to its end; raise when the time is over."""
    patience = Patience(session)
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    seen: str | None = None
    pause = POLL_SECONDS
    while True:
        if describe(job) != seen:
            seen, pause = describe(job), POLL_SECONDS
            yield job
        if job.final:
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise CliError(
                f"{job.name} goes on: {state(job.phase).word.lower()} after a wait of {timeout_seconds:g} s",
                code=ExitCode.TIMED_OUT,
                hint=f"trackside wait {job.name}",
            )
        time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
        pause = min(POLL_SECONDS_MAX, pause * 1.1)
        job = patience.ask(partial(session.api.job, job.id)) or job


def describe(job: JobView) -> str:
    """Return one line about where a job stands."""
    word = state(job.phase).word.lower()
    workers = job.workers or len(job.tasks)
    if job.phase in ("creating", "queued"):
        return f"{word}: {job.why}" if job.why else word
    if job.phase == "starting":
        nodes = sorted({task.node for task in job.tasks if task.node})
        return f"starting {counted(workers, 'worker')}" + (f" on {', '.join(nodes[:4])}" if nodes else "")
    if job.phase in ("running", "restarting"):
        return word if job.alive in (0, workers) else f"{word}: {job.alive} of {workers} workers up"
    return f"{word}: {job.why}" if job.why else word


def watch(session: Session, job: JobView, timeout_seconds: float | None = None) -> JobView:
    """Tell every change of a job on stderr until its end; return it as it ended."""
    for job in changes(session, job, timeout_seconds):  # noqa: B020
        if session.as_json:
            continue
        if not job.final:
            session.talk(f"{clock(session.now_ms(), utc=session.utc)} {describe(job)}")
    return job


def conclude(session: Session, job: JobView) -> ExitCode:
    """Print how a job ended, with the culprit's last lines when it failed; return the exit code."""
    code = CODE_OF_PHASE.get(job.phase, ExitCode.UNEXPECTED)
    if session.as_json:
        from trackside.cli.views import machine

        session.emit({"job": machine(job)})
        return code
    session.out(ending(session, job))
    if code == ExitCode.JOB_FAILED:
        hint = job.reason.hint if job.reason else None
        if hint:
            session.out(f"  try  {hint}")
        last_words(session, job)
    return code


def ending(session: Session, job: JobView) -> str:
    """Return the line that says how a job ended."""
    shown = state(job.phase)
    took = job.took_ms(session.now_ms())
    after = f" after {duration(took)}" if took is not None else ""
    why = f": {job.why}" if job.why else ""
    return f"{session.paint(shown.icon, shown.color)} {job.name} {shown.word.lower()}{after}{why}"


def last_words(session: Session, job: JobView, lines: int = LAST_LINES) -> None:
    """Print the end of the culprit's log."""
    task = job.culprit or (job.tasks[0].name if job.tasks else None)
    if task is None:
        return
    page = session.api.log_tail(job.id, task, lines)
    if not page.lines:
        session.talk(f"{task} printed nothing")
        return
    session.talk(f"last {counted(len(page.lines), 'line')} of {task}:")
    sys.stderr.flush()
    for line in page.lines:
        session.out(line)
