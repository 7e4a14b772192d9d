"""Knows what the series of a job are called, for those who read; remembers a bounded number of them."""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trackside.metricstore.columns import Bools, Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.layout import GROUP_BITS
from trackside.metricstore.names import stored_groups
from trackside.ports import SeriesKey

SERIES_CACHED_MAX = 100_000
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """The series of one job, by number."""

    series: int  # how many the job had when this was read
    ids: Ints
    keys: tuple[SeriesKey, ...]
    of_task: dict[str, Ints]  # positions
    of_metric: dict[str, Ints]
    whole: Bools  # which are of a task as a whole: without card and labels

    def chosen(self, task: str | None, metrics: Sequence[str] | None, *, whole: bool = False) -> Ints:
        """Return the positions, ascending, of what is asked for: of tasks as a whole only, if wanted."""
        found = self._of(task, metrics)
        return found[self.whole[found]] if whole else found

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


class Catalogs:
    """Catalogs of the jobs that were asked for last."""

    def __init__(self, damage: Damage) -> None:
        self._damage = damage
        self._lock = threading.Lock()
        self._known: OrderedDict[int, Catalog] = OrderedDict()
        self._series = 0

    def of(self, connection: sqlite3.Connection, job: str) -> Catalog | None:
        """Return the catalog of a job as the connection's snapshot has it."""
        row = connection.execute("SELECT id, series FROM job WHERE name = ?", (job,)).fetchone()
        if row is None:
            return None
        number, series = row
        with self._lock:
            known = self._known.get(number)
            if known is not None and known.series == series:
                self._known.move_to_end(number)
                return known
        made = _read(connection, job, series, self._damage)
        with self._lock:
            former = self._known.pop(number, None)
            self._series += len(made.ids) - (len(former.ids) if former else 0)
            self._known[number] = made
            while self._series > SERIES_CACHED_MAX and len(self._known) > 1:
                self._series -= len(self._known.popitem(last=False)[1].ids)
        return made


def _read(connection: sqlite3.Connection, job: str, series: int, damage: Damage) -> Catalog:
    ids: list[int] = []
    keys: list[SeriesKey] = []
    of_task: dict[str, list[int]] = {}
    of_metric: dict[str, list[int]] = {}
    for group, names in stored_groups(connection, job, damage):
        for slot, name in enumerate(names):
            of_task.setdefault(name.task, []).append(len(keys))
            of_metric.setdefault(name.metric, []).append(len(keys))
            ids.append(group << GROUP_BITS | slot)
            keys.append(name)
    return Catalog(
        series=series,
        ids=np.array(ids, np.int64),
        keys=tuple(keys),
        whole=np.array([key.card is None and not key.labels for key in keys], np.bool_),
        of_task={task: np.array(where, np.int64) for task, where in of_task.items()},
        of_metric={metric: np.array(where, np.int64) for metric, where in of_metric.items()},
    )
