"""Answers questions from blocks and what is still in memory; writes nothing.

Means of whole minutes are the business of `means`. Finer steps are counted from the samples; extremes come
from rollups only where the raw samples are gone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from trackside.domain.metric import MINUTE_MS
from trackside.metricstore.blocks import Blocks
from trackside.metricstore.catalog import Asked, Catalogs
from trackside.metricstore.columns import Floats, Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.decoded import Decoded
from trackside.metricstore.exact import exact, slots_of
from trackside.metricstore.head import Head
from trackside.metricstore.layout import (
    GROUP_BITS,
    GROUP_SIZE,
    SPAN_MINUTES,
    block_group,
    block_span,
)
from trackside.metricstore.means import Source
from trackside.metricstore.newest import Newest
from trackside.metricstore.remembered import Remembered
from trackside.metricstore.revisions import Revisions
from trackside.metricstore.rollup import Rollup
from trackside.metricstore.samples import Cells, combined
from trackside.metricstore.selection import Selection, selection
from trackside.metricstore.snapshot import Snapshot
from trackside.metricstore.table import Flat, Window
from trackside.ports import SeriesKey


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The series that were asked for and what their samples come to."""

    chosen: Selection
    cells: Cells


@dataclass(frozen=True, slots=True, eq=False)
class Means:
    """Some of the series that were asked for, the steps that occur, and the means."""

    keys: Sequence[SeriesKey]
    steps: Ints
    flat: Flat


@dataclass(frozen=True, slots=True, eq=False)
class Latest:
    """The newest samples of some series."""

    keys: Sequence[SeriesKey]
    at_ms: Ints
    values: Floats


class Reading:
    """Answers from one file and what is in memory on top of it."""

    def __init__(
        self, database: Database, recent: Head, damage: Damage, decoded: Decoded, revisions: Revisions
    ) -> None:
        self._database = database
        self._head = recent
        self._damage = damage
        self._decoded = decoded
        self._catalogs = Catalogs(damage, revisions.of)
        self.floor_ms = 0  # of older samples there is only the rollup

    def means(self, job: str, asked: Asked, window: Window) -> list[Means]:
        """Return the means of the series of a job, in parts if they are many; steps are of whole minutes."""
        with Snapshot(self._database) as snapshot:
            source = self._source(snapshot)
            chosen = self._chosen(snapshot, job, asked, window)
            if not len(chosen):
                return []
            return [Means(some.keys, steps, flat) for some, steps, flat in source.means(chosen, window)]

    def cells(self, job: str, asked: Asked, window: Window, *, extremes: bool) -> Answer | None:
        """Return what the samples of a job come to per series and step; None if it has no such series."""
        with Snapshot(self._database) as snapshot:
            source = self._source(snapshot)
            chosen = self._chosen(snapshot, job, asked, window)
            if not len(chosen):
                return None
            if window.step_ms % MINUTE_MS == 0:
                return Answer(chosen, self._extremes(source, chosen.ids, window))
            blocks, ids = source.blocks.blocks, chosen.ids
            cells = exact(blocks, source.view, ids, window, self.floor_ms, extremes=extremes)
            return Answer(chosen, cells)

    def newest(self, jobs: Sequence[str], metric: str | None, since_ms: int) -> Iterator[tuple[str, Latest]]:
        """Yield the newest sample, since then, of the series of each job that has any."""
        asked = Asked(metrics=None if metric is None else (metric,))
        with Snapshot(self._database) as snapshot:
            source = self._source(snapshot)
            for job in jobs:
                catalog = self._catalogs.of(snapshot, job)
                chosen = _NONE if catalog is None else catalog.selected(asked)
                if not len(chosen):
                    continue
                found = Newest(chosen)
                found.add_memory(source.view)
                found.add_blocks(source.blocks, since_ms)
                told = np.flatnonzero(found.at_ms >= since_ms)
                if len(told) == len(chosen):
                    yield job, Latest(chosen.keys, found.at_ms, found.values)
                elif len(told):
                    keys = [chosen.keys[one] for one in told.tolist()]
                    yield job, Latest(keys, found.at_ms[told], found.values[told])

    def _source(self, snapshot: Snapshot) -> Source:
        # Both before the snapshot: what leaves memory is in the file by then, and what is remembered of
        # blocks is not newer.
        view, mark = self._head.view(), self._decoded.mark()
        blocks = Remembered(Blocks(snapshot, self._damage), self._decoded, mark)
        return Source(blocks, view, self.floor_ms)

    def _chosen(self, snapshot: Snapshot, job: str, asked: Asked, window: Window) -> Selection:
        catalog = self._catalogs.of(snapshot, job) if window.end_ms > window.start_ms else None
        return _NONE if catalog is None else catalog.selected(asked)

    def _extremes(self, source: Source, ids: Ints, window: Window) -> Cells:
        """Count what there are raw samples of, and take the rest from rollups."""
        blocks, groups = source.blocks.blocks, np.unique(ids >> GROUP_BITS)
        first, last = window.start_ms // MINUTE_MS, -(-window.end_ms // MINUTE_MS)
        spans = blocks.rollup_spans(first // SPAN_MINUTES, (last - 1) // SPAN_MINUTES)
        oldest = blocks.oldest_raw_span()
        recent = source.view.spans(max(window.start_ms, self.floor_ms), window.end_ms)
        rolled = [one for one in spans if (oldest is None or one < oldest) and one not in recent]
        counted = sorted({*spans, *recent}.difference(rolled))
        steps = _Steps(first, last, window.step_ms // MINUTE_MS)
        parts = [
            exact(blocks, source.view, ids, window.inside(one), self.floor_ms, extremes=True)
            for one in counted
        ]
        for row, rollup in blocks.rollups(groups, rolled, extremes=True):
            part = _binned(row, rollup, ids, steps)
            parts += [part] if part is not None else []
        return combined(parts)


@dataclass(slots=True, eq=False)
class _Steps:
    """Which minutes of a span are wanted, which steps they are of, and where each step begins."""

    first: int  # minute
    last: int  # minute, left out
    minutes: int  # of a step
    _of: dict[int, tuple[slice, Ints, Ints]] = field(default_factory=dict)

    def of(self, span: int) -> tuple[slice, Ints, Ints]:
        """Return minutes, beginnings among them, and numbers of the steps of a span."""
        known = self._of.get(span)
        if known is None:
            start = span * SPAN_MINUTES
            inside = slice(max(self.first - start, 0), min(self.last - start, SPAN_MINUTES))
            number, begins = np.unique(
                np.arange(start + inside.start, start + inside.stop) // self.minutes, return_index=True
            )
            known = self._of[span] = (inside, begins, number)
        return known


def _binned(row: int, rollup: Rollup, ids: Ints, steps: _Steps) -> Cells | None:
    """Return the wanted part of a rollup in steps."""
    inside, starts, numbers = steps.of(block_span(row))
    wanted = np.zeros(GROUP_SIZE, np.bool_)
    wanted[slots_of(ids, block_group(row))] = True
    rows = np.flatnonzero(wanted[rollup.slots])
    if not len(rows):
        return None
    minutes = rollup.count[rows, inside]
    count = np.add.reduceat(minutes, starts, axis=1)
    total = np.add.reduceat(rollup.total[rows, inside], starts, axis=1)
    where = np.nonzero(count)
    own = (block_group(row) << GROUP_BITS) + rollup.slots[rows].astype(np.int64)
    ends = []
    for how, column, blank in ((np.minimum, rollup.low, np.inf), (np.maximum, rollup.high, -np.inf)):
        known = np.full(minutes.shape, np.nan) if column is None else column[rows, inside]
        ends.append(how.reduceat(np.where(minutes == 0, blank, known), starts, axis=1)[where])
    return Cells(own[where[0]], numbers[where[1]], count[where], total[where], *ends)


_NONE = selection(np.empty(0, np.int64), [])
