"""The verb that reads what workers printed: history first, then live."""

import re
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from trackside.cli.errors import CliError, ExitCode, Usage
from trackside.cli.jobs import JobArgument
from trackside.cli.session import Session, verb

if TYPE_CHECKING:
    from trackside.cli.views import JobView

FOLLOW_SECONDS = 0.5
TAIL_MAX = 500


@verb
def logs(
    session: Session,
    job: JobArgument,
    workers: Annotated[
        str | None, typer.Option("--worker", "-w", metavar="0,1", help="Only these workers: 0,1 or worker-0.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="REGEX", help="Only lines that match.")
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option("--tail", min=1, max=TAIL_MAX, metavar="N", help="Only the last N lines of each."),
    ] = None,
) -> None:
    """Print the logs of a job's workers."""
    from trackside.cli.resolve import find_job

    found = find_job(session.api, job)
    tasks = chosen(found, workers)
    printer = Printer(session, found, tasks, _pattern(grep))
    printer.history(tail)
    if follow:
        printer.follow()


class Printer:
    """Prints lines of several workers, each line once, and remembers how far it got in each log."""

    def __init__(
        self, session: Session, job: "JobView", tasks: Sequence[str], pattern: re.Pattern[str] | None = None
    ) -> None:
        self._session = session
        self._job = job
        self._at = dict.fromkeys(tasks, 0)
        self._pattern = pattern
        self._width = max((len(_short(task)) for task in tasks), default=1)

    def history(self, tail: int | None = None) -> None:
        """Print what is there: everything, or the last lines."""
        for task in self._at:
            if tail is not None:
                page = self._session.api.log_tail(self._job.id, task, tail)
                self._print(task, page.lines)
                self._at[task] = page.end or 0
            else:
                self.advance(task)

    def follow(self) -> None:
        """Print new lines until the job is over."""
        from trackside.cli.follow import Patience

        patience = Patience(self._session)
        while True:
            # Asked before reading: what a job printed before its end is then surely read after it.
            job = patience.ask(partial(self._session.api.job, self._job.id))
            read = all(patience.ask(partial(self.advance, task)) for task in self._at)
            if job is not None and job.final and read:
                return
            time.sleep(FOLLOW_SECONDS)

    def advance(self, task: str) -> bool:
        """Print the lines of a worker that were not printed yet."""
        while True:
            page = self._session.api.log_after(self._job.id, task, self._at[task])
            if page.end is None:
                return True
            self._print(task, page.lines)
            self._at[task] = page.end

    def _print(self, task: str, lines: Sequence[str]) -> None:
        for line in lines:
            if self._pattern and not self._pattern.search(line):
                continue
            if self._session.as_json:
                self._session.emit({"task": task, "line": line})
            elif len(self._at) > 1:
                self._session.out(f"{_short(task):>{self._width}}│ {line}")
            else:
                self._session.out(line)


def chosen(job: "JobView", wanted: str | None) -> list[str]:
    """Return the tasks that -w names: 0,1 or worker-0; all without it."""
    known = [task.name for task in job.tasks] or [f"worker-{index}" for index in range(job.workers)]
    if wanted is None:
        return known
    names = []
    for part in (part.strip() for part in wanted.split(",")):
        matches = [name for name in known if part in (name, name.rpartition("-")[2])]
        if len(matches) != 1:
            raise CliError(
                f"{job.name} has no worker {part!r}"
                if not matches
                else f"{part!r} means {' and '.join(matches)}",
                code=ExitCode.NOT_FOUND,
                hint=f"its workers are: {', '.join(known[:8])}{' …' if len(known) > 8 else ''}",
            )
        names += matches
    return list(dict.fromkeys(names))


def _short(task: str) -> str:
    return task.removeprefix("worker-")


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise Usage(f"--grep: {text!r} is not a regular expression ({error})") from error
