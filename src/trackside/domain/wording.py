"""Knows how numbers are said: sizes, durations, counts, signals."""

import signal as signals

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(count_bytes: float) -> str:
    """Return a size as people read it: 16.0 GiB."""
    value = float(count_bytes)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def duration_text(duration_ms: int) -> str:
    """Return a duration in its two largest units: 2 h 03 min."""
    seconds, ms = divmod(max(duration_ms, 0), 1000)
    if seconds < 1:
        return f"{ms} ms"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {seconds:02d} s" if seconds else f"{minutes} min"
    return f"{seconds} s"


def soon_text(duration_ms: int) -> str:
    """Return a short time with what matters when things follow each other: 5 ms, 1.2 s, 2 min."""
    if 1_000 <= duration_ms < 60_000:
        return f"{duration_ms / 1000:.1f} s"
    return duration_text(duration_ms)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 task, 2 tasks."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def signal_name(number: int) -> str:
    """Return a signal's name, or its number where it has none."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
