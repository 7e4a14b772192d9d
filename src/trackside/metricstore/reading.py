"""Knows how questions are answered from rollups, raw blocks and what is still in memory; writes nothing.

Whole minutes come from rollups. Hours of which samples are still in memory are counted anew from the raw
samples together with those, because only there a repeated sample can be told from a new one; so are the hours
of a window that begins or ends within a minute, and every step that is not of whole minutes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trackside.domain.metric import MINUTE_MS
from trackside.metricstore import head
from trackside.metricstore.blocks import Blocks
from trackside.metricstore.catalog import Catalogs
from trackside.metricstore.columns import Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.head import Head
from trackside.metricstore.layout import (
    GROUP_BITS,
    GROUP_SIZE,
    HOUR_MS,
    SPAN_MINUTES,
    block_group,
    block_time,
)
from trackside.metricstore.rollup import Rollup
from trackside.metricstore.samples import Cells, Samples, combined, join, reduced, settled, summed
from trackside.ports import SeriesKey

HOUR_MINUTES = HOUR_MS // MINUTE_MS
AT_MS_MAX = 1 << 53  # beyond any clock; what a float still tells exactly


@dataclass(frozen=True, slots=True)
class Window:
    """From when to when, the end left out, in which steps."""

    start_ms: int
    end_ms: int
    step_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The series that were asked for, by number, and what their samples come to."""

    ids: Ints
    keys: tuple[SeriesKey, ...]
    cells: Cells


class Reading:
    """Answers from one file and what is in memory on top of it."""

    def __init__(self, database: Database, recent: Head, damage: Damage) -> None:
        self._database = database
        self._head = recent
        self._damage = damage
        self._catalogs = Catalogs(damage)
        self.floor_ms = 0  # of older samples there is only the rollup

    def cells(
        self, job: str, *, task: str | None, metric: str | None, window: Window, extremes: bool
    ) -> Answer | None:
        """Return what the samples of a job come to per series and step; None if it has no such series."""
        runs = self._head.runs()  # before the snapshot: what leaves memory is in the file by then
        with self._database.snapshot() as connection:
            catalog = self._catalogs.of(connection, job)
            if catalog is None or window.end_ms <= window.start_ms:
                return None
            chosen = catalog.chosen(task, metric)
            if not len(chosen):
                return None
            ids = catalog.ids[chosen]
            blocks = Blocks(connection, self._damage)
            recent = head.of_series(runs, ids)
            if len(recent) and int(recent.at_ms.min()) < self.floor_ms:
                recent = recent.where(recent.at_ms >= self.floor_ms)
            if window.step_ms % MINUTE_MS:
                cells = self._from_raw(blocks, ids, recent, window)
            else:
                cells = self._from_rollups(blocks, ids, recent, window, extremes=extremes)
            return Answer(ids, tuple(catalog.keys[one] for one in chosen.tolist()), cells)

    def newest(
        self, jobs: Sequence[str], metric: str | None, since_ms: int
    ) -> Iterator[tuple[str, list[SeriesKey], Samples]]:
        """Yield the newest sample, since then, of the series of each job that has any."""
        runs = self._head.runs()
        with self._database.snapshot() as connection:
            blocks = Blocks(connection, self._damage)
            for job in jobs:
                catalog = self._catalogs.of(connection, job)
                if catalog is None:
                    continue
                chosen = catalog.chosen(None, metric)
                ids = catalog.ids[chosen]
                found = _newest(blocks, runs, ids, since_ms)
                where = chosen[np.searchsorted(ids, found.ids)]
                if len(found):
                    yield job, [catalog.keys[one] for one in where.tolist()], found

    def _from_raw(self, blocks: Blocks, ids: Ints, recent: Samples, window: Window) -> Cells:
        hours = window.start_ms // HOUR_MS, (window.end_ms - 1) // HOUR_MS
        stored = blocks.raw_hours(np.unique(ids >> GROUP_BITS), *hours)
        return _exact(stored, ids, recent, window)

    def _from_rollups(
        self, blocks: Blocks, ids: Ints, recent: Samples, window: Window, *, extremes: bool
    ) -> Cells:
        groups = np.unique(ids >> GROUP_BITS)
        hours = _hours_to_count(blocks, recent, window)
        exact = _exact(blocks.raw_of(groups, hours), ids, recent, window)
        first, last = window.start_ms // MINUTE_MS, -(-window.end_ms // MINUTE_MS)
        spans = first // SPAN_MINUTES, (last - 1) // SPAN_MINUTES
        parts = [
            part
            for row, rollup in blocks.rollups(groups, *spans, extremes=extremes)
            if (part := _binned(row, rollup, ids, (first, last), hours, window.step_ms // MINUTE_MS))
        ]
        return combined([*parts, exact])


def _hours_to_count(blocks: Blocks, recent: Samples, window: Window) -> list[int]:
    """Return the hours that must be counted from raw samples."""
    hours = set(np.unique(recent.at_ms // HOUR_MS).tolist())
    oldest = blocks.oldest_raw_hour()
    for edge in (window.start_ms, window.end_ms):
        if edge % MINUTE_MS and oldest is not None and edge // HOUR_MS >= oldest:
            hours.add(edge // HOUR_MS)
    return sorted(hours)


def _exact(stored: Iterator[Samples], ids: Ints, recent: Samples, window: Window) -> Cells:
    parts = [_of_ids(part, ids) for part in stored]
    found = settled(join([*parts, recent]))
    inside = (found.at_ms >= window.start_ms) & (found.at_ms < window.end_ms)
    return summed(found if inside.all() else found.where(inside), window.step_ms)


def _of_ids(block: Samples, ids: Ints) -> Samples:
    """Return the samples of a block that are of the wanted series."""
    group = int(block.ids[0]) >> GROUP_BITS
    wanted = np.zeros(GROUP_SIZE, np.bool_)
    wanted[_slots(ids, group)] = True
    chosen = wanted[block.ids & (GROUP_SIZE - 1)]
    return block if chosen.all() else block.where(chosen)


def _slots(ids: Ints, group: int) -> Ints:
    first, last = np.searchsorted(ids, [group << GROUP_BITS, (group + 1) << GROUP_BITS])
    return ids[first:last] & (GROUP_SIZE - 1)


def _binned(
    row: int, rollup: Rollup, ids: Ints, minutes: tuple[int, int], hours: list[int], step: int
) -> Cells | None:
    """Return the wanted part of a rollup, without some hours, in steps of so many minutes."""
    start = block_time(row) * SPAN_MINUTES
    low, high = max(minutes[0] - start, 0), min(minutes[1] - start, SPAN_MINUTES)
    rows = np.flatnonzero(np.isin(rollup.slots, _slots(ids, block_group(row))))
    if not len(rows) or low >= high:
        return None
    left_out = [
        hour * HOUR_MINUTES - start for hour in hours if 0 <= hour * HOUR_MINUTES - start < SPAN_MINUTES
    ]
    present = rollup.count > 0
    for at in left_out:
        present[:, at : at + HOUR_MINUTES] = False
    where, minute = np.nonzero(present[rows, low:high])
    if not len(where):
        return None
    where, minute = rows[where], minute + low
    return reduced(
        Cells(
            ids=(block_group(row) << GROUP_BITS) + rollup.slots[where].astype(np.int64),
            steps=(minute + start) // step,
            count=rollup.count[where, minute],
            total=rollup.total[where, minute],
            low=rollup.low[where, minute],
            high=rollup.high[where, minute],
        )
    )


def _newest(blocks: Blocks, runs: tuple[Samples, ...], ids: Ints, since_ms: int) -> Samples:
    found = head.newest_of(runs, ids)
    since_hour = since_ms // HOUR_MS
    hour_of = np.full(len(ids), since_hour)
    hour_of[np.searchsorted(ids, found.ids)] = np.maximum(found.at_ms // HOUR_MS, since_hour)
    parts = [found]
    for group in np.unique(ids >> GROUP_BITS).tolist():
        own = ids >> GROUP_BITS == group
        missing = ids[own]
        for block in blocks.raw_newest_first(group, int(hour_of[own].min()), AT_MS_MAX // HOUR_MS):
            last = head.newest_of([block], missing)
            parts.append(last)
            missing = missing[~np.isin(missing, last.ids)]
            if not len(missing):
                break
    every = head.newest_of(parts, ids) if len(parts) > 1 else found
    return every.where(every.at_ms >= since_ms)
