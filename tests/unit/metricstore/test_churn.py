"""Series come and go with every job: the last of many short jobs costs what the first ones cost.

Time is not compared, because machines are shared. What is: the instructions SQLite needs, which grow with
whatever is searched through, and the bytes on disk. With TRACKSIDE_SOAK there are 100,000 jobs, and what
was measured by the clock is printed, too (`-s` shows it).
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import TypeVar

import pytest

from tests.unit.metricstore.counting import Counting
from trackside.domain.job import JobId
from trackside.domain.metric import Metric, Sample
from trackside.domain.readings import readings_of
from trackside.metricstore.database import PAGE_BYTES
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.metricstore.layout import SPAN_MS

JOBS = 100_000 if os.environ.get("TRACKSIDE_SOAK") else 8_000
AT_ONCE = 16  # on the one node
TICK_MS, TICKS = 5_000, 3  # a job lives for a quarter of a minute
HOUSEKEEPING_MS, HOUR_MS = 600_000, 3_600_000
METRICS = list(Metric)[:10]
T0 = 1_790_000_000_000 // SPAN_MS * SPAN_MS
Result = TypeVar("Result")
PHASE = JOBS // AT_ONCE // 5  # the first and the last fifth are compared


@dataclass
class Effort:
    """What was done, and what each time took: instructions of SQLite, seconds."""

    instructions: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass
class Phase:
    """The efforts of one part of the run."""

    append: Effort = field(default_factory=Effort)
    ended: Effort = field(default_factory=Effort)  # a job that has just ended
    first: Effort = field(default_factory=Effort)  # one of the very first
    latest: Effort = field(default_factory=Effort)  # of all that run
    bytes_per_job: float = 0.0


class Churn:
    """A store, and a node on which sixteen short jobs follow the other."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = T0
        self.store = EmbeddedMetricStore(
            folder / "metrics.db", raw_days=15, rollup_days=400, now_ms=lambda: self.now_ms, background=False
        )
        self._housekeeping_ms = T0 + HOUSEKEEPING_MS

    def generation(self, number: int, effort: Effort) -> list[JobId]:
        """Let sixteen jobs live and end."""
        jobs = [JobId(f"job-{number * AT_ONCE + one:07d}") for one in range(AT_ONCE)]
        for _ in range(TICKS):
            self.now_ms += TICK_MS
            batch = [
                Sample(job, "worker-0", metric, self.now_ms, float((number + place) % 101))
                for job in jobs
                for place, metric in enumerate(METRICS)
            ]
            readings = readings_of(batch)
            measured(effort, lambda readings=readings: self.store.append_readings(readings))  # type: ignore[misc]
        if self.now_ms >= self._housekeeping_ms:
            self._housekeeping_ms += HOUSEKEEPING_MS
            self.store.compact()
            self.store.expire()
        return jobs

    def ask(self, job: JobId, effort: Effort) -> None:
        """Ask for what one job used, over the hour after its start."""
        began_ms = T0 + int(job.removeprefix("job-")) // AT_ONCE * TICKS * TICK_MS
        end_ms = began_ms + HOUR_MS
        found = measured(
            effort,
            lambda: self.store.means(job, task=None, start_ms=began_ms, end_ms=end_ms, step_ms=60_000),
        )
        assert len(found) == len(METRICS)

    def size_bytes(self) -> int:
        """Return how large the file is; what waits for its span to end is in the journal beside it."""
        (pages,) = self.store._database.writer.execute("PRAGMA page_count").fetchone()
        return int(pages) * PAGE_BYTES


def measured(effort: Effort, act: Callable[[], Result]) -> Result:
    before, began = Counting.instructions, time.perf_counter()
    done = act()
    effort.seconds.append(time.perf_counter() - began)
    effort.instructions.append(Counting.instructions - before)
    return done


@pytest.fixture
def churn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Churn]:
    monkeypatch.setattr("trackside.metricstore.embedded.Database", Counting)
    made = Churn(tmp_path)
    yield made
    made.store.close()


@pytest.mark.timeout(1800)
def test_the_last_short_job_costs_what_the_first_one_did(churn: Churn) -> None:
    phases = [Phase() for _ in range(5)]
    for number in range(5 * PHASE):
        phase = phases[number // PHASE]
        jobs = churn.generation(number, phase.append)
        churn.ask(jobs[0], phase.ended)
        churn.ask(JobId(f"job-{number % PHASE:07d}"), phase.first)
        found = measured(phase.latest, lambda jobs=jobs: churn.store.latest(jobs, since_ms=T0))  # type: ignore[misc]
        assert len(found) == AT_ONCE
        phase.bytes_per_job = churn.size_bytes() / ((number + 1) * AT_ONCE)
    show(phases)
    begin, end = phases[1], phases[-1]  # in the first one the cache of pages is still empty
    for kind in ("append", "ended", "first", "latest"):
        before, after = (fmean(getattr(phase, kind).instructions) for phase in (begin, end))
        assert after <= 1.5 * before + 20, kind
    assert end.bytes_per_job <= 1.2 * begin.bytes_per_job


def show(phases: list[Phase]) -> None:
    """Print what each fifth of the run took."""
    print(f"\n{JOBS:,} jobs of {len(METRICS)} series")
    for number, phase in enumerate(phases, 1):
        efforts = {kind: getattr(phase, kind) for kind in ("append", "ended", "first", "latest")}
        words = [
            f"{kind} {median(one.seconds) * 1000:.2f} ms, {fmean(one.instructions):.0f} instr."
            for kind, one in efforts.items()
        ]
        print(f"fifth {number}: {'; '.join(words)}; {phase.bytes_per_job:,.0f} bytes per job")
