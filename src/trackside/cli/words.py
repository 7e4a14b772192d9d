"""Knows how things are said to people: states, times, durations, sizes. Unknown is a dash, never a zero."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from trackside.domain.phase import FINAL, Phase
from trackside.domain.wording import duration_text, size_text

UNKNOWN = "–"  # noqa: RUF001 - an en dash is what the copy says
DAY_MS = 86_400_000
DAYS_FROM = 3
CURVE_CHARS = 24
THOUSANDS_FROM, DIGITS_UNTIL = 1e4, 1e15  # numbers that are written out, with commas
BLOCKS = "▁▂▃▄▅▆▇█"
FINAL_PHASES = frozenset(str(phase) for phase in FINAL)
ACTIVE_PHASES = frozenset(str(phase) for phase in Phase) - FINAL_PHASES


class State(NamedTuple):
    """How a phase is shown: always word, icon and colour together."""

    word: str
    icon: str
    color: str


STATE_OF = {
    "creating": State("Waiting", "◌", "yellow"),
    "queued": State("Waiting", "◌", "yellow"),
    "starting": State("Starting", "◔", "blue"),
    "running": State("Running", "▶", "blue"),
    "restarting": State("Retrying", "↻", "magenta"),
    "lost": State("Unknown", "?", "yellow"),
    "stopping": State("Stopping", "■", "bright_black"),
    "succeeded": State("Succeeded", "✓", "green"),
    "failed": State("Failed", "✕", "red"),
    "create_failed": State("Failed", "✕", "red"),
    "stopped": State("Stopped", "■", "bright_black"),
}


def state(phase: str) -> State:
    """Return how a phase is shown; a phase this version does not know is shown as it is."""
    return STATE_OF.get(phase) or State(phase.capitalize(), "?", "yellow")


def phases_of(word: str) -> tuple[str, ...]:
    """Return the phases that a state word, a phase, or "active" stands for; empty: no such word."""
    word = word.lower()
    if word == "active":
        return tuple(sorted(ACTIVE_PHASES))
    named = tuple(phase for phase, shown in STATE_OF.items() if shown.word.lower() == word)
    return named or ((word,) if word in STATE_OF else ())


def duration(ms: float | None) -> str:
    """Say how long: 12 s, 7 min, 2 h 03 min, 5 d."""
    if ms is None:
        return UNKNOWN
    return f"{int(ms / DAY_MS)} d" if ms >= DAYS_FROM * DAY_MS else duration_text(int(ms))


def ago(ms: int | None, now_ms: int) -> str:
    """Say how long since."""
    return UNKNOWN if ms is None else f"{duration(now_ms - ms)} ago"


def iso(ms: int | None) -> str | None:
    """Return the time in UTC for machines."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(ms: int | None, *, utc: bool = True) -> str:
    """Say the time of day: 20:11:07 UTC."""
    if ms is None:
        return UNKNOWN
    when = _zoned(ms, utc=utc)
    return f"{when:%H:%M:%S} {when:%Z}"


def date_and_clock(ms: int | None, *, utc: bool = True) -> str:
    """Say the day and time: 2026-11-15 20:11:07 UTC."""
    if ms is None:
        return UNKNOWN
    when = _zoned(ms, utc=utc)
    return f"{when:%Y-%m-%d %H:%M:%S} {when:%Z}"


def said_time(text: str, *, utc: bool = True) -> str:
    """Say a time that a server wrote in ISO form; what is not a time is said as it is."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return date_and_clock(int(when.timestamp() * 1000), utc=utc)


def percent(value: float | None) -> str:
    """Say a share: 94 %."""
    return UNKNOWN if value is None else f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def number(value: float) -> str:
    """Say a number without a unit: 0.00291, 99.8, 3,850,240."""
    size = abs(value)
    if size >= THOUSANDS_FROM and size < DIGITS_UNTIL:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def measure(metric: str, value: float | None) -> str:
    """Say a sample in the unit its metric's name ends with."""
    if value is None:
        return UNKNOWN
    for ending, say in UNITS:
        if metric.endswith(ending):
            return say(value)
    return number(value)


# The first that a name ends with counts.
UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_percent", percent),
    ("_bytes_per_second", lambda value: f"{size_text(value)}/s"),
    ("_per_second", lambda value: f"{number(value)} /s"),
    ("_bytes", size_text),
    ("_watts", lambda value: f"{value:.0f} W"),
    ("_celsius", lambda value: f"{value:.0f} °C"),
)


def squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return no more values than fit: neighbours become their mean, and of gaps a gap."""
    each = -(-len(values) // width) if width > 0 else 1
    if each <= 1:
        return list(values)
    found: list[float | None] = []
    for first in range(0, len(values), each):
        known = [value for value in values[first : first + each] if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found


def sparkline(values: Sequence[float | None], *, width: int = CURVE_CHARS, full: float | None = None) -> str:
    """Draw the latest values, up to the highest or to what counts as full; a gap stays a gap."""
    shown = list(values)[-width:]
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    low, high = min(0.0, *known), max(known) if full is None else max(full, *known)
    span = high - low
    return "".join(
        " " if value is None else BLOCKS[0 if span <= 0 else round((value - low) / span * (len(BLOCKS) - 1))]
        for value in shown
    )


def _zoned(ms: int, *, utc: bool) -> datetime:
    when = datetime.fromtimestamp(ms / 1000, UTC)
    return when if utc else when.astimezone()
