"""Knows the numbers that name things in the file: series, groups, hours, spans, rows."""

from trackside.domain.metric import MINUTE_MS

GROUP_BITS = 6  # series of a group: at most 64, and a series' number is its group's with its slot below
GROUP_SIZE = 1 << GROUP_BITS
MIXED_SIZE = 32  # a job's first series share a group whatever they measure: a small job is one block
HOUR_MS = 60 * MINUTE_MS
SPAN_MINUTES = 240  # of one block of rollups
SPAN_MS = SPAN_MINUTES * MINUTE_MS
TIME_BITS = 32  # of a row's number; above it stands the group


def block_row(group: int, time: int) -> int:
    """Return the row of a group's block of an hour or span."""
    return group << TIME_BITS | time


def block_group(row: int) -> int:
    """Return whose block a row is."""
    return row >> TIME_BITS


def block_time(row: int) -> int:
    """Return the hour or span of a row."""
    return row & ((1 << TIME_BITS) - 1)
