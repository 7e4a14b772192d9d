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
from trackside.metricstore.samples import NOTHING, Samples

log = logging.getLogger(__name__)

NAME_CHARS_MAX = 128
LABELS_MAX = 32
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
        self.dropped = 0

    def columns(
        self, writer: sqlite3.Connection, samples: Sequence[Sample], *, floor_ms: int, now_ms: int
    ) -> tuple[Samples, set[str]]:
        """Return what is a measurement and not too old, and whose it is; in the caller's transaction."""
        good, at_ms, values = _measured(samples, floor_ms)
        keys = list(map(key_of, good))
        ids = self._names.ids(keys)
        jobs = set(map(job_of, good))
        if None in ids:
            unknown = [key for key, known in zip(keys, ids, strict=True) if known is None and _named(key)]
            self._names.learn(writer, unknown, now_ms=now_ms)
            ids = self._names.ids(keys)
        self._names.used(jobs)
        taken = _without_unknown(ids, at_ms, values)
        if len(taken) < len(samples):
            self.dropped += len(samples) - len(taken)
            log.warning("%d of %d samples were no measurements", len(samples) - len(taken), len(samples))
        return taken, jobs

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


def _without_unknown(ids: Sequence[int | None], at_ms: Ints, values: Floats) -> Samples:
    if not ids:
        return NOTHING
    if None not in ids:
        return Samples(np.array(ids, np.int64), at_ms, values)
    known = np.array([one is not None for one in ids])
    kept = [one for one in ids if one is not None]
    return Samples(np.array(kept, np.int64), at_ms[known], values[known])


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
