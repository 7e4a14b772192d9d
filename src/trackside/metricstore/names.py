"""Knows which number stands for which series; knows no samples.

Series of one job stand in groups: the first ones as they come, later ones with those of the same metric,
because one metric of all tasks is what is asked for most. A group's names are one small sealed blob.
"""

import json
import sqlite3
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

import numpy as np

from trackside.domain.metric import Sample
from trackside.metricstore import sealed
from trackside.metricstore.columns import Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.layout import GROUP_BITS, GROUP_SIZE, MIXED_GROUPS, SPAN_MS
from trackside.metricstore.snapshot import Asks
from trackside.ports import SeriesKey

SERIES_CACHED_MAX = 200_000

Key = tuple[str, str, str, int | None, tuple[tuple[str, str], ...]]  # job, task, metric, card, labels
key_of: Callable[[Sample], Key] = attrgetter("job_id", "task", "metric", "card", "labels")
job_of: Callable[[Sample], str] = attrgetter("job_id")


class Names:
    """The numbers of the series that are written now; used by one writer at a time."""

    def __init__(self, damage: Damage) -> None:
        self._damage = damage
        self._ids: dict[Key, int] = {}
        self._keys_of: OrderedDict[str, list[Key]] = OrderedDict()  # least recently written first

    def ids(self, keys: Iterable[Key], count: int) -> Ints:
        """Return the numbers of so many series; raise KeyError if one is not remembered."""
        return np.fromiter(map(self._ids.__getitem__, keys), np.int64, count)

    def learn(self, writer: sqlite3.Connection, keys: Sequence[Key], *, now_ms: int) -> None:
        """Find or make numbers for series, in the caller's transaction. If that fails: `discard` them."""
        by_job: dict[str, dict[Key, None]] = {}
        for key in keys:
            by_job.setdefault(key[0], {})[key] = None
        for job, wanted in by_job.items():
            groups = self._load(writer, job)
            missing = [key for key in wanted if key not in self._ids]
            if missing:
                self._make(writer, job, missing, groups, now_ms)

    def used(self, jobs: Iterable[str]) -> None:
        """Note that jobs were written; forget the names of those that were not for longest."""
        for job in jobs:
            if job in self._keys_of:
                self._keys_of.move_to_end(job)
        while len(self._ids) > SERIES_CACHED_MAX and len(self._keys_of) > 1:
            self.discard([next(iter(self._keys_of))])

    def discard(self, jobs: Iterable[str]) -> None:
        """Remember the names of jobs no longer."""
        for job in jobs:
            for key in self._keys_of.pop(job, ()):
                self._ids.pop(key, None)

    def _load(self, writer: sqlite3.Connection, job: str) -> dict[int, list[SeriesKey]]:
        groups = dict(stored_groups(writer, job, self._damage))
        self.discard([job])
        for group, names in groups.items():
            for slot, name in enumerate(names):
                self._remember(job, name, group << GROUP_BITS | slot)
        return groups

    def _make(
        self,
        writer: sqlite3.Connection,
        job: str,
        keys: Sequence[Key],
        groups: dict[int, list[SeriesKey]],
        now_ms: int,
    ) -> None:
        number = _job_number(writer, job, now_ms)
        places = _Places(writer, number, groups)
        for key in keys:
            name = SeriesKey(*key[1:])
            self._remember(job, name, places.put(name))
        places.store()
        writer.execute("UPDATE job SET series = series + ? WHERE id = ?", (len(keys), number))

    def _remember(self, job: str, name: SeriesKey, series: int) -> None:
        key = (job, name.task, name.metric, name.card, name.labels)
        self._ids[key] = series
        self._keys_of.setdefault(job, []).append(key)


class _Places:
    """Where new series of a job go: the mixed groups while there is room, then those of their metric."""

    def __init__(self, writer: sqlite3.Connection, job: int, groups: dict[int, list[SeriesKey]]) -> None:
        self._writer = writer
        self._job = job
        self._groups = groups
        self._changed: set[int] = set()
        self._mixed = list(groups)[:MIXED_GROUPS]
        later = list(groups)[MIXED_GROUPS:]
        self._of_metric = {groups[group][-1].metric: group for group in later}

    def put(self, name: SeriesKey) -> int:
        """Return the number of a new series."""
        group = self._mixed[-1] if self._mixed else None
        if self._full(group) and len(self._mixed) < MIXED_GROUPS:
            group = self._open()
            self._mixed.append(group)
        elif self._full(group):
            group = self._of_metric.get(name.metric)
            if self._full(group):
                group = self._of_metric[name.metric] = self._open()
        assert group is not None, "a full group was replaced"
        self._changed.add(group)
        self._groups[group].append(name)
        return group << GROUP_BITS | (len(self._groups[group]) - 1)

    def store(self) -> None:
        """Write the groups that have new series."""
        self._writer.executemany(
            "UPDATE series_group SET names = ? WHERE id = ?",
            [(_packed(group, self._groups[group]), group) for group in sorted(self._changed)],
        )

    def _full(self, group: int | None) -> bool:
        return group is None or len(self._groups[group]) >= GROUP_SIZE

    def _open(self) -> int:
        group = self._writer.execute(
            "INSERT INTO series_group (job, names) VALUES (?, x'')", (self._job,)
        ).lastrowid
        assert group is not None
        self._groups[group] = []
        return group


def stored_groups(connection: Asks, job: str, damage: Damage) -> Iterator[tuple[int, list[SeriesKey]]]:
    """Yield the groups of a job, oldest first, and what their series are called."""
    rows = connection.execute(
        "SELECT series_group.id, names FROM job JOIN series_group ON job = job.id WHERE name = ? ORDER BY 1",
        (job,),
    )
    for group, data in rows.fetchall():
        try:
            yield group, _unpacked(group, data)
        except sealed.BlockDamaged as error:
            damage.report("series_group", group, error)


def _unpacked(group: int, data: bytes) -> list[SeriesKey]:
    (section,) = sealed.unseal(sealed.NAMES, group, data)
    return [
        SeriesKey(task, metric, card, tuple((name, value) for name, value in labels))
        for task, metric, card, labels in json.loads(zlib.decompress(section))
    ]


def _packed(group: int, names: list[SeriesKey]) -> bytes:
    rows = [[name.task, name.metric, name.card, name.labels] for name in names]
    text = json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
    return sealed.seal(sealed.NAMES, group, [zlib.compress(text.encode())])


def _job_number(writer: sqlite3.Connection, job: str, now_ms: int) -> int:
    row = writer.execute("SELECT id FROM job WHERE name = ?", (job,)).fetchone()
    if row is None:
        made = writer.execute(
            "INSERT INTO job (name, series, first_span, last_span) VALUES (?1, 0, ?2, ?2)",
            (job, now_ms // SPAN_MS),
        )
        assert made.lastrowid is not None
        return made.lastrowid
    return int(row[0])
