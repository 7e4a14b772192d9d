"""Takes samples in: names are looked up, records written and synced, and memory filled, in this order.

Knows nothing of blocks and answers no questions.
"""

import threading
from collections.abc import Callable, Sequence

from trackside.domain.metric import Sample
from trackside.domain.readings import Readings
from trackside.metricstore import tail
from trackside.metricstore.damage import Damage
from trackside.metricstore.database import Database
from trackside.metricstore.head import Head
from trackside.metricstore.intake import Intake
from trackside.metricstore.journal import Journal
from trackside.metricstore.revisions import Revisions
from trackside.metricstore.samples import RowBatch, Samples


class Writing:
    """The one way in."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        head: Head,
        revisions: Revisions,
        damage: Damage,
        now_ms: Callable[[], int],
    ) -> None:
        self._database = database
        self._head = head
        self._revisions = revisions
        self._intake = Intake(database, damage)
        self._now_ms = now_ms
        self.lock = threading.Lock()  # whoever adds to the journal or to memory holds it
        self.journal = journal
        self.floor_ms = 0  # older samples are refused

    @property
    def dropped(self) -> int:
        """Return how many samples were refused for what they were."""
        return self._intake.dropped

    def replay(self, damage: Damage) -> None:
        """Fill memory with what was acknowledged before."""
        for record in self.journal.replay():
            self._head.add([tail.read(record)])
        if self._database.has_tail:
            for samples in tail.of_format_3(self._database.writer, damage):
                self._store([samples])
            self._database.drop_tail()

    def append(self, *, samples: Sequence[Sample] = (), readings: Sequence[Readings] = ()) -> None:
        """Keep samples; they are durable on return. What is no measurement is dropped and counted."""
        jobs: set[str] = set()
        with self.lock:
            taken = self._take(samples, readings, jobs)
            self._store([batch for batch in taken if len(batch)])
        self._revisions.touch(jobs)

    def ready(self, readings: Sequence[Readings]) -> bool:
        """Say whether nobody else is writing and no new series have to be stored."""
        return not self.lock.locked() and all(self._intake.knows(one.series) for one in readings)

    def forget(self, jobs: Sequence[str]) -> None:
        """Take the names of jobs away."""
        with self.lock:
            with self._database.transaction() as writer:
                writer.executemany("UPDATE job SET name = NULL WHERE name = ?", [(job,) for job in jobs])
            self._intake.forget(jobs)
        self._revisions.touch(jobs)

    def _take(
        self, samples: Sequence[Sample], readings: Sequence[Readings], jobs: set[str]
    ) -> list[Samples | RowBatch]:
        now, taken = self._now_ms(), list[Samples | RowBatch]()
        if samples:
            some, whose = self._intake.columns(samples, floor_ms=self.floor_ms, now_ms=now)
            taken.append(some)
            jobs |= whose
        for one in _together(readings):
            rows, whose = self._intake.rows(one, floor_ms=self.floor_ms, now_ms=now)
            taken.append(rows)
            jobs |= whose
        return taken

    def _store(self, batches: Sequence[Samples | RowBatch]) -> None:
        if batches:
            self.journal.append(
                [
                    tail.of_rows(batch) if isinstance(batch, RowBatch) else tail.of_samples(batch)
                    for batch in batches
                ]
            )
            self._head.add(batches)


def _together(every: Sequence[Readings]) -> Sequence[Readings]:
    """Return readings with rows of the same series put together: a spool brings them tick after tick."""
    if len(every) < 2:
        return every
    alike: dict[bytes, list[Readings]] = {}
    for readings in every:
        alike.setdefault(readings.series, []).append(readings)
    return [
        Readings(
            series=series,
            times_ms=tuple(at_ms for one in some for at_ms in one.times_ms),
            values=b"".join(one.values for one in some),
        )
        for series, some in alike.items()
    ]
