"""Knows how one attempt is told on a terminal or a pipe: its story, its tasks, its last lines, its memory."""

import shutil
import textwrap
from pathlib import Path

from trackside.cli.errors import Usage
from trackside.cli.session import Column, Session
from trackside.cli.views import (
    AttemptView,
    JobView,
    LostView,
    ReasonView,
    RecordView,
    SeriesView,
    TaskEndView,
    TaskView,
)
from trackside.cli.words import (
    STATE_OF,
    UNKNOWN,
    State,
    clock,
    date_and_clock,
    duration,
    percent,
    sparkline,
)
from trackside.domain.wording import counted, signal_name, size_text, soon_text

TASKS_SHOWN = 32
CURVE_STEPS_MIN, CURVE_STEPS_MAX = 8, 48
STEP_MS_MIN = 1_000
LABEL_WIDTH = 10
TEXT_WIDTH_MIN = 24
MEMORY = "memory_percent"
ENDING = ".zip"
MADE_ROOM = ("preempted", "evicted")  # nothing went wrong with it
PHASE_OF_CODE = {"completed": "succeeded", "stopped-by-user": "stopped", "deleted": "stopped"}


def tell_attempt(session: Session, job: JobView, attempt: AttemptView, *, lines: int) -> None:
    """Print everything that matters of one attempt."""
    shown = attempt_state(attempt)
    took = f" after {duration(attempt.duration_ms)}" if attempt.duration_ms is not None else ""
    if attempt.ended_at_ms is None:
        took = f" for {duration(attempt.duration_ms)}" if attempt.duration_ms is not None else ""
    count = f"attempt {attempt.number} of {len(job.records)}"
    if session.terminal:
        session.out(f"{job.name}  {count}  {session.paint(shown.icon, shown.color)} {shown.word}{took}")
    else:
        line(session, "name", job.name)
        line(session, "attempt", str(attempt.number))
    began = attempt.started_at_ms if attempt.started_at_ms is not None else attempt.queued_at_ms
    line(session, "began", f"{date_and_clock(began, utc=session.utc)} ({_began(attempt)})")
    tell_story(session, job, attempt, indent=0)
    _tasks(session, attempt)
    if lines:
        tell_log(session, job, attempt, lines)


def tell_story(session: Session, job: JobView, attempt: AttemptView, *, indent: int) -> None:
    """Print why an attempt ended, what became of the others, what was done, what it cost and what to do."""
    reason = attempt.reason
    if attempt.ended_at_ms is None or reason is None:
        session.out(f"Attempt {attempt.number}: {attempt.text}.")
    else:
        when = clock(attempt.ended_at_ms, utc=session.utc)
        told = f"Attempt {attempt.number} ended at {when} because {_because(reason)}.  {proof(reason)}"
        session.out(_wrapped(session, told, 0))
    for seen in _blocks(reason):
        session.out(textwrap.indent(seen, " " * (indent + 2)))
    for label, text in (("then", attempt.others), ("pattern", attempt.pattern)):
        if text:
            line(session, label, text, indent=indent)
    for one in attempt.recoveries:
        line(session, "recovery", one.text, indent=indent)
    if attempt.lost is not None and attempt.lost.text:
        line(session, "lost", _lost(attempt.lost, attempt.job_lost), indent=indent)
    curve = _memory(session, job, attempt)
    if curve:
        line(session, "memory", curve, indent=indent)
    if reason is not None and reason.hint:
        line(session, "try", reason.hint, indent=indent)


def tell_log(session: Session, job: JobView, attempt: AttemptView, lines: int) -> None:
    """Print the last lines of the task that matters most in an attempt."""
    task = _witness(attempt)
    if task is None:
        return
    found = session.api.attempt_log(job.id, attempt.number, task, lines)
    if not found:
        session.talk(f"{task} printed nothing in attempt {attempt.number}")
        return
    session.talk(f"last {counted(len(found), 'line')} of {task} in attempt {attempt.number}:")
    for text in found:
        session.out(text)


def export(session: Session, job: JobView, number: int, path: Path) -> None:
    """Write everything of an attempt to a ZIP file, whole or not at all."""
    if path.suffix != ENDING:
        raise Usage(f"{path.name}: the file is a ZIP archive", f"call it {path.with_suffix(ENDING).name}")
    unfinished, size = path.with_name(path.name + ".part"), 0
    try:
        with unfinished.open("wb") as file:
            for piece in session.api.export_attempt(job.id, number):
                size += file.write(piece)
        unfinished.replace(path)
    except OSError as error:
        raise Usage(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    if session.as_json:
        session.emit({"job": job.id, "attempt": number, "file": str(path), "bytes": size})
    else:
        session.out(f"Wrote {path} ({size_text(size)}): attempt {number} of {job.name}")


def attempt_state(record: RecordView) -> State:
    """Return the word, icon and colour of an attempt."""
    if record.ended_at_ms is None:
        return STATE_OF["running" if record.running_at_ms is not None else "queued"]
    code = record.reason.code if record.reason else ""
    if code in MADE_ROOM:
        return STATE_OF["restarting"]._replace(word=code.capitalize())
    return STATE_OF[PHASE_OF_CODE.get(code, "failed")]


def proof(reason: ReasonView) -> str:
    """Return how sure a reason is, by what, and its code."""
    seen = [text for text in reason.evidence if "\n" not in text]
    return f"[{reason.certainty}{': ' + '; '.join(seen) if seen else ''}] [{reason.code}]"


def line(session: Session, label: str, text: str, *, indent: int = 0) -> None:
    """Print a label and a text; on a terminal, lines that do not fit go on below the text."""
    if not session.terminal:
        session.out(f"{label}\t{text}")
        return
    gap = " " * max(2, LABEL_WIDTH - len(label))
    session.out(_wrapped(session, f"{' ' * indent}{label}{gap}{text}", indent + len(label) + len(gap)))


def exit_text(task: TaskView) -> str:
    """Return how a task ended, for people."""
    if task.signal is not None:
        return signal_name(task.signal)
    return UNKNOWN if task.exit_code is None else str(task.exit_code)


def _wrapped(session: Session, text: str, hang: int) -> str:
    width = shutil.get_terminal_size().columns
    if not session.terminal or width < hang + TEXT_WIDTH_MIN:
        return text
    return textwrap.fill(
        text,
        width,
        subsequent_indent=" " * hang,
        break_on_hyphens=False,
        break_long_words=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def _lost(here: LostView, all_together: LostView | None) -> str:
    told = f"{here.text}: everything since the attempt started"
    if all_together is None or all_together.text in (None, here.text):
        return told
    return f"{told}; {all_together.text} in all attempts together"


def _began(attempt: AttemptView) -> str:
    return "in the places of the one before" if attempt.start_type == "restarted" else "from the queue"


def _because(reason: ReasonView) -> str:
    return (
        f"it was {reason.text}"
        if reason.text.startswith(("preempted", "evicted", "stopped", "deleted"))
        else reason.text
    )


def _blocks(reason: ReasonView | None) -> list[str]:
    """Return what was seen that takes several lines: a traceback."""
    return [text for text in reason.evidence if "\n" in text] if reason else []


def _witness(attempt: AttemptView) -> str | None:
    """Return the task whose log says most: the culprit, or the first to end."""
    named = attempt.culprit or (attempt.reason.task if attempt.reason else None)
    ended = [one.task for one in attempt.exits if not one.stopped_by_us] or [
        one.task for one in attempt.exits
    ]
    return named or next(iter(ended), None) or next((task.name for task in attempt.tasks), None)


def _tasks(session: Session, attempt: AttemptView) -> None:
    after = {one.task: one.after_first_ms for one in attempt.exits}
    order = {one.task: place for place, one in enumerate(attempt.exits)}
    tasks = sorted(
        attempt.tasks,
        key=lambda task: (task.name != attempt.culprit, order.get(task.name, len(order)), task.rank),
    )
    shown = tasks[:TASKS_SHOWN] if session.terminal else tasks
    if not shown:
        return
    session.table(
        [
            Column("WORKER", lambda task: task.name),
            Column("START", lambda task: str(task.start), only="pipe"),
            Column("NODE", lambda task: task.node or UNKNOWN, width=60),
            Column("TOOK", lambda task: duration(task.duration_ms), lambda task: _seconds(task.duration_ms)),
            Column("EXIT", exit_text, lambda task: task.exit_code),
            Column(
                "AFTER",
                lambda task: _after(after.get(task.name), task),
                lambda task: _seconds(after.get(task.name)),
                right=True,
                width=70,
            ),
            Column("PEAK MEMORY", _peak, lambda task: task.memory_peak_bytes, right=True, width=90),
            Column("WHY", lambda task: task.reason.text if task.reason else task.state),
        ],
        shown,
    )
    if len(shown) < len(tasks):
        session.talk(f"{len(shown)} of {counted(len(tasks), 'worker')}; all of them with --json")


def _after(after_ms: int | None, task: TaskEndView) -> str:
    if task.again:
        return "again"
    return UNKNOWN if after_ms is None else "first" if after_ms == 0 else f"+{soon_text(after_ms)}"


def _peak(task: TaskEndView) -> str:
    if task.memory_peak_bytes is None or not task.memory_limit_bytes:
        return UNKNOWN
    return f"{size_text(task.memory_peak_bytes)} of {size_text(task.memory_limit_bytes)}"


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _memory(session: Session, job: JobView, attempt: AttemptView) -> str | None:
    """Return the memory curve of the task that matters most, with its highest value; None: not measured."""
    task, start = _witness(attempt), attempt.started_at_ms
    if task is None or start is None or not session.terminal:
        return None
    limit = next((one.memory_limit_bytes for one in attempt.tasks if one.name == task), None)
    of = f" of {size_text(limit)}" if limit else ""
    room = shutil.get_terminal_size().columns - LABEL_WIDTH - len(task) - len(of) - TEXT_WIDTH_MIN
    width = max(CURVE_STEPS_MIN, min(CURVE_STEPS_MAX, room))
    end = (session.now_ms() if attempt.ended_at_ms is None else max(start, attempt.ended_at_ms)) + 1
    step = max(STEP_MS_MIN, -(-(end - start) // width))
    series = session.api.metrics(job.id, start_ms=start, end_ms=end, step_ms=step, task=task)
    found = next((one for one in series if one.metric == MEMORY and one.card is None and one.points), None)
    if found is None:
        return f"no samples of {task}"
    highest = max(value for _, value in found.points if value is not None)
    curve = sparkline(_with_gaps(found, step), width=width + 1, full=100.0)
    return f"{task} {curve} highest measured {percent(highest)}{of}"


def _with_gaps(one: SeriesView, step_ms: int) -> list[float | None]:
    """Return one value per step, None where nothing was measured."""
    first = one.points[0][0]
    known = {(at - first) // step_ms: value for at, value in one.points}
    return [known.get(step) for step in range(max(known) + 1)]
