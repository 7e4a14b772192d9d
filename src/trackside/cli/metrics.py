"""The verb that tells how much workers used: the latest minute, a sparkline, or all of it as data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trackside.cli.errors import Usage
from trackside.cli.export import Export, write_csv, write_parquet
from trackside.cli.jobs import JobArgument
from trackside.cli.session import Session, verb

if TYPE_CHECKING:
    from trackside.cli.views import JobView, SeriesView

MINUTE_MS = 60_000
STEP_MS_MIN = 5_000
STEPS_SHOWN = 24
STEPS_MAX = 10_000
NAMES_SHOWN = 12
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
    chosen_series = wanted(series)
    if metric and not chosen_series and (theirs := [one for one in series if one.task in tasks]):
        raise Usage(f"{found.name} has no metric with {metric!r} in its name", f"it has {_names(theirs)}")
    show_series(session, found, chosen_series, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms)


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
    session: Session,
    job: "JobView",
    series: Sequence["SeriesView"],
    *,
    start_ms: int,
    end_ms: int,
    step_ms: int,
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
    elif series or not session.terminal:
        from trackside.cli.metric_table import print_table

        recent = series
        if series and step_ms > STEP_MS_MIN:  # else the curve itself has the last minute in short steps
            start_ms = max(start_ms, end_ms - MINUTE_MS)
            recent = session.api.metrics(job.id, start_ms=start_ms, end_ms=end_ms, step_ms=STEP_MS_MIN)
        print_table(session, series, recent, step_ms)
    _say_empty(session, job, len(series))


def _check_formats(given: dict[str, bool]) -> None:
    asked = [flag for flag, is_given in given.items() if is_given]
    if len(asked) > 1:
        raise Usage(f"{' and '.join(asked)} are given together", "keep one of them")


def _names(series: Sequence["SeriesView"]) -> str:
    """Return the names that series have, and no more of them than can be read."""
    names = sorted({one.metric for one in series})
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _say_empty(session: Session, job: "JobView", found: int) -> None:
    if not found:
        session.talk(f"No samples of {job.name}" + ("" if job.started_at_ms else ": it has not started"))


def _card_order(one: "SeriesView") -> int:
    return -1 if one.card is None else one.card
