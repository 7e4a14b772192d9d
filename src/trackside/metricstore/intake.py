"""Knows which samples are measurements and turns them into columns; stores only what series are called."""

import logging
import sqlite3
from collections.abc import Iterable, Sequence
from operator import attrgetter

import numpy as np

from trackside.domain.metric import Sample
from trackside.metricstore.columns import Floats, Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.names import Key, Names, job_of, key_of
from trackside.metricstore.samples import Samples

log = logging.getLogger(__name__)

NAME_CHARS_MAX = 128
LABELS_MAX = 32
BATCHES_REMEMBERED_MAX = 64
LABEL_CHARS_MAX = 256
AT_MS_MAX = 1 << 53  # beyond any clock; what a float still tells exactly
CARD_MAX = 65_535
VALUE_MAX = 1e300  # so that a sum of them is still a number

_at_of = attrgetter("at_ms")
_value_of = attrgetter("value")


class Intake:
    """Takes samples in; used by one writer at a time."""

    def __init__(self, damage: Damage) -> None:
        self._names = Names(damage)
        self._known_jobs: dict[bytes, frozenset[str]] = {}
        self.dropped = 0

    def columns(
        self, writer: sqlite3.Connection, samples: Sequence[Sample], *, floor_ms: int, now_ms: int
    ) -> tuple[Samples, frozenset[str]]:
        """Return what is a measurement and not too old, and whose it is; in the caller's transaction."""
        good, at_ms, values = _measured(samples, floor_ms)
        try:
            ids = self._names.ids(good)
        except KeyError:
            good, at_ms, values = self._learned(writer, good, at_ms, values, now_ms)
            ids = self._names.ids(good)
        if len(good) < len(samples):
            self.dropped += len(samples) - len(good)
            log.warning("%d of %d samples were no measurements", len(samples) - len(good), len(samples))
        jobs = self._jobs_of(ids, good)
        self._names.used(jobs)
        return Samples(ids, at_ms, values), jobs

    def _learned(
        self, writer: sqlite3.Connection, samples: Sequence[Sample], at_ms: Ints, values: Floats, now_ms: int
    ) -> tuple[Sequence[Sample], Ints, Floats]:
        """Find or make numbers for all series; return the samples of those that can have one."""
        named = [_named(key_of(sample)) for sample in samples]
        good = [sample for sample, fine in zip(samples, named, strict=True) if fine]
        self._names.learn(writer, list(map(key_of, good)), now_ms=now_ms)
        return good, at_ms[named], values[named]

    def _jobs_of(self, ids: Ints, samples: Sequence[Sample]) -> frozenset[str]:
        """Return whose samples these are; the same series are sent again and again."""
        key = ids.tobytes()
        jobs = self._known_jobs.get(key)
        if jobs is None:
            if len(self._known_jobs) >= BATCHES_REMEMBERED_MAX:
                self._known_jobs.clear()
            jobs = self._known_jobs[key] = frozenset(map(job_of, samples))
        return jobs

    def forget(self, jobs: Iterable[str]) -> None:
        """Look the series of jobs up again before they are next written."""
        self._names.discard(jobs)


def _measured(samples: Sequence[Sample], floor_ms: int) -> tuple[Sequence[Sample], Ints, Floats]:
    try:
        at_ms = np.fromiter(map(_at_of, samples), np.int64, len(samples))
        values = np.fromiter(map(_value_of, samples), np.float64, len(samples))
    except OverflowError:  # a number beyond any clock
        return _measured([one for one in samples if -1 <= one.at_ms < AT_MS_MAX], floor_ms)
    good = np.isfinite(values) & (np.abs(values) <= VALUE_MAX) & (at_ms >= floor_ms) & (at_ms < AT_MS_MAX)
    if good.all():
        return samples, at_ms, values
    return [one for one, fine in zip(samples, good.tolist(), strict=True) if fine], at_ms[good], values[good]


def _named(key: Key) -> bool:
    job, task, metric, card, labels = key
    return (
        all(0 < len(name) <= NAME_CHARS_MAX and name.isprintable() for name in (job, task, metric))
        and (card is None or 0 <= card <= CARD_MAX)
        and len(labels) <= LABELS_MAX
        and all(_fits(name) and _fits(value) for name, value in labels)
    )


def _fits(text: str) -> bool:
    return len(text) <= LABEL_CHARS_MAX and not any("\ud800" <= character <= "\udfff" for character in text)
