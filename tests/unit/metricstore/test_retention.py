"""What is old goes, its space comes back, and what is asked for is the same before and after."""

import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.metricstore.counting import Counting
from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import readings_of
from trackside.metricstore import embedded, names
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.metricstore.layout import SPAN_MS
from trackside.ports import SeriesKey

JOB = JobId("job")
KEY = SeriesKey("worker-0", "cpu_percent")
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
T0 = 1_790_000_000_000 // SPAN_MS * SPAN_MS


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_ms = T0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.db"


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "Database", Counting)


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[EmbeddedMetricStore]:
    made = EmbeddedMetricStore(path, raw_days=1, rollup_days=7, now_ms=clock, background=False)
    yield made
    made.close()


def sample(at_ms: int, value: float, *, job: JobId = JOB, task: str = "worker-0") -> Sample:
    return Sample(job, task, "cpu_percent", at_ms, value)


def day(job: JobId = JOB) -> list[Sample]:
    chance = random.Random(3)
    return [
        sample(T0 + at, round(chance.uniform(0, 100), 2), job=job)
        for at in range(0, DAY_MS, 5 * MINUTE_MS // 3)
    ]


def asked(store: EmbeddedMetricStore, step_ms: int, job: JobId = JOB, **window: Any) -> dict[int, float]:
    window = {"start_ms": 0, "end_ms": T0 + 400 * DAY_MS} | window
    return store.means(job, task=None, step_ms=step_ms, **window).get(KEY, {})


def age(store: EmbeddedMetricStore, clock: Clock, days: float) -> None:
    clock.now_ms += int(days * DAY_MS)
    store.compact(everything=True)
    store.expire()


@pytest.mark.parametrize("step_ms", [MINUTE_MS, 7 * MINUTE_MS, HOUR_MS, DAY_MS, 9 * DAY_MS])
def test_coarse_steps_answer_the_same_without_the_raw_samples(
    store: EmbeddedMetricStore, clock: Clock, step_ms: int
) -> None:
    store.append(day())
    before = asked(store, step_ms)
    window = {"start_ms": 0, "end_ms": T0 + 9 * DAY_MS, "step_ms": step_ms}
    extremes = store.extremes(JOB, task=None, **window)[KEY]
    age(store, clock, 3)
    assert asked(store, 1_000) == {}  # the raw samples are gone
    assert asked(store, step_ms) == pytest.approx(before, rel=1e-12)
    after = store.extremes(JOB, task=None, **window)[KEY]
    assert after.keys() == extremes.keys()
    for at_ms, found in after.items():
        assert (found.low, found.high, found.samples) == (
            extremes[at_ms].low,
            extremes[at_ms].high,
            extremes[at_ms].samples,
        )


def test_an_hour_at_the_edge_of_a_minute_is_exact_while_there_are_raw_samples(
    store: EmbeddedMetricStore,
) -> None:
    store.append([sample(T0, 1), sample(T0 + 30_000, 3), sample(T0 + 90_000, 8)])
    store.compact(everything=True)
    assert asked(store, MINUTE_MS, start_ms=T0 + 1) == {T0: 3.0, T0 + MINUTE_MS: 8.0}
    assert asked(store, MINUTE_MS, end_ms=T0 + 90_000) == {T0: 2.0}


def test_rollups_go_when_their_time_is_over_and_their_job_with_them(
    store: EmbeddedMetricStore, clock: Clock, path: Path
) -> None:
    store.append(day())
    age(store, clock, 3)
    assert asked(store, HOUR_MS)
    age(store, clock, 8)
    assert asked(store, HOUR_MS) == {}
    assert counts(path) == {"job": 0, "series_group": 0, "raw": 0, "rollup": 0}


def test_a_sample_that_is_older_than_what_is_kept_is_dropped(
    store: EmbeddedMetricStore, clock: Clock
) -> None:
    store.append(day())
    before = asked(store, HOUR_MS)
    age(store, clock, 3)
    store.append([sample(T0 + 1, 1e6)])
    assert store.dropped == 1
    assert asked(store, HOUR_MS) == pytest.approx(before)


def test_a_forgotten_job_leaves_no_trace_and_gives_its_space_back(
    store: EmbeddedMetricStore, path: Path
) -> None:
    for number in range(20):
        store.append(day(JobId(f"job-{number}")))
    store.compact(everything=True)
    store.expire()
    pages = page_count(path)
    for number in range(19):
        store.forget(JobId(f"job-{number}"))
    assert asked(store, HOUR_MS, job=JobId("job-3")) == {}
    store.append([sample(T0, 5, job=JobId("job-3"))])  # one of that name comes again
    store.expire()
    assert asked(store, HOUR_MS, job=JobId("job-3")) == {T0: 5.0}
    assert len(asked(store, HOUR_MS, job=JobId("job-19"))) == 24
    assert counts(path)["job"] == 2
    assert page_count(path) < pages / 4


@pytest.mark.usefixtures("counting")
def test_thirty_days_of_short_jobs_level_off(store: EmbeddedMetricStore, clock: Clock, path: Path) -> None:
    """Forty jobs a day, each with series of its own: after a week nothing grows, nor takes more work."""
    chance = random.Random(5)
    sizes: list[dict[str, int]] = []
    for number in range(30):
        for job in range(40):
            at_ms = clock.now_ms + chance.randrange(DAY_MS)
            store.append(
                [
                    sample(
                        at_ms + tick * 5_000, chance.randint(0, 100), job=JobId(f"{number}-{job}"), task=task
                    )
                    for tick in range(12)
                    for task in ("worker-0", "worker-1")
                ]
            )
        age(store, clock, 1)
        sizes.append({**counts(path), "pages": page_count(path), **efforts(store, clock, number)})
    settled, last = sizes[12], sizes[-1]
    for what, count in last.items():
        assert count <= settled[what] * 1.15 + 4, what
    assert last["job"] <= 8.5 * 40
    newest = store.means(
        JobId("29-0"), task=None, start_ms=0, end_ms=clock.now_ms + DAY_MS, step_ms=MINUTE_MS
    )
    assert len(newest) == 2


@pytest.mark.parametrize("in_rows", [False, True])
def test_memory_stays_bounded_when_jobs_come_and_go(
    store: EmbeddedMetricStore, monkeypatch: pytest.MonkeyPatch, *, in_rows: bool
) -> None:
    monkeypatch.setattr(names, "SERIES_CACHED_MAX", 50)
    monkeypatch.setattr(embedded, "HEAD_SAMPLES_MAX", 500)
    for number in range(400):
        job = JobId(f"job-{number}")
        some = [sample(T0 + number, number, job=job, task=f"worker-{task}") for task in range(3)]
        if in_rows:
            store.append_readings(readings_of(some))
        else:
            store.append(some)
    assert len(store._writing._intake._names._ids) <= 53
    assert len(store._head) <= 503
    assert asked(store, MINUTE_MS, job=JobId("job-7")) == {T0: 7.0}


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_lateness_of_hours_with_compaction_in_between_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    times = data.draw(st.lists(st.integers(T0, T0 + 2 * SPAN_MS), unique=True, min_size=1, max_size=30))
    samples = [sample(at_ms, at_ms % 997) for at_ms in times]
    order = data.draw(st.permutations(samples + samples[: len(samples) // 2]))
    folder = tmp_path_factory.mktemp("store")
    late = EmbeddedMetricStore(folder / "late.db", background=False)
    for one in order:
        late.append([one])
        if data.draw(st.booleans()):
            late.compact(everything=True)
    plain = EmbeddedMetricStore(folder / "sorted.db", background=False)
    plain.append(sorted(samples, key=lambda one: one.at_ms))
    start = data.draw(st.integers(T0 - 1, T0 + 2 * SPAN_MS))
    for step_ms in (7_000, MINUTE_MS, 5 * MINUTE_MS, 3 * HOUR_MS):
        window = {"start_ms": start, "end_ms": start + SPAN_MS, "step_ms": step_ms}
        expected = plain.means(JOB, task=None, **window)
        found = late.means(JOB, task=None, **window)
        assert found.keys() == expected.keys()
        for key, means in expected.items():
            assert found[key] == pytest.approx(means, rel=1e-12)
    assert late.latest([JOB], since_ms=0) == plain.latest([JOB], since_ms=0)
    late.close()
    plain.close()


def test_a_reader_sees_the_same_while_samples_move_into_blocks(store: EmbeddedMetricStore) -> None:
    for first in range(0, 240, 8):
        store.append([sample(T0 + minute * MINUTE_MS, minute) for minute in range(first, first + 8)])
    expected = {T0 + minute * MINUTE_MS: float(minute) for minute in range(240)}
    wrong: list[Any] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            found = asked(store, MINUTE_MS)
            if found != expected:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(10):
        store.compact(everything=True)
        store.append([sample(T0, 0)])  # again, so that there is something to compact
        store.expire()
    over.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def efforts(store: EmbeddedMetricStore, clock: Clock, day: int) -> dict[str, int]:
    """Return the instructions that questions take: the day's first job, and its jobs' newest values."""
    jobs = [JobId(f"{day}-{job}") for job in range(40)]
    window = {"start_ms": clock.now_ms - DAY_MS, "end_ms": clock.now_ms + DAY_MS, "step_ms": MINUTE_MS}
    before = Counting.instructions
    assert len(store.means(jobs[0], task=None, **window)) == 2
    between = Counting.instructions
    assert len(store.latest(jobs, since_ms=0)) == 40
    return {"question": between - before, "latest": Counting.instructions - between}


def counts(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    tables = ("job", "series_group", "raw", "rollup")
    found = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
    connection.close()
    return found


def page_count(path: Path) -> int:
    connection = sqlite3.connect(path)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.close()
    return int(pages)
