"""Knows how families of numbers are written down for Prometheus: its text format and OpenMetrics.

Written here and not by prometheus-client, whose writer takes ten times as long: a page of a thousand tasks
has ten thousand lines. The tests read it back with prometheus-client's parsers.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
UNITS = ("bytes_per_second", "seconds", "bytes", "percent", "watts", "celsius")

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SUFFIXES = {"counter": "_total", "info": "_info"}


class Family(NamedTuple):
    """A name with what it means; counters and infos without their suffix."""

    name: str
    kind: str  # gauge, counter, summary or info
    help: str

    @property
    def sample_name(self) -> str:
        """Return the name its samples have."""
        return self.name + _SUFFIXES.get(self.kind, "")


class Row(NamedTuple):
    """One number and its labels."""

    labels: tuple[tuple[str, str], ...]
    value: float
    suffix: str = ""  # of a summary: _count or _sum


def render(families: Iterable[tuple[Family, Sequence[Row]]], media_type: str) -> bytes:
    """Return the page; a family without rows is left out, and of equal labels the last row counts."""
    openmetrics = media_type == OPENMETRICS
    lines: list[str] = []
    for family, rows in families:
        if rows:
            lines += _head(family, openmetrics=openmetrics)
            start = family.sample_name
            values = {f"{start}{row.suffix}{_braces(row.labels)}": row.value for row in rows}
            lines += [f"{name} {_number(value)}" for name, value in values.items()]
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def _head(family: Family, *, openmetrics: bool) -> list[str]:
    """Return what is said of a family; plain text knows no infos, and calls counters as their samples."""
    name = family.name if openmetrics else family.sample_name
    kind = "gauge" if family.kind == "info" and not openmetrics else family.kind
    lines = [f"# HELP {name} {family.help}", f"# TYPE {name} {kind}"]
    unit = next((unit for unit in UNITS if name.endswith("_" + unit)), None)
    if openmetrics and unit and family.kind != "info":
        lines.append(f"# UNIT {name} {unit}")
    return lines


def _braces(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels]) + "}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
