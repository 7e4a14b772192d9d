"""Knows when a ModelArts job counts as hanging: always looked for, after as long as the job itself says."""

import re
from collections.abc import Iterator, Mapping

from trackside.domain.fault import HangPolicy

VARIABLE = "MA_HANG_DETECT_TIME"  # minutes; the only name with MA_ that a job may set
MINUTES_MIN, MINUTES_MAX, MINUTES_DEFAULT = 10, 720, 30
SHOWN_CHARS_MAX = 64


def to_hang(environments: Mapping[str, str]) -> HangPolicy:
    """Return after how long of doing nothing a job with this environment counts as hanging."""
    return HangPolicy(window_seconds=60 * _minutes(environments))


def hang_doubts(environments: Mapping[str, str]) -> Iterator[str]:
    """Say what of the wish could not be: scripts that ask for too much run all the same."""
    given = environments.get(VARIABLE)
    if given is not None and given.strip() != str(_minutes(environments)):
        yield (
            f"{VARIABLE} must be {MINUTES_MIN} to {MINUTES_MAX} minutes, not {given[:SHOWN_CHARS_MAX]!r}: "
            f"{_minutes(environments)} are taken"
        )


def _minutes(environments: Mapping[str, str]) -> int:
    given = environments.get(VARIABLE, "").strip()
    if not re.fullmatch(r"[0-9]{1,9}", given, re.ASCII):
        return MINUTES_DEFAULT
    return min(max(int(given), MINUTES_MIN), MINUTES_MAX)
