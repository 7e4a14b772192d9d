"""The verb that tells how much workers used: the latest minute, a sparkline, or all of it as CSV."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from trackside.cli.errors import Usage
from trackside.cli.jobs import JobArgument
from trackside.cli.session import Column, Session, verb

if TYPE_CHECKING:
    from trackside.cli.views import JobView, SeriesView

MINUTE_MS = 60_000
STEP_MS_MIN = 5_000
STEPS_SHOWN = 24
STEPS_MAX = 10_000


@verb
def metrics(
    session: Session,
    job: JobArgument,
    workers: Annotated[
        str | None, typer.Option("--worker", "-w", metavar="0,1", help="Only these workers: 0,1 or worker-0.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", "-m", help="Only metrics whose name contains this.")
    ] = None,
    since: Annotated[
        float | None,
        typer.Option("--since", min=0.1, metavar="MINUTES", help="Only the last so many minutes."),
    ] = None,
    step: Annotated[
        float | None, typer.Option("--step", min=1, metavar="SECONDS", help="Mean over so many seconds.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print every point as CSV.")] = False,
) -> None:
    """Show what a job's workers used: percent of what they were given, bytes per second."""
    from trackside.cli.logs import chosen
    from trackside.cli.resolve import find_job

    if csv and session.as_json:
        raise Usage("--csv and --json are both given", "keep one of them")
    found = find_job(session.api, job)
    tasks = chosen(found, workers)
    start_ms, end_ms = span(found, session.now_ms(), since)
    step_ms = int(step * 1000) if step else step_for(end_ms - start_ms, whole=csv or session.as_json)
    if (end_ms - start_ms) // step_ms > STEPS_MAX:
        raise Usage(
            f"that is more than {STEPS_MAX:,} points per series", "ask for a larger --step, or --since"
        )
    series = session.api.metrics(found.id, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms)
    wanted = [one for one in series if one.task in tasks and (metric or "") in one.metric]
    wanted.sort(
        key=lambda one: (tasks.index(one.task), one.metric, _card_order(one), sorted(one.labels.items()))
    )
    show_series(session, found, wanted, step_ms, csv=csv)


def span(job: "JobView", now_ms: int, since_minutes: float | None) -> tuple[int, int]:
    """Return [start, end) of what to show: the job's run, cut to what was asked for."""
    end = (job.ended_at_ms if job.ended_at_ms is not None else now_ms) + 1
    start = job.started_at_ms if job.started_at_ms is not None else job.created_at_ms or end - MINUTE_MS
    if since_minutes is not None:
        start = max(start, end - int(since_minutes * MINUTE_MS))
    return min(start, end - 1), end


def step_for(length_ms: int, *, whole: bool) -> int:
    """Return a step: minutes for data, else short enough that a short job shows a curve."""
    if whole:
        return max(MINUTE_MS, -(-length_ms // STEPS_MAX))
    return max(STEP_MS_MIN, -(-length_ms // STEPS_SHOWN))


def show_series(
    session: Session, job: "JobView", series: Sequence["SeriesView"], step_ms: int, *, csv: bool = False
) -> None:
    """Print series the way that was asked for."""
    from trackside.cli.words import iso

    if session.as_json:
        shown = [
            {
                "task": one.task,
                "metric": one.metric,
                "card": one.card,
                "labels": one.labels,
                "points": [[iso(at), value] for at, value in one.points],
            }
            for one in series
        ]
        session.emit({"id": job.id, "name": job.name, "step_seconds": step_ms / 1000, "series": shown})
    elif csv:
        session.out("time,task,card,metric,labels,value")
        for one in series:
            card = "" if one.card is None else one.card
            named = f"{one.task},{card},{_quoted(one.metric)},{_quoted(labels_text(one.labels))}"
            for at, value in one.points:
                session.out(f"{iso(at)},{named},{'' if value is None else value}")
    elif series or not session.terminal:
        _table(session, series, step_ms)
    if not series:
        session.talk(f"No samples of {job.name}" + ("" if job.started_at_ms else ": it has not started"))


def _table(session: Session, series: Sequence["SeriesView"], step_ms: int) -> None:
    from trackside.cli.words import iso, measure, sparkline

    latest = {id(one): _latest_minute(one) for one in series}

    session.table(
        [
            Column("WORKER", lambda one: one.task),
            Column("METRIC", _title),
            Column(
                "LAST MINUTE",
                lambda one: measure(one.metric, latest[id(one)]),
                lambda one: latest[id(one)],
                right=True,
            ),
            Column("HIGHEST", lambda one: measure(one.metric, _highest(one)), _highest, right=True),
            Column("", lambda one: sparkline(_with_gaps(one, step_ms)), only="tty"),
            Column(
                "UNTIL", lambda one: iso(one.points[-1][0] + step_ms) or "" if one.points else "", only="pipe"
            ),
        ],
        series,
    )


def labels_text(labels: dict[str, str]) -> str:
    """Return labels as Prometheus writes them, sorted by name."""
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in sorted(labels.items())
    }
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())


def _title(one: "SeriesView") -> str:
    title = one.metric if one.card is None else f"{one.metric} card {one.card}"
    return f"{title}{{{labels_text(one.labels)}}}" if one.labels else title


def _card_order(one: "SeriesView") -> int:
    return -1 if one.card is None else one.card


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if set(cell) & set('",\n\r') else cell


def _latest_minute(one: "SeriesView") -> float | None:
    if not one.points:
        return None
    newest = one.points[-1][0]
    values = [value for at, value in one.points if at > newest - MINUTE_MS and value is not None]
    return sum(values) / len(values) if values else None


def _highest(one: "SeriesView") -> float | None:
    return max((value for _, value in one.points if value is not None), default=None)


def _with_gaps(one: "SeriesView", step_ms: int) -> list[float | None]:
    """Return one value per step, None where nothing was measured."""
    if not one.points:
        return []
    known = dict(one.points)
    return [known.get(at) for at in range(one.points[0][0], one.points[-1][0] + 1, step_ms)]
