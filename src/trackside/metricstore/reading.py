"""Knows how questions are answered from rollups, raw blocks and what is still in memory; writes nothing.

Whole minutes come from rollups. Spans of which samples are still in memory are counted anew from the raw
samples together with those, because only there a repeated sample can be told from a new one; so are the spans
of a window that begins or ends within a minute, steps that are not of whole minutes, and extremes for as long
as there are raw samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trackside.domain.metric import MINUTE_MS
from trackside.metricstore.blocks import Blocks
from trackside.metricstore.catalog import Catalogs
from trackside.metricstore.columns import Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.head import Head, View, newest_of
from trackside.metricstore.layout import (
    GROUP_BITS,
    GROUP_SIZE,
    SPAN_MINUTES,
    SPAN_MS,
    block_group,
    block_span,
)
from trackside.metricstore.rollup import Rollup
from trackside.metricstore.samples import Cells, Samples, combined, join, settled, summed
from trackside.ports import SeriesKey

AT_MS_MAX = 1 << 53  # beyond any clock; what a float still tells exactly
LAST_SPAN = AT_MS_MAX // SPAN_MS


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
        view = self._head.view()  # before the snapshot: what leaves memory is in the file by then
        with self._database.snapshot() as connection:
            catalog = self._catalogs.of(connection, job)
            if catalog is None or window.end_ms <= window.start_ms:
                return None
            chosen = catalog.chosen(task, metric)
            if not len(chosen):
                return None
            ids = catalog.ids[chosen]
            blocks = Blocks(connection, self._damage)
            recent = view.of(ids, max(window.start_ms, self.floor_ms), window.end_ms)
            if window.step_ms % MINUTE_MS:
                cells = self._from_raw(blocks, ids, recent, window, extremes=extremes)
            else:
                cells = self._from_rollups(blocks, ids, recent, window, extremes=extremes)
            return Answer(ids, tuple(catalog.keys[one] for one in chosen.tolist()), cells)

    def newest(
        self, jobs: Sequence[str], metric: str | None, since_ms: int
    ) -> Iterator[tuple[str, list[SeriesKey], Samples]]:
        """Yield the newest sample, since then, of the series of each job that has any."""
        view = self._head.view()
        with self._database.snapshot() as connection:
            blocks = Blocks(connection, self._damage)
            for job in jobs:
                catalog = self._catalogs.of(connection, job)
                if catalog is None:
                    continue
                chosen = catalog.chosen(None, metric)
                ids = catalog.ids[chosen]
                found = _newest(blocks, view, ids, since_ms)
                where = chosen[np.searchsorted(ids, found.ids)]
                if len(found):
                    yield job, [catalog.keys[one] for one in where.tolist()], found

    def _from_raw(
        self, blocks: Blocks, ids: Ints, recent: Samples, window: Window, *, extremes: bool
    ) -> Cells:
        spans = blocks.raw_spans(window.start_ms // SPAN_MS, (window.end_ms - 1) // SPAN_MS)
        stored = blocks.raw(np.unique(ids >> GROUP_BITS), spans)
        return _exact(stored, ids, recent, window, extremes=extremes)

    def _from_rollups(
        self, blocks: Blocks, ids: Ints, recent: Samples, window: Window, *, extremes: bool
    ) -> Cells:
        groups = np.unique(ids >> GROUP_BITS)
        first, last = window.start_ms // MINUTE_MS, -(-window.end_ms // MINUTE_MS)
        spans = blocks.rollup_spans(first // SPAN_MINUTES, (last - 1) // SPAN_MINUTES)
        counted = _spans_to_count(blocks, recent, window, spans if extremes else ())
        exact = _exact(blocks.raw(groups, sorted(counted)), ids, recent, window, extremes=extremes)
        rolled = blocks.rollups(groups, [span for span in spans if span not in counted], extremes=extremes)
        steps = _Steps(first, last, window.step_ms // MINUTE_MS)
        parts = [_binned(row, rollup, ids, steps, extremes=extremes) for row, rollup in rolled]
        return combined([exact, *(part for part in parts if part is not None)])


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


def _spans_to_count(blocks: Blocks, recent: Samples, window: Window, others: Sequence[int]) -> set[int]:
    """Return the spans that must be counted from raw samples, and others as far as these are there."""
    spans = set(np.unique(recent.at_ms // SPAN_MS).tolist())
    oldest = blocks.oldest_raw_span()
    if oldest is None:
        return spans
    edges = [edge // SPAN_MS for edge in (window.start_ms, window.end_ms) if edge % MINUTE_MS]
    return spans | {span for span in (*edges, *others) if span >= oldest}


def _exact(stored: Iterator[Samples], ids: Ints, recent: Samples, window: Window, *, extremes: bool) -> Cells:
    parts = [_of_ids(part, ids) for part in stored]
    found = settled(join([*parts, recent]))
    inside = (found.at_ms >= window.start_ms) & (found.at_ms < window.end_ms)
    return summed(found if inside.all() else found.where(inside), window.step_ms, extremes=extremes)


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


def _binned(row: int, rollup: Rollup, ids: Ints, steps: _Steps, *, extremes: bool) -> Cells | None:
    """Return the wanted part of a rollup in steps."""
    inside, starts, numbers = steps.of(block_span(row))
    wanted = np.zeros(GROUP_SIZE, np.bool_)
    wanted[_slots(ids, block_group(row))] = True
    rows = np.flatnonzero(wanted[rollup.slots])
    if not len(rows):
        return None
    count, total = rollup.count[rows, inside], rollup.total[rows, inside]
    if len(starts) < count.shape[1]:
        count, total = np.add.reduceat(count, starts, axis=1), np.add.reduceat(total, starts, axis=1)
    where = np.nonzero(count)
    own = (block_group(row) << GROUP_BITS) + rollup.slots[rows].astype(np.int64)
    cells = Cells(own[where[0]], numbers[where[1]], count[where], total[where])
    if not extremes:
        return cells
    absent = rollup.count[rows, inside] == 0
    ends = []
    for how, column, blank in ((np.minimum, rollup.low, np.inf), (np.maximum, rollup.high, -np.inf)):
        known = np.full(absent.shape, np.nan) if column is None else column[rows, inside]
        ends.append(how.reduceat(np.where(absent, blank, known), starts, axis=1)[where])
    return replace(cells, low=ends[0], high=ends[1])


def _newest(blocks: Blocks, view: View, ids: Ints, since_ms: int) -> Samples:
    """Return the newest samples: from memory, or from blocks that are not older than what memory has."""
    found = view.newest(ids)
    since = since_ms // SPAN_MS
    span_of = np.full(len(ids), since)
    span_of[np.searchsorted(ids, found.ids)] = np.maximum(found.at_ms // SPAN_MS, since)
    parts = [found]
    open_to = {span: ids[span_of <= span] for span in blocks.raw_spans(int(span_of.min()), LAST_SPAN)}
    for span, missing in sorted(open_to.items(), reverse=True):
        still = missing[~np.isin(missing, np.concatenate([part.ids for part in parts[1:]] or [ids[:0]]))]
        if len(still):
            groups = np.unique(still >> GROUP_BITS)
            parts += [newest_of([block], still) for block in blocks.raw(groups, [span])]
    every = newest_of(parts, ids) if len(parts) > 1 else found
    return every.where(every.at_ms >= since_ms)
