"""Knows how one job is told on a terminal or a pipe: show and explain."""

from collections import Counter

from trackside.cli.attempts import attempt_state, exit_text, line, proof, tell_log, tell_story
from trackside.cli.session import Column, Session
from trackside.cli.views import (
    AheadView,
    AttemptView,
    EstimateView,
    JobView,
    PendingView,
    RecordView,
    TaskView,
)
from trackside.cli.words import UNKNOWN, ago, clock, date_and_clock, duration, state
from trackside.domain.wording import counted, size_text

WORKERS_SHOWN = 32
ATTEMPTS_SHOWN = 12


def show_job(session: Session, job: JobView) -> None:
    """Print where a job stands."""
    shown = state(job.phase)
    now = session.now_ms()
    took = job.took_ms(now)
    after = f" {'after' if job.final else 'for'} {duration(took)}" if took is not None else ""
    attempts = f", {counted(len(job.records), 'attempt')}" if len(job.records) > 1 else ""
    if session.terminal:
        session.out(f"{job.name}  {session.paint(shown.icon, shown.color)} {shown.word}{after}{attempts}")
    else:
        line(session, "name", job.name)
        line(session, "state", job.phase)
    line(session, "id", job.id)
    line(session, "why", job.why or UNKNOWN)
    line(
        session, "created", f"{date_and_clock(job.created_at_ms, utc=session.utc)} by {job.owner or UNKNOWN}"
    )
    if job.description:
        line(session, "about", job.description)
    if job.records:
        line(
            session,
            "attempts",
            "   ".join(_attempt(session, record, now) for record in job.records[-ATTEMPTS_SHOWN:]),
        )
    lost = session.api.attempts(job.id).lost if any(record.ended_at_ms for record in job.records) else None
    if lost is not None and lost.text:
        line(session, "lost", f"{lost.text}, everything since the start of each attempt that went wrong")
    line(session, "workers", _workers(job))
    _tasks(session, job)
    if job.phase in ("failed", "create_failed", "lost", "queued") or job.suspicion:
        session.talk(f"next: trackside explain {job.name}")
    elif len(job.records) > 1:
        session.talk(f"more of an attempt: trackside show {job.name} --attempt {job.records[-1].number - 1}")


def explain_job(session: Session, job: JobView, attempt: AttemptView | None, *, lines: int) -> None:
    """Print why a job is where it is: how its last attempt ended, what followed, what it cost, what to do."""
    if attempt is None or not job.final:
        _tell_reason(session, job)
    if attempt is not None:
        tell_story(session, job, attempt, indent=2)
    told = [attempt.number, *attempt.same_cause] if attempt else []
    for record in job.records[:-1]:
        if record.reason and record.number not in told:
            line(session, f"#{record.number}", record.reason.text, indent=2)
    _tasks(session, job)
    if attempt is not None and lines and attempt_state(attempt).word == "Failed":
        tell_log(session, job, attempt, lines)


def _tell_reason(session: Session, job: JobView) -> None:
    reason = job.suspicion or job.reason
    if reason is None or not reason.text:
        told = "" if len(job.records) > 1 else "; no reason is recorded"
        session.out(f"{job.name} is {state(job.phase).word.lower()}{told}.")
        return
    when = f" at {clock(job.ended_at_ms, utc=session.utc)}" if job.ended_at_ms else ""
    session.out(f"{reason.text}{when}.  {proof(reason)}")
    if reason.hint:
        line(session, "try", reason.hint, indent=2)


def explain_waiting(session: Session, job: JobView, pending: PendingView) -> None:
    """Print what a job waits for, behind whom, until when, and what would help."""
    since = job.records[-1].queued_at_ms if job.records else job.created_at_ms
    waited = f" {duration(session.now_ms() - since)}" if since is not None else ""
    session.out(f"waiting{waited}: {pending.text}.  [{pending.code}]")
    line(session, "line", f"{pending.position} of {pending.waiting}", indent=2)
    for one in pending.ahead:
        line(session, "ahead", _ahead(one), indent=2)
    line(session, "starts", _start_guess(session, pending.estimate), indent=2)
    for hint in pending.hints:
        line(session, "try", hint, indent=2)
    for record in job.records[:-1]:
        if record.reason:
            line(session, f"#{record.number}", record.reason.text, indent=2)


def _ahead(one: AheadView) -> str:
    size = f"{one.cards} cards, " if one.cards else ""
    size += f"{one.cpu_cores:g} cores, {size_text(one.memory_bytes)}"
    return f"{one.name or 'a job of another project'}: priority {one.priority}, {size}"


def _start_guess(session: Session, guess: EstimateView) -> str:
    times = (("earliest", guess.earliest_ms), ("likely", guess.likely_ms), ("latest", guess.latest_ms))
    known = [f"{word} {date_and_clock(at_ms, utc=session.utc)}" for word, at_ms in times if at_ms is not None]
    return ", ".join(known) + (f" ({guess.why})" if guess.why and known else guess.why if not known else "")


def _attempt(session: Session, record: RecordView, now: int) -> str:
    shown = attempt_state(record)
    icon = session.paint(shown.icon, shown.color) if session.terminal else shown.word.lower()
    if record.ended_at_ms is None:
        return f"#{record.number} since {ago(record.running_at_ms or record.queued_at_ms, now)} {icon}"
    return f"#{record.number} {duration(record.duration_ms)} {icon}"


def _workers(job: JobView) -> str:
    if not job.tasks:
        return f"{counted(job.workers, 'worker')}, none placed yet"
    counts = Counter(_ended(task) if task.state == "ended" else task.state for task in job.tasks)
    return ", ".join(f"{number} {word}" for word, number in counts.most_common())


def _ended(task: TaskView) -> str:
    if task.exit_code == 0:
        return "succeeded"
    stopped = task.reason is not None and task.reason.code in (
        "stopped-by-user",
        "peer-failed",
        "max-duration",
    )
    return "stopped" if stopped else "failed"


def _tasks(session: Session, job: JobView) -> None:
    shown = job.tasks if not session.terminal else job.tasks[:WORKERS_SHOWN]
    if not shown:
        return
    now = session.now_ms()
    session.table(
        [
            Column("WORKER", lambda task: task.name),
            Column("STATE", lambda task: task.state),
            Column("NODE", lambda task: task.node or UNKNOWN, width=60),
            Column(
                "TOOK",
                lambda task: duration(_took_ms(task, now)),
                lambda task: _seconds(_took_ms(task, now)),
                width=60,
            ),
            Column("EXIT", exit_text, lambda task: task.exit_code),
            Column("WHY", lambda task: task.reason.text if task.reason else UNKNOWN),
        ],
        shown,
    )
    if len(shown) < len(job.tasks):
        session.talk(
            f"{len(shown)} of {counted(len(job.tasks), 'worker')}. All: trackside show {job.name} --json"
        )


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _took_ms(task: TaskView, now: int) -> int | None:
    if task.duration_ms is not None or task.started_at_ms is None:
        return task.duration_ms
    return (task.ended_at_ms or now) - task.started_at_ms
