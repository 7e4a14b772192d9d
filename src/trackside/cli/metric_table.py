"""Knows how series are told as a table: what counts now, the highest, and a curve where there is room."""

import shutil
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from trackside.cli.session import Column, Session
from trackside.cli.words import CURVE_CHARS, iso, measure, sparkline, squeezed
from trackside.domain.metric import CUSTOM_PREFIX, WITHOUT_MEAN, labels_text

if TYPE_CHECKING:
    from trackside.cli.views import SeriesView

MINUTE_MS = 60_000
CURVE_CHARS_MIN = 8
GAP_CHARS = 2  # between columns
CUSTOM_PERIOD_MS = 15_000  # how often a job's own metrics are read
COUNT_ENDINGS = ("_total", "_count", "_sum")  # what Prometheus calls counts, among a job's own metrics

Key = tuple[str, str, int | None, tuple[tuple[str, str], ...]]


def print_table(
    session: Session, series: Sequence["SeriesView"], recent: Sequence["SeriesView"], step_ms: int
) -> None:
    """Print series; `recent` are the same ones in short steps, over the last minute."""
    newest = {_key(one): one for one in recent}
    latest = {_key(one): _latest(newest.get(_key(one))) for one in series}
    columns = [
        Column("WORKER", lambda one: one.task),
        Column("METRIC", title),
        Column(
            "LAST MINUTE",
            lambda one: measure(one.metric, latest[_key(one)]),
            lambda one: latest[_key(one)],
            right=True,
        ),
        Column(
            "HIGHEST",
            lambda one: measure(one.metric, _highest(one, latest[_key(one)])),
            lambda one: _highest(one, latest[_key(one)]),
            right=True,
        ),
    ]
    room = min(CURVE_CHARS, _room(columns, series)) if session.terminal else 0
    if room >= CURVE_CHARS_MIN:
        columns.append(
            Column("", lambda one: sparkline(squeezed(_with_gaps(one, step_ms), room)), only="tty")
        )
    until = Column("UNTIL", lambda one: _until(one, step_ms), only="pipe")
    session.table([*columns, until], series)


def title(one: "SeriesView") -> str:
    """Return what a series is called: its metric, its card, its labels."""
    name = one.metric if one.card is None else f"{one.metric} card {one.card}"
    return f"{name}{{{labels_text(one.labels)}}}" if one.labels else name


def _key(one: "SeriesView") -> Key:
    return one.task, one.metric, one.card, tuple(sorted(one.labels.items()))


def _room(columns: Sequence[Column], series: Sequence["SeriesView"]) -> int:
    """Return how many characters of a terminal's line the columns leave."""
    taken = sum(
        max([len(column.name), *(len(column.human(one)) for one in series)]) + GAP_CHARS for column in columns
    )
    return shutil.get_terminal_size().columns - taken


def _latest(one: "SeriesView | None") -> float | None:
    """Return the mean of the latest minute; of what only grows, the newest."""
    if one is None or not one.points:
        return None
    newest_ms, newest = one.points[-1]
    if one.metric in WITHOUT_MEAN or one.metric.endswith(COUNT_ENDINGS):
        return newest
    values = [value for at, value in one.points if at > newest_ms - MINUTE_MS and value is not None]
    return sum(values) / len(values) if values else None


def _highest(one: "SeriesView", latest: float | None) -> float | None:
    known = [value for _, value in one.points if value is not None]
    return max(known if latest is None else [*known, latest], default=None)


def _until(one: "SeriesView", step_ms: int) -> str:
    return iso(one.points[-1][0] + step_ms) or "" if one.points else ""


def _with_gaps(one: "SeriesView", step_ms: int) -> list[float | None]:
    """Return one value per step, None where nothing was measured; a step is never shorter than a reading."""
    if not one.points:
        return []
    if one.metric.startswith(CUSTOM_PREFIX):
        step_ms = max(step_ms, CUSTOM_PERIOD_MS)
    steps: dict[int, list[float]] = {}
    for at_ms, value in one.points:
        if value is not None:
            steps.setdefault(at_ms // step_ms, []).append(value)
    return [fmean(steps[step]) if step in steps else None for step in range(min(steps), max(steps) + 1)]
