"""The verbs that look at jobs and end them: ls, show, explain, events, wait, stop, rm."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trackside.cli.errors import ExitCode, Usage
from trackside.cli.session import Column, Session, verb

if TYPE_CHECKING:
    from trackside.cli.views import AttemptView, JobView

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A name, the beginning of an id, or @last.")]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Give up waiting then.")
]
LinesOption = Annotated[
    int | None,
    typer.Option(
        "--lines", min=0, max=10_000, metavar="N", help="So many last lines of the task that failed (20)."
    ),
]

SHOWN = 20
LINES_SHOWN = 20
ALL_MAX = 10_000
EVENTS_MAX = 10_000


@verb
def ls(
    session: Session,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", "-s", help="Only: active, waiting, starting, running, succeeded, failed, stopped …"
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only names that contain this.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=ALL_MAX, help="At most so many.")] = SHOWN,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="All of them.")] = False,
) -> None:
    """List jobs, newest first."""
    from trackside.cli.views import machine

    phases = _phases(state or [])
    jobs = list(session.api.all_jobs(states=phases, name=name, most=ALL_MAX if show_all else limit))
    if session.as_json:
        counts = session.api.jobs(states=phases, name=name, limit=1)
        shown = [machine(job) for job in jobs]
        session.emit({"jobs": shown, "matching": counts.matching, "total": counts.total})
        return
    if jobs or not session.terminal:
        session.table(_columns(session), jobs)
    _summary(session, len(jobs), phases, name)


def _columns(session: Session) -> list[Column]:
    from trackside.cli import words

    def icon(job: "JobView") -> str:
        shown = words.state(job.phase)
        return session.paint(shown.icon, shown.color)

    now = session.now_ms()
    return [
        Column("", icon, only="tty"),
        Column("ID", lambda job: job.id, only="pipe"),
        Column("NAME", lambda job: job.name),
        Column("STATE", lambda job: words.state(job.phase).word, lambda job: job.phase),
        Column("WORKERS", lambda job: f"{job.well}/{job.workers}", right=True, width=60),
        Column(
            "STARTED",
            lambda job: words.ago(job.started_at_ms, now),
            lambda job: words.iso(job.started_at_ms),
            width=80,
        ),
        Column("TOOK", lambda job: words.duration(job.took_ms(now)), _seconds(now), width=100),
        Column("ENDED", lambda job: words.iso(job.ended_at_ms) or "", only="pipe"),
        Column("OWNER", lambda job: job.owner, width=100),
        Column("WHY", lambda job: job.why or words.UNKNOWN, lambda job: job.why),
    ]


def _seconds(now: int) -> "Callable[[JobView], float | None]":
    def seconds(job: "JobView") -> float | None:
        took = job.took_ms(now)
        return None if took is None else took / 1000

    return seconds


def _phases(states: list[str]) -> tuple[str, ...]:
    from trackside.cli.words import STATE_OF, phases_of

    phases: list[str] = []
    for word in (part for state in states for part in state.split(",") if part):
        found = phases_of(word)
        if not found:
            known = sorted({shown.word.lower() for shown in STATE_OF.values()})
            raise Usage(f"no state is called {word!r}", f"the states are: active, {', '.join(known)}")
        phases += found
    return tuple(dict.fromkeys(phases))


def _summary(session: Session, shown: int, phases: tuple[str, ...], name: str | None) -> None:
    counts = session.api.jobs(states=phases, name=name, limit=1)
    if counts.total == 0:
        session.talk("There are no jobs yet. Start one: trackside submit job.yaml")
    elif counts.matching == 0:
        session.talk(f"No job matches. {counts.total:,} without the filter.")
    elif shown < counts.matching:
        session.talk(f"{shown:,} of {counts.matching:,} jobs. All: trackside ls --all")
    elif counts.matching < counts.total:
        session.talk(f"{shown:,} of {counts.total:,} jobs match.")


@verb
def show(
    session: Session,
    job: JobArgument,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, metavar="N", help="Everything about attempt N.")
    ] = None,
    lines: LinesOption = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE.zip", help="With --attempt: write all of it to a ZIP file."),
    ] = None,
) -> None:
    """Show one job: where it stands, why, its attempts and workers; or all that is known of one attempt."""
    from trackside.cli import attempts
    from trackside.cli.describe import show_job
    from trackside.cli.resolve import find_job
    from trackside.cli.views import machine

    if attempt is None and (export is not None or lines is not None):
        raise Usage(
            "--lines and --export go with --attempt", "trackside show JOB --attempt 1 --export FILE.zip"
        )
    found = find_job(session.api, job)
    if attempt is None:
        if session.as_json:
            session.emit({"job": machine(found)})
        else:
            show_job(session, found)
    elif export is not None:
        attempts.export(session, found, attempt, export)
    else:
        told = session.api.attempt(found.id, attempt)
        if session.as_json:
            session.emit({"job": found.id, "attempt": machine(told)})
        else:
            attempts.tell_attempt(session, found, told, lines=LINES_SHOWN if lines is None else lines)


@verb
def explain(session: Session, job: JobArgument, lines: LinesOption = None) -> None:
    """Say why a job is where it is: what failed first, what followed, what it cost, and what to do."""
    from trackside.cli.describe import explain_job, explain_waiting
    from trackside.cli.resolve import find_job
    from trackside.cli.views import machine

    found = find_job(session.api, job)
    pending = session.api.explain(found.id).pending if found.phase == "queued" else None
    failed = None if pending and not session.as_json else _last_failed(session, found)
    if session.as_json:
        told = machine(found)
        shown = {key: told[key] for key in ("id", "name", "phase", "reason", "suspicion", "records", "tasks")}
        shown |= {"attempt": machine(failed)} if failed else {}
        session.emit(shown | ({"pending": machine(pending)} if pending else {}))
    elif pending:
        explain_waiting(session, found, pending)
    else:
        explain_job(session, found, failed, lines=LINES_SHOWN if lines is None else lines)


def _last_failed(session: Session, job: "JobView") -> "AttemptView | None":
    """Return the last attempt that is over and did not complete."""
    ended = [one.number for one in job.records if one.ended_at_ms is not None]
    told = session.api.attempt(job.id, ended[-1]) if ended else None
    return told if told is not None and told.failed else None


@verb
def events(
    session: Session,
    job: JobArgument,
    level: Annotated[str | None, typer.Option("--level", help="Only Info, Warning or Error.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=1, metavar="N", help="Only the last N.")] = None,
) -> None:
    """Show what happened to a job, oldest first."""
    from trackside.cli import words
    from trackside.cli.resolve import find_job

    if level and level.capitalize() not in ("Info", "Warning", "Error"):
        raise Usage(f"no level is called {level!r}", "the levels are: Info, Warning, Error")
    found = find_job(session.api, job)
    wanted = level.capitalize() if level else None
    told = list(session.api.all_events(found.id, level=wanted, most=EVENTS_MAX))[-(tail or EVENTS_MAX) :]
    if session.as_json:
        for event in told:
            session.emit(event)
        return
    session.table(
        [
            Column(
                "TIME", lambda event: words.said_time(event.get("time", ""), utc=session.utc), _event_time
            ),
            Column("LEVEL", lambda event: event.get("level", "")),
            Column("SOURCE", lambda event: event.get("source", "")),
            Column("MESSAGE", lambda event: event.get("message", "")),
        ],
        told,
    )


def _event_time(event: dict[str, str]) -> str:
    return event.get("time", "")


@verb
def wait(session: Session, job: JobArgument, timeout: TimeoutOption = None) -> None:
    """Wait for a job's end; the exit code says how it ended (0, 20 failed, 21 stopped, 22 timed out)."""
    from trackside.cli.follow import conclude, watch
    from trackside.cli.resolve import find_job

    ended = watch(session, find_job(session.api, job), timeout)
    raise typer.Exit(conclude(session, ended))


@verb
def stop(
    session: Session,
    job: JobArgument,
    wait_for_it: Annotated[bool, typer.Option("--wait", help="Return when it has stopped.")] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Stop a job: its workers get TERM, time to save, then KILL."""
    from trackside.cli.follow import ending, watch
    from trackside.cli.resolve import find_job
    from trackside.cli.views import machine

    found = find_job(session.api, job)
    session.api.stop(found.id)
    found = session.api.job(found.id)
    if wait_for_it:
        found = watch(session, found, timeout)
    if session.as_json:
        session.emit({"job": machine(found)})
    elif found.final:
        session.out(ending(session, found))
    else:
        session.out(f"Stopping {found.name} ({found.id[:8]})")


@verb
def rm(
    session: Session,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Names, beginnings of ids, or @last.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete jobs with everything that is kept of them: logs, metrics, events."""
    import sys

    from trackside.cli.resolve import find_job

    found = [find_job(session.api, job) for job in jobs]
    names = ", ".join(job.name for job in found)
    asking = session.terminal and sys.stdin.isatty() and not yes
    if asking and not typer.confirm(f"Delete {names} and everything that is kept of it?", err=True):
        raise typer.Exit(ExitCode.UNEXPECTED)
    for job in found:
        session.api.delete(job.id)
        if session.as_json:
            session.emit({"deleted": job.id, "name": job.name})
        else:
            session.out(f"Deleted {job.name} ({job.id[:8]})")
