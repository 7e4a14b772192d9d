"""Knows the numbers that name things in the file: series, groups, spans, rows."""

from trackside.domain.metric import MINUTE_MS

GROUP_BITS = 7  # series of a group: at most 128, and a series' number is its group's with its slot below
GROUP_SIZE = 1 << GROUP_BITS
MIXED_GROUPS = 2  # a job's first groups take its series as they come: a small job is few blocks
SPAN_MINUTES = 240  # of one block
SPAN_MS = SPAN_MINUTES * MINUTE_MS
ROW_BITS = (
    32  # of a row's number; above them stands the span: rows are written, and removed, in order of time
)


def block_row(span: int, group: int) -> int:
    """Return the row of a group's block of a span."""
    return span << ROW_BITS | group


def block_group(row: int) -> int:
    """Return whose block a row is."""
    return row & ((1 << ROW_BITS) - 1)


def block_span(row: int) -> int:
    """Return the span of a row."""
    return row >> ROW_BITS
