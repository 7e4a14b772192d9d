"""The verb that tells how much workers used: the latest minute, a sparkline, or all of it as data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trackside.cli.errors import Usage
from trackside.cli.export import Export, write_csv, write_parquet
from trackside.cli.jobs import JobArgument
from trackside.cli.session import Column, Session, verb
from trackside.domain.metric import labels_text

if TYPE_CHECKING:
    from trackside.cli.views import JobView, SeriesView

MINUTE_MS = 60_000
STEP_MS_MIN = 5_000
STEPS_SHOWN = 24
STEPS_MAX = 10_000
RAW_ALONE = ("--raw goes with --csv or --parquet, and without --step", "a mean is no sample: leave one out")


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
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write every point to a Parquet file.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="With --csv or --parquet: every sample as it was measured.")
    ] = False,
) -> None:
    """Show what a job's workers used: percent of what they were given, bytes per second."""
    from trackside.cli.logs import chosen
    from trackside.cli.resolve import find_job

    _check_formats({"--json": session.as_json, "--csv": csv, "--parquet": parquet is not None})
    if raw and (step or not (csv or parquet)):
        raise Usage(*RAW_ALONE)
    found = find_job(session.api, job)
    tasks = chosen(found, workers)
    start_ms, end_ms = span(found, session.now_ms(), since)

    def wanted(series: Sequence["SeriesView"]) -> list["SeriesView"]:
        matching = [one for one in series if one.task in tasks and (metric or "") in one.metric]
        return sorted(
            matching,
            key=lambda one: (tasks.index(one.task), one.metric, _card_order(one), sorted(one.labels.items())),
        )

    if csv or parquet:
        step_ms = None if raw else int(step * 1000) if step else MINUTE_MS
        export = Export(job=found, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms, wanted=wanted)
        points = write_parquet(session, export, parquet) if parquet else write_csv(session, export)
        _say_empty(session, found, points)
        return
    step_ms = int(step * 1000) if step else step_for(end_ms - start_ms, whole=session.as_json)
    if (end_ms - start_ms) // step_ms > STEPS_MAX:
        raise Usage(
            f"that is more than {STEPS_MAX:,} points per series", "ask for a larger --step, or --since"
        )
    series = session.api.metrics(found.id, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms)
    show_series(session, found, wanted(series), step_ms)


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


def show_series(session: Session, job: "JobView", series: Sequence["SeriesView"], step_ms: int) -> None:
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
    elif series or not session.terminal:
        _table(session, series, step_ms)
    _say_empty(session, job, len(series))


def _check_formats(given: dict[str, bool]) -> None:
    asked = [flag for flag, is_given in given.items() if is_given]
    if len(asked) > 1:
        raise Usage(f"{' and '.join(asked)} are given together", "keep one of them")


def _say_empty(session: Session, job: "JobView", found: int) -> None:
    if not found:
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


def _title(one: "SeriesView") -> str:
    title = one.metric if one.card is None else f"{one.metric} card {one.card}"
    return f"{title}{{{labels_text(one.labels)}}}" if one.labels else title


def _card_order(one: "SeriesView") -> int:
    return -1 if one.card is None else one.card


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
