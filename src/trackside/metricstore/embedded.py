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

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import Readings
from trackside.metricstore.answers import Answers
from trackside.metricstore.compact import Compaction
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.decoded import Decoded
from trackside.metricstore.first_format import move_aside, samples_of
from trackside.metricstore.head import EVER_MS, Head
from trackside.metricstore.journal import Journal
from trackside.metricstore.layout import SPAN_MS
from trackside.metricstore.readahead import read_ahead
from trackside.metricstore.reading import Reading
from trackside.metricstore.retention import Retention
from trackside.metricstore.revisions import Revisions
from trackside.metricstore.writing import Writing

log = logging.getLogger(__name__)

DAY_MS = 86_400_000
# In memory, mostly 8 bytes each; beyond it they are compacted before their span is over.
HEAD_SAMPLES_MAX = 1 << 23
GRACE_MS = 120_000  # how long after its end a span is compacted
MAINTENANCE_SECONDS = 10.0
COMPACTION_SECONDS = 60.0  # between two: a node that ships the spool of hours is not merged batch by batch


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


class EmbeddedMetricStore(Answers):
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
        self._decoded = decoded = Decoded()
        self._revisions = Revisions()
        super().__init__(Reading(self._database, self._head, self._damage, decoded, self._revisions))
        try:
            journal = Journal(path, self._damage)
        except BaseException:
            self._database.close()
            raise
        self._writing = Writing(self._database, journal, self._head, self._revisions, self._damage, now_ms)
        self._compaction = Compaction(self._database, self._writing, self._head, self._damage, decoded)
        self._retention = Retention(self._database, self._damage, decoded)
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
        self._writing.append(samples=samples)
        self._see_to_room()

    def append_readings(self, readings: Sequence[Readings]) -> None:
        """Keep samples that come as rows; they are durable on return."""
        self._writing.append(readings=readings)
        self._see_to_room()

    def ready(self, readings: Sequence[Readings]) -> bool:
        """Say whether an append of these would now wait for nothing but one write to the disk."""
        return len(self._head) <= HEAD_SAMPLES_MAX and self._writing.ready(readings)

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
        moved = 1  # what was there before counts as new
        compacted = -COMPACTION_SECONDS
        while not self._house.ending:
            try:
                if moved:
                    read_ahead(self._database, self._decoded, lambda: self._house.ending)
                self._house.wake.wait(MAINTENANCE_SECONDS)
                self._house.wake.clear()
                if self._house.ending:
                    return
                moved, full = 0, len(self._head) > HEAD_SAMPLES_MAX
                if full or time.monotonic() - compacted >= COMPACTION_SECONDS:
                    moved = self.compact(everything=full)
                    compacted = time.monotonic() if moved else compacted
                if self._expired_span != self._now_ms() // SPAN_MS:
                    self.expire()
            except Exception:
                log.exception("metrics: could not compact; trying again")


def _days(days: float | None) -> int | None:
    return None if days is None else int(days * DAY_MS)
