"""Keeps samples in one SQLite file: what is acknowledged is on disk, what is old is small.

This is the front; the file's format is told in docs/metric-store.md. Appends go to the journal and to memory;
a thread moves them into blocks when their span is over. Nothing here knows of tasks, dialects or HTTP.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import Readings
from trackside.metricstore.compact import Compaction
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.first_format import move_aside, samples_of
from trackside.metricstore.head import EVER_MS, Head
from trackside.metricstore.journal import Journal
from trackside.metricstore.layout import SPAN_MS
from trackside.metricstore.reading import AT_MS_MAX, Answer, Reading, Window
from trackside.metricstore.retention import Retention
from trackside.metricstore.revisions import Revisions
from trackside.metricstore.writing import Entry, Writing
from trackside.ports import SeriesKey

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
HEAD_SAMPLES_MAX = (
    1 << 22
)  # in memory, mostly 8 bytes each; beyond it they are compacted before their span is over
GRACE_MS = 120_000  # how long after its end a span is compacted
MAINTENANCE_SECONDS = 10.0


class Extremes(NamedTuple):
    """What the samples of a step come to; lowest and highest are not numbers where they were lost."""

    mean: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True, slots=True)
class _Kept:
    """How long samples and rollups are kept; None: for ever."""

    raw_ms: int | None
    rollup_ms: int | None


def _system_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True, eq=False)
class _Thread:
    """The one that keeps house."""

    wake: threading.Event = field(default_factory=threading.Event)
    ending: bool = False
    thread: threading.Thread | None = None


class EmbeddedMetricStore:
    """A MetricStore in one file."""

    remote = False

    def __init__(
        self,
        path: Path,
        *,
        raw_days: float | None = None,
        rollup_days: float | None = None,
        now_ms: Callable[[], int] = _system_ms,
        background: bool = True,
    ) -> None:
        former = move_aside(path)
        self._now_ms = now_ms
        self._kept = _Kept(_days(raw_days), _days(rollup_days))
        self._damage = Damage()
        self._database = Database(path)
        self._head = Head()
        self._reading = Reading(self._database, self._head, self._damage)
        self._revisions = Revisions()
        try:
            journal = Journal(path, self._damage)
        except BaseException:
            self._database.close()
            raise
        self._writing = Writing(self._database, journal, self._head, self._revisions, self._damage, now_ms)
        self._compaction = Compaction(self._database, self._writing, self._head, self._damage)
        self._retention = Retention(self._database, self._damage)
        self._maintenance = threading.Lock()
        self._floor_ms = 0
        self._expired_span = -1
        self._house = _Thread()
        self._raise_floor()
        self._writing.replay(self._damage)
        for samples in samples_of(former):
            self.append(samples)
        former.unlink(missing_ok=True)
        if background:
            self._house.thread = threading.Thread(target=self._keep_house, name="metrics", daemon=True)
            self._house.thread.start()

    @property
    def dropped(self) -> int:
        """Return how many samples were refused for what they were."""
        return self._writing.dropped

    @property
    def damaged(self) -> int:
        """Return how many damaged blocks were met and left out."""
        return self._damage.count

    def append(self, samples: Sequence[Sample]) -> None:
        """Keep samples; they are durable on return. What is no measurement is dropped and counted."""
        self._writing.append(Entry(samples=samples))
        self._see_to_room()

    def append_readings(self, readings: Sequence[Readings]) -> None:
        """Keep samples that come as rows; they are durable on return."""
        self._writing.append(Entry(readings=readings))
        self._see_to_room()

    def means(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, dict[int, float]]:
        """Return, per series, the mean of each step [t, t+step) that has samples, keyed by t.

        Steps are whole multiples of `step_ms` since the epoch; one that is only partly in the window has
        the samples that are.
        """
        found = self.means_columns(
            job_id, task=task, metric=metric, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms
        )
        return {key: dict(zip(steps, means, strict=True)) for key, (steps, means) in found.items()}

    def means_columns(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, tuple[list[int], list[float]]]:
        """Return, per series, the steps that have samples, ascending, and their means."""
        window = _window(start_ms, end_ms, step_ms)
        answer = self._reading.cells(job_id, task=task, metric=metric, window=window, extremes=False)
        if answer is None:
            return {}
        steps = (answer.cells.steps * window.step_ms).tolist()
        means = (answer.cells.total / answer.cells.count).tolist()
        return {key: (steps[first:last], means[first:last]) for key, first, last in _ranges(answer)}

    def latest(
        self, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        """Return the newest sample (time, value) of every series that has one since then."""
        return self._latest(job_ids, None, since_ms)

    def latest_of(
        self, metric: str, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        """Return the newest sample (time, value) of every series of a metric that has one since then."""
        return self._latest(job_ids, metric, since_ms)

    def extremes(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, dict[int, Extremes]]:
        """Return, per series, what the samples of each step come to, lowest and highest included."""
        window = _window(start_ms, end_ms, step_ms)
        answer = self._reading.cells(job_id, task=task, metric=metric, window=window, extremes=True)
        if answer is None:
            return {}
        cells = answer.cells
        assert cells.low is not None, "they were asked for"
        assert cells.high is not None, "they were asked for"
        steps = (cells.steps * window.step_ms).tolist()
        columns = (cells.total / cells.count, cells.low, cells.high, cells.count)
        told = [Extremes(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
        return {
            key: dict(zip(steps[first:last], told[first:last], strict=True))
            for key, first, last in _ranges(answer)
        }

    def revision(self, job_id: JobId) -> int:
        """Return a number that changes whenever samples of the job arrive."""
        return self._revisions.of(job_id)

    def forget(self, job_id: JobId) -> None:
        """Drop all samples of a job: none is told from now on, the space is given back in the background."""
        self._writing.forget([job_id])
        self._expired_span = -1
        self._house.wake.set()

    def compact(self, *, everything: bool = False) -> int:
        """Move the samples of the spans that are over (or all) into blocks; return how many."""
        until_ms = EVER_MS if everything else (self._now_ms() - GRACE_MS) // SPAN_MS * SPAN_MS
        with self._maintenance:
            oldest = self._head.view().oldest_ms
            if oldest is None or oldest >= until_ms:
                return 0
            return self._compaction.run(floor_ms=self._floor_ms, until_ms=until_ms)

    def expire(self) -> None:
        """Remove what is too old or was forgotten, and give its space back."""
        with self._maintenance:
            now = self._now_ms()
            self._raise_floor()
            rollup_ms = 0 if self._kept.rollup_ms is None else max(0, now - self._kept.rollup_ms)
            self._retention.expire(raw_before_ms=self._floor_ms, rollups_before_ms=rollup_ms)
            self._writing.forget(self._retention.ended_before(rollup_ms))
            self._retention.purge()
            self._retention.shrink(lambda: self._house.ending)
            self._expired_span = now // SPAN_MS

    def close(self) -> None:
        """Stop the thread and close all connections; no other thread may be using the store any longer."""
        self._house.ending = True
        self._house.wake.set()
        if self._house.thread is not None:
            self._house.thread.join()
        self._writing.journal.close()
        self._database.close()

    def _latest(
        self, job_ids: Sequence[JobId], metric: str | None, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        return {
            JobId(job): dict(
                zip(keys, zip(found.at_ms.tolist(), found.values.tolist(), strict=True), strict=True)
            )
            for job, keys, found in self._reading.newest(job_ids, metric, _clamped(since_ms))
        }

    def _see_to_room(self) -> None:
        if len(self._head) > HEAD_SAMPLES_MAX:
            self._house.wake.set()
            if self._house.thread is None or len(self._head) > 2 * HEAD_SAMPLES_MAX:
                self.compact(everything=True)

    def _raise_floor(self) -> None:
        """Move the time before which there are no raw samples; it never goes back."""
        if self._kept.raw_ms is not None:
            floor = (self._now_ms() - self._kept.raw_ms) // SPAN_MS * SPAN_MS
            self._floor_ms = max(self._floor_ms, floor)
            self._reading.floor_ms = self._writing.floor_ms = self._floor_ms

    def _keep_house(self) -> None:
        while not self._house.ending:
            self._house.wake.wait(MAINTENANCE_SECONDS)
            self._house.wake.clear()
            if self._house.ending:
                return
            try:
                self.compact(everything=len(self._head) > HEAD_SAMPLES_MAX)
                if self._expired_span != self._now_ms() // SPAN_MS:
                    self.expire()
            except Exception:
                log.exception("metrics: could not compact; trying again")


def _days(days: float | None) -> int | None:
    return None if days is None else int(days * DAY_MS)


def _window(start_ms: int, end_ms: int, step_ms: int) -> Window:
    if step_ms <= 0:
        raise Invalid(f"a step must be positive, not {step_ms} ms")
    return Window(_clamped(start_ms), _clamped(end_ms), min(step_ms, AT_MS_MAX))


def _clamped(at_ms: int) -> int:
    return min(max(at_ms, 0), AT_MS_MAX)


def _ranges(answer: Answer) -> list[tuple[SeriesKey, int, int]]:
    """Return where the cells of each series stand that has any."""
    first = np.searchsorted(answer.cells.ids, answer.ids, side="left").tolist()
    last = np.searchsorted(answer.cells.ids, answer.ids, side="right").tolist()
    return [(key, a, b) for key, a, b in zip(answer.keys, first, last, strict=True) if b > a]
