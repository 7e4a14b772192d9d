"""Knows how a job's own metrics become samples and what is too much of them; knows not where they are read.

Gauges, and what says no type, are kept as they are. A counter gives two series: its count, and its rate per
second since the reading before (a count that fell was begun anew). Of histograms and summaries the sum and
the count are counters; buckets and quantiles are left out, and so is when such a thing was created. Times in
the text are not used.
"""

import math
import threading
from collections.abc import Iterable
from typing import NamedTuple

from trackside.collect.exposition import Line, lines
from trackside.domain.exchange import TaskKey
from trackside.domain.metric import CUSTOM_PREFIX, Sample

SERIES_PER_TASK_MAX = 256  # over its whole life; rates of counters come on top
NAME_CHARS_MAX = 100
LABELS_MAX = 10
LABEL_NAME_CHARS_MAX = 64
LABEL_VALUE_CHARS_MAX = 128
VALUE_MAX = 1e300

PER_SECOND = "_per_second"
TOTAL = "_total"
COUNTED = ("_sum", "_count")  # of histograms and summaries
CREATED = "_created"  # beside a count: a time that client libraries add to each, as a gauge
GROUPED = frozenset({"histogram", "gaugehistogram", "summary"})

Labels = tuple[tuple[str, str], ...]


class Problem(NamedTuple):
    """What was wrong with a reading: its kind, of which one is told, and words for the job's owner."""

    kind: str
    text: str


class Read(NamedTuple):
    """What one reading gave, and what of it was too much or too long."""

    samples: list[Sample]
    problems: list[Problem]


class TaskSeries:
    """Turn what the sources of one task say into samples; used by several threads."""

    def __init__(self, key: TaskKey) -> None:
        self._key = key
        self._lock = threading.Lock()
        self._known: set[tuple[str, Labels]] = set()
        self._counts: dict[tuple[str, Labels], tuple[float, int]] = {}  # and when, on the boot clock

    def read_text(self, text: bytes, *, at_ms: int, boot_ms: int) -> Read:
        """Return the samples of an exposition; raise NotText if it is none."""
        return self._read(lines(text), at_ms, boot_ms)

    def read_number(self, name: str, value: float, *, at_ms: int) -> Read:
        """Return the sample of one number."""
        return self._read([Line(name, "gauge", name, {}, value)], at_ms, 0)

    def _read(self, found: Iterable[Line], at_ms: int, boot_ms: int) -> Read:
        samples: dict[tuple[str, Labels], Sample] = {}
        problems: dict[str, Problem] = {}
        with self._lock:
            for line in _without_births(list(found)):
                if not _is_level(line) or not math.isfinite(line.value) or abs(line.value) > VALUE_MAX:
                    continue
                labels = tuple(sorted(line.labels.items()))
                problem = _too_long(line.name, labels) or self._one_too_many(line.name, labels)
                if problem is not None:
                    problems[problem.kind] = problem
                    continue
                for name, value in self._values(line, labels, boot_ms):
                    samples[name, labels] = self._sample(name, value, at_ms, labels)
        return Read(list(samples.values()), list(problems.values()))

    def _one_too_many(self, name: str, labels: Labels) -> Problem | None:
        if (name, labels) in self._known:
            return None
        if len(self._known) >= SERIES_PER_TASK_MAX:
            text = f"has a series beyond the {SERIES_PER_TASK_MAX} that a task may have: such are left out"
            return Problem("series", text)
        self._known.add((name, labels))
        return None

    def _values(self, line: Line, labels: Labels, boot_ms: int) -> list[tuple[str, float]]:
        values = [(line.name, line.value)]
        if line.kind == "counter" or line.kind in GROUPED:
            before = self._counts.get((line.name, labels))
            self._counts[line.name, labels] = (line.value, boot_ms)
            if before is not None and boot_ms > before[1]:
                grown = line.value - before[0] if line.value >= before[0] else line.value
                name = line.name.removesuffix(TOTAL) + PER_SECOND
                values.append((name, grown * 1000.0 / (boot_ms - before[1])))
        return values

    def _sample(self, name: str, value: float, at_ms: int, labels: Labels) -> Sample:
        key = self._key
        return Sample(key.job_id, key.task, CUSTOM_PREFIX + name, at_ms, value, labels=labels)


def _without_births(found: list[Line]) -> list[Line]:
    """Return lines without those that say when a counter, histogram or summary was created."""
    names = {line.name for line in found}
    stems = {name.removesuffix(end) for end in (TOTAL, *COUNTED) for name in names if name.endswith(end)}
    births = {stem + CREATED for stem in stems}
    return [line for line in found if line.name not in births]


def _is_level(line: Line) -> bool:
    return line.kind not in GROUPED or line.name in {line.family + ending for ending in COUNTED}


def _too_long(name: str, labels: Labels) -> Problem | None:
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        text = f"has a name of more than {NAME_CHARS_MAX} printable characters, {name[:40]!r}: left out"
        return Problem("name", text)
    if len(labels) > LABELS_MAX:
        return Problem("labels", f"has more than {LABELS_MAX} labels on {name}: left out")
    if any(
        len(label) > LABEL_NAME_CHARS_MAX
        or len(value) > LABEL_VALUE_CHARS_MAX
        or not (label + value).isprintable()
        for label, value in labels
    ):
        text = (
            f"has labels on {name} that are not printable, or longer than {LABEL_NAME_CHARS_MAX} characters "
            f"(names) and {LABEL_VALUE_CHARS_MAX} (values): left out"
        )
        return Problem("labels", text)
    return None
