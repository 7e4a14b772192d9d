"""Knows how Prometheus text is read and which of its numbers mean "no value"; knows no exporter by name.

The text is parsed by prometheus-client, never by hand; lines with a word in the place of their number, which
it refuses together with all the others, are taken out before.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

# What DCGM writes where it has no number: 0x7ffffff0 and the three above it for 32 bits, 2^47 likewise for
# floats, and for 64 bits the numbers about 2^63 (9223372036854775794 says "not supported").
_BLANK_32 = range(0x7FFFFFF0, 0x7FFFFFF4)
_BLANK_FLOAT = range(1 << 47, (1 << 47) + 4)
_BLANK_64 = float(0x7FFFFFFFFFFFFFF0)
# A sample that says "no value" in a word; a time may follow.
_NO_NUMBER = re.compile(rb"^[^#\n][^\n]*[\s}](?:N/?A|-)(?:[ \t]+\d+)?[ \t\r]*(?:\n|\Z)", re.I | re.M)


class NotText(Exception):
    """What was read is no Prometheus text; the text says why."""


class Line(NamedTuple):
    """One sample of an exposition; the time it may carry is left out."""

    family: str
    kind: str  # gauge, counter, histogram, summary, unknown
    name: str
    labels: dict[str, str]
    value: float


def lines(text: bytes) -> Iterator[Line]:
    """List all samples; raise NotText when the text cannot be understood."""
    # Here, for it is slow to import and most nodes never read such text.
    from prometheus_client.parser import text_string_to_metric_families

    try:
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                value = float(sample.value)
                yield Line(family.name, family.type, sample.name, dict(sample.labels), value)
    except UnicodeDecodeError as error:
        raise NotText("it is not UTF-8") from error
    # The parser indexes and slices before it checks, so a broken line may end in any of these.
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise NotText(str(error)[:200] or type(error).__name__) from error


def without_words(text: bytes) -> bytes:
    """Return a device's text without the samples whose value is N/A, NA or a dash."""
    return _NO_NUMBER.sub(b"", text)


def is_blank(value: float) -> bool:
    """Say whether a device's number means that there is none: of such devices none can be negative."""
    return (
        not math.isfinite(value)
        or value < 0
        or value >= _BLANK_64
        or value in _BLANK_32
        or value in _BLANK_FLOAT
    )
