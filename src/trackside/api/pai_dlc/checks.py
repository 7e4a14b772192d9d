"""Knows how the dialect reads single values, and refuses them by the name of the field."""

import re
import time
from collections.abc import Collection
from datetime import UTC, datetime

from trackside.api.operation import Call
from trackside.domain.errors import Invalid

SHOWN_CHARACTERS_MAX = 64  # of a value repeated in an error
DAY_MS = 24 * 3600 * 1000
PAGE_SIZE_MAX = 1000
PAGE_NUMBER_MAX = 1_000_000


def one_of(field: str, value: str, valid: Collection[str]) -> str:
    """Return the value, or say which there are."""
    if value not in valid:
        raise Invalid(f"{field} must be one of {', '.join(valid)}, not {value[:SHOWN_CHARACTERS_MAX]!r}")
    return value


def chosen(call: Call, name: str, valid: Collection[str], default: str = "") -> str:
    """Return a query parameter that must be one of a few; the default when it is absent."""
    value = call.query_one(name)
    return default if value is None else one_of(name, value, valid)


def number(call: Call, name: str, default: int, *, least: int, most: int) -> int:
    """Return a whole number of the query within its bounds."""
    text = call.query_one(name)
    if text is None:
        return default
    if not re.fullmatch(r"-?[0-9]{1,18}", text) or not least <= int(text) <= most:
        raise Invalid(
            f"{name} must be a whole number from {least} to {most}, not {text[:SHOWN_CHARACTERS_MAX]!r}"
        )
    return int(text)


def flag(call: Call, name: str, *, default: bool = False) -> bool:
    """Return a boolean of the query; the SDK writes True and False."""
    text = call.query_one(name)
    if text is None:
        return default
    return one_of(name, text.lower(), ("true", "false")) == "true"


def page(call: Call, *, size: int) -> tuple[int, int]:
    """Return offset and limit of the page asked for."""
    limit = number(call, "PageSize", size, least=1, most=PAGE_SIZE_MAX)
    return (number(call, "PageNumber", 1, least=1, most=PAGE_NUMBER_MAX) - 1) * limit, limit


def commas(text: str | None) -> tuple[str, ...]:
    """Return the parts of a list that is written with commas."""
    return tuple(part for part in (piece.strip() for piece in (text or "").split(",")) if part)


def now_ms() -> int:
    """Return the time."""
    return time.time_ns() // 1_000_000


def moment_ms(field: str, text: str) -> int:
    """Return a moment given as ISO 8601, in UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text.strip())
        at_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Invalid(
            f"{field} must be a UTC time such as 2026-01-31T12:00:00Z, not {text[:SHOWN_CHARACTERS_MAX]!r}"
        ) from None
    if at_ms < 0:
        raise Invalid(f"{field} must not be before 1970, as {text[:SHOWN_CHARACTERS_MAX]!r} is")
    return at_ms


def window(call: Call, *, now: int, before_ms: int) -> tuple[int, int]:
    """Return StartTime and EndTime; the end is now when absent, the start so much before the end."""
    start, end = call.query_one("StartTime"), call.query_one("EndTime")
    end_ms = moment_ms("EndTime", end) if end else now
    start_ms = moment_ms("StartTime", start) if start else max(0, end_ms - before_ms)
    if start_ms > now:
        raise Invalid(f"StartTime {start} lies in the future: nothing can have happened there yet")
    if start_ms >= end_ms:
        raise Invalid(f"StartTime {time_text(start_ms)} must be before EndTime {time_text(end_ms)}")
    return start_ms, end_ms


def time_text(at_ms: int) -> str:
    """Return a moment as the dialect writes it: UTC, whole seconds."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def maybe_time(at_ms: int | None) -> str | None:
    """Return a moment as text, if there was one."""
    return None if at_ms is None else time_text(at_ms)
