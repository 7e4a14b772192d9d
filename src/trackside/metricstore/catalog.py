"""Knows what the series of a job are called, for those who read; remembers a bounded number of them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from trackside.metricstore.columns import Bools, Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.layout import GROUP_BITS
from trackside.metricstore.names import stored_groups
from trackside.metricstore.selection import Selection, selection
from trackside.metricstore.snapshot import Asks
from trackside.ports import SeriesKey

SERIES_CACHED_MAX = 100_000
SELECTIONS_REMEMBERED_MAX = 16  # of one job
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which series of a job: of one task or all, of some metrics or all, without those of cards or with."""

    task: str | None = None
    metrics: tuple[str, ...] | None = None
    whole: bool = False  # only of tasks as a whole: no card, no labels


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """The series of one job, by number."""

    job: int  # its number in the file
    series: int  # how many the job had when this was read
    ids: Ints
    keys: tuple[SeriesKey, ...]
    of_task: dict[str, Ints]  # positions
    of_metric: dict[str, Ints]
    whole: Bools  # which are of a task as a whole
    _selections: dict[Asked, Selection] = field(default_factory=dict)

    def selected(self, asked: Asked) -> Selection:
        """Return the series that are asked for."""
        found = self._selections.get(asked)
        if found is None:
            chosen = self._of(asked.task, asked.metrics)
            chosen = chosen[self.whole[chosen]] if asked.whole else chosen
            found = selection(self.ids[chosen], [self.keys[one] for one in chosen.tolist()])
            if len(self._selections) >= SELECTIONS_REMEMBERED_MAX:
                self._selections.clear()
            self._selections[asked] = found
        return found

    def _of(self, task: str | None, metrics: Sequence[str] | None) -> Ints:
        if task is not None:
            found = self.of_task.get(task, _NOTHING)
            if metrics is None:
                return found
            return found[[self.keys[one].metric in metrics for one in found.tolist()]]
        if metrics is None:
            return np.arange(len(self.ids))
        parts = [self.of_metric[metric] for metric in set(metrics) if metric in self.of_metric]
        return np.sort(np.concatenate(parts)) if len(parts) > 1 else (parts or [_NOTHING])[0]


@dataclass(frozen=True, slots=True)
class _Known:
    catalog: Catalog
    revision: int


class Catalogs:
    """Catalogs of the jobs that were asked for last. Series are added only together with samples, so as long
    as the job's samples are of the same revision, so is its catalog."""

    def __init__(self, damage: Damage, revision_of: Callable[[str], int]) -> None:
        self._damage = damage
        self._revision_of = revision_of
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._series = 0

    def of(self, snapshot: Asks, job: str) -> Catalog | None:
        """Return the catalog of a job, asking the snapshot only if it may have changed."""
        revision = self._revision_of(job)  # before anything is read: what comes later counts as newer
        with self._lock:
            known = self._known.get(job)
            if known is not None and known.revision == revision:
                self._known.move_to_end(job)
                return known.catalog
        row = snapshot.execute("SELECT id, series FROM job WHERE name = ?", (job,)).fetchone()
        if row is None:
            return None
        if known is not None and (known.catalog.job, known.catalog.series) == row:
            made = known.catalog
        else:
            made = _read(snapshot, job, *row, damage=self._damage)
        self._remember(job, _Known(made, revision))
        return made

    def _remember(self, job: str, made: _Known) -> None:
        with self._lock:
            former = self._known.pop(job, None)
            self._series += len(made.catalog.ids) - (len(former.catalog.ids) if former else 0)
            self._known[job] = made
            while self._series > SERIES_CACHED_MAX and len(self._known) > 1:
                self._series -= len(self._known.popitem(last=False)[1].catalog.ids)


def _read(snapshot: Asks, job: str, number: int, series: int, *, damage: Damage) -> Catalog:
    ids: list[int] = []
    keys: list[SeriesKey] = []
    of_task: dict[str, list[int]] = {}
    of_metric: dict[str, list[int]] = {}
    for group, names in stored_groups(snapshot, job, damage):
        for slot, name in enumerate(names):
            of_task.setdefault(name.task, []).append(len(keys))
            of_metric.setdefault(name.metric, []).append(len(keys))
            ids.append(group << GROUP_BITS | slot)
            keys.append(name)
    return Catalog(
        job=number,
        series=series,
        ids=np.array(ids, np.int64),
        keys=tuple(keys),
        of_task={task: np.array(where, np.int64) for task, where in of_task.items()},
        of_metric={metric: np.array(where, np.int64) for metric, where in of_metric.items()},
        whole=np.array([key.card is None and not key.labels for key in keys], np.bool_),
    )
