"""Knows which samples are measurements and turns them into columns; stores only what series are called."""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from trackside.domain.metric import VALUE_MAX, Sample
from trackside.domain.readings import Readings, checked
from trackside.metricstore.columns import Bools, Floats, Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.names import Key, Names, job_of, key_of
from trackside.metricstore.samples import RowBatch, Samples
from trackside.metricstore.tail import packed_ids

log = logging.getLogger(__name__)

NAME_CHARS_MAX = 128
LABELS_MAX = 32
BATCHES_REMEMBERED_MAX = 64
TABLES_REMEMBERED_MAX = 1_024  # one for each node, more where tasks come and go
LABEL_CHARS_MAX = 256
AT_MS_MAX = 1 << 53  # beyond any clock; what a float still tells exactly
CARD_MAX = 65_535

_at_of = attrgetter("at_ms")
_value_of = attrgetter("value")


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The series of readings, looked up."""

    ids: Ints
    key: bytes
    packed: bytes
    jobs: frozenset[str]
    named: Bools | None  # which of the columns can have a name; None: all


class Intake:
    """Takes samples in; used by one writer at a time."""

    def __init__(self, database: Database, damage: Damage) -> None:
        self._database = database
        self._names = Names(damage)
        self._known_jobs: dict[bytes, frozenset[str]] = {}
        self._tables: OrderedDict[bytes, _Table] = OrderedDict()
        self.dropped = 0

    def knows(self, series: bytes) -> bool:
        """Say whether series of readings were looked up already."""
        return series in self._tables

    def rows(
        self, readings: Readings, *, floor_ms: int, now_ms: int
    ) -> tuple[RowBatch | Samples, frozenset[str]]:
        """Return what is a measurement and not too old, as rows where all of it is, and whose it is."""
        table = self._tables.get(readings.series)
        if table is None:
            table = self._look_up(readings, now_ms)
        else:
            self._tables.move_to_end(readings.series)
        width = len(table.ids) if table.named is None else len(table.named)
        values = np.frombuffer(readings.values, "<f8").reshape(len(readings.times_ms), width)
        if table.named is not None:
            values = values[:, table.named]
        times = np.array([min(max(at_ms, -1), AT_MS_MAX) for at_ms in readings.times_ms], np.int64)
        rows = RowBatch(table.ids, table.key, table.packed, times, values)
        if table.named is None and _all_good(values, floor_ms, readings.times_ms):
            return rows, table.jobs
        samples = rows.samples()
        taken = samples.where(_good(samples.values, floor_ms, samples.at_ms))
        self._count_dropped(readings.count - len(taken), readings.count)
        return taken, table.jobs

    def columns(
        self, samples: Sequence[Sample], *, floor_ms: int, now_ms: int
    ) -> tuple[Samples, frozenset[str]]:
        """Return what is a measurement and not too old, and whose it is."""
        good, at_ms, values = _measured(samples, floor_ms)
        try:
            ids = self._names.ids(map(key_of, good), len(good))
        except KeyError:
            named = [_named(key_of(sample)) for sample in good]
            good = [sample for sample, fine in zip(good, named, strict=True) if fine]
            at_ms, values = at_ms[named], values[named]
            ids = self._learned(list(map(key_of, good)), now_ms)
        self._count_dropped(len(samples) - len(good), len(samples))
        jobs = self._jobs_of(ids, good)
        self._names.used(jobs)
        return Samples(ids, at_ms, values), jobs

    def forget(self, jobs: Iterable[str]) -> None:
        """Look the series of jobs up again before they are next written."""
        gone = frozenset(jobs)
        self._names.discard(gone)
        for series in [series for series, table in self._tables.items() if table.jobs & gone]:
            del self._tables[series]

    def _look_up(self, readings: Readings, now_ms: int) -> _Table:
        """Find or make numbers for all series of readings."""
        keys: list[Key] = [
            (grid.job_id, task, *name)
            for grid in checked(readings)
            for task in grid.tasks
            for name in grid.series
        ]
        named = np.fromiter(map(_named, keys), np.bool_, len(keys))
        good = [key for key, fine in zip(keys, named.tolist(), strict=True) if fine]
        try:
            ids = self._names.ids(good, len(good))
        except KeyError:
            ids = self._learned(good, now_ms)
        jobs = frozenset(key[0] for key in good)
        table = _Table(ids, ids.tobytes(), packed_ids(ids), jobs, None if named.all() else named)
        self._tables[readings.series] = table
        if len(self._tables) > TABLES_REMEMBERED_MAX:
            self._tables.popitem(last=False)
        self._names.used(jobs)
        return table

    def _learned(self, keys: Sequence[Key], now_ms: int) -> Ints:
        """Find or make numbers for series, durably."""
        try:
            with self._database.transaction() as writer:
                self._names.learn(writer, keys, now_ms=now_ms)
        except BaseException:
            self._names.discard({key[0] for key in keys})
            raise
        return self._names.ids(keys, len(keys))

    def _jobs_of(self, ids: Ints, samples: Sequence[Sample]) -> frozenset[str]:
        """Return whose samples these are; the same series are sent again and again."""
        key = ids.tobytes()
        jobs = self._known_jobs.get(key)
        if jobs is None:
            if len(self._known_jobs) >= BATCHES_REMEMBERED_MAX:
                self._known_jobs.clear()
            jobs = self._known_jobs[key] = frozenset(map(job_of, samples))
        return jobs

    def _count_dropped(self, dropped: int, of: int) -> None:
        if dropped:
            self.dropped += dropped
            log.warning("%d of %d samples were no measurements", dropped, of)


def _measured(samples: Sequence[Sample], floor_ms: int) -> tuple[Sequence[Sample], Ints, Floats]:
    try:
        at_ms = np.fromiter(map(_at_of, samples), np.int64, len(samples))
        values = np.fromiter(map(_value_of, samples), np.float64, len(samples))
    except OverflowError:  # a number beyond any clock
        return _measured([one for one in samples if -1 <= one.at_ms < AT_MS_MAX], floor_ms)
    good = _good(values, floor_ms, at_ms)
    if good.all():
        return samples, at_ms, values
    return [one for one, fine in zip(samples, good.tolist(), strict=True) if fine], at_ms[good], values[good]


def _good(values: Floats, floor_ms: int, at_ms: Ints) -> Bools:
    """Say which values are measurements (what is not a number compares as false) and not too old."""
    good: Bools = (np.abs(values) <= VALUE_MAX) & ((at_ms >= floor_ms) & (at_ms < AT_MS_MAX))
    return good


def _all_good(values: Floats, floor_ms: int, times_ms: Sequence[int]) -> bool:
    """Say in few steps whether all is good; the largest of numbers is none if one of them is none."""
    return bool(
        values.size
        and values.min() >= -VALUE_MAX
        and values.max() <= VALUE_MAX
        and floor_ms <= min(times_ms)
        and max(times_ms) < AT_MS_MAX
    )


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
