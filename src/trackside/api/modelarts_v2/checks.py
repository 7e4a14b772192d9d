"""Knows how the dialect refuses a value: by the field's name, with what would be valid."""

import re
from collections.abc import Collection
from datetime import UTC, datetime

from trackside.api.operation import Call
from trackside.domain.errors import Invalid

JOB_NAME = re.compile(r"[0-9A-Za-z_-]{1,64}")
YEAR_9999_MS = 253_402_300_799_999


def one_of(field: str, value: str, valid: Collection[str]) -> str:
    """Return the value, or say which there are."""
    if value not in valid:
        raise Invalid(f"{field} must be one of [{' '.join(valid)}], not {value!r}")
    return value


def check_job_name(field: str, name: str) -> str:
    """Return the name if a job may be called that."""
    if not JOB_NAME.fullmatch(name):
        raise Invalid(f"{field} must be 1 to 64 letters, digits, underscores and hyphens")
    return name


def query_int(call: Call, name: str, default: int, *, least: int, most: int) -> int:
    """Return a whole number of the query within its bounds."""
    text = call.query_one(name)
    if text is None:
        return default
    if not re.fullmatch(r"-?[0-9]{1,18}", text) or not least <= int(text) <= most:
        raise Invalid(f"{name} must be a whole number from {least} to {most}, not {text[:64]!r}")
    return int(text)


def parse_time_ms(field: str, text: str) -> int:
    """Return a moment given in milliseconds since the epoch or as ISO 8601 (UTC unless it says otherwise)."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return min(int(text), YEAR_9999_MS)
    try:
        moment = datetime.fromisoformat(text.strip())
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Invalid(
            f"{field} must be milliseconds since the epoch or a time such as 2026-01-31T12:00:00Z,"
            f" not {text[:64]!r}"
        ) from None


def time_text(at_ms: int) -> str:
    """Return a moment as ISO 8601 text in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"
