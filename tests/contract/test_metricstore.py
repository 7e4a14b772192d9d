"""What every metric store keeps its word on; one suite for all of them."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import readings_of
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.ports import MetricStore, SeriesKey

JOB, OTHER = JobId("job-a"), JobId("job-b")
DAY_MS = 86_400_000
T0 = 1_700_000_040_000  # a whole minute


@contextmanager
def embedded(folder: Path) -> Iterator[MetricStore]:
    store = EmbeddedMetricStore(folder / "metrics.db")
    try:
        yield store
    finally:
        store.close()


class Compacting(EmbeddedMetricStore):
    """The embedded store, moving its samples into blocks whenever it can: every second append or so."""

    appended = 0

    def append(self, samples: Sequence[Sample]) -> None:
        self.take(samples)
        self.appended += 1
        if self.appended % 3:
            self.compact(everything=self.appended % 2 == 0)

    def take(self, samples: Sequence[Sample]) -> None:
        super().append(samples)


class InRows(Compacting):
    """The same, of samples that come as rows."""

    def take(self, samples: Sequence[Sample]) -> None:
        self.append_readings(readings_of(samples))


@contextmanager
def undamaged(kind: type[EmbeddedMetricStore], folder: Path) -> Iterator[MetricStore]:
    """Open a store that moves its samples when it is told to; every block must have been readable."""
    store = kind(folder / "metrics.db", background=False)
    try:
        yield store
        assert store.damaged == 0
    finally:
        store.close()


STORES: dict[str, Callable[[Path], AbstractContextManager[MetricStore]]] = {
    "embedded": embedded,
    "compacting": partial(undamaged, Compacting),
    "in_rows": partial(undamaged, InRows),
}


@pytest.fixture(params=STORES, ids=str)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetricStore]:
    with STORES[request.param](tmp_path) as made:
        yield made


def sample(
    at_ms: int,
    value: float,
    *,
    job: JobId = JOB,
    task: str = "worker-0",
    metric: str = "cpu_percent",
    card: int | None = None,
    labels: tuple[tuple[str, str], ...] = (),
) -> Sample:
    return Sample(job, task, metric, at_ms, value, card, labels)


def all_means(
    store: MetricStore, job: JobId = JOB, step_ms: int = 60_000
) -> dict[SeriesKey, dict[int, float]]:
    return store.means(job, task=None, start_ms=0, end_ms=T0 + 30 * DAY_MS, step_ms=step_ms)


def test_a_mean_is_of_the_samples_of_its_step(store: MetricStore) -> None:
    store.append([sample(T0, 1), sample(T0 + 59_999, 4), sample(T0 + 60_000, 10)])
    assert all_means(store) == {SeriesKey("worker-0", "cpu_percent"): {T0: 2.5, T0 + 60_000: 10.0}}


def test_steps_are_whole_multiples_since_the_epoch(store: MetricStore) -> None:
    store.append([sample(T0 + 1, 1)])
    assert list(all_means(store, step_ms=7_000).values()) == [{(T0 + 1) // 7_000 * 7_000: 1.0}]


def test_the_window_takes_its_start_and_leaves_its_end(store: MetricStore) -> None:
    store.append([sample(T0 + second * 1000, second) for second in range(10)])
    found = store.means(JOB, task=None, start_ms=T0 + 3_000, end_ms=T0 + 6_000, step_ms=1_000)
    assert list(found.values()) == [{T0 + 3_000: 3.0, T0 + 4_000: 4.0, T0 + 5_000: 5.0}]


@pytest.mark.parametrize(("start", "end"), [(0, 0), (T0 + DAY_MS, T0 + 2 * DAY_MS), (T0 + 5, T0), (-9, -1)])
def test_an_empty_window_has_no_series(store: MetricStore, start: int, end: int) -> None:
    store.append([sample(T0, 1)])
    assert store.means(JOB, task=None, start_ms=start, end_ms=end, step_ms=60_000) == {}


def test_a_job_or_task_without_samples_has_no_series(store: MetricStore) -> None:
    store.append([sample(T0, 1)])
    assert all_means(store, OTHER) == {}
    assert store.means(JOB, task="worker-9", start_ms=0, end_ms=T0 + 1, step_ms=1) == {}
    store.append([])
    assert all_means(store, OTHER) == {}


def test_a_step_must_be_positive(store: MetricStore) -> None:
    with pytest.raises(Invalid, match="step"):
        store.means(JOB, task=None, start_ms=0, end_ms=1, step_ms=0)


def test_numbers_beyond_any_clock_are_harmless(store: MetricStore) -> None:
    store.append([sample(T0, 1)])
    found = store.means(JOB, task=None, start_ms=-(10**30), end_ms=10**30, step_ms=10**30)
    assert list(found.values()) == [{0: 1.0}]


def test_one_task_can_be_asked_for(store: MetricStore) -> None:
    store.append([sample(T0, 1), sample(T0, 2, task="worker-1")])
    found = store.means(JOB, task="worker-1", start_ms=T0, end_ms=T0 + 1, step_ms=1_000)
    assert found == {SeriesKey("worker-1", "cpu_percent"): {T0: 2.0}}


def test_cards_are_series_of_their_own(store: MetricStore) -> None:
    store.append(
        [sample(T0, value, metric="gpu_percent", card=card) for card, value in ((None, 5), (0, 3), (1, 7))]
    )
    assert all_means(store) == {
        SeriesKey("worker-0", "gpu_percent", None): {T0: 5.0},
        SeriesKey("worker-0", "gpu_percent", 0): {T0: 3.0},
        SeriesKey("worker-0", "gpu_percent", 1): {T0: 7.0},
    }


def test_labels_tell_series_apart_and_are_kept(store: MetricStore) -> None:
    train, test = (("set", "train"),), (("phase", 'é "quoted"'), ("set", "test"))
    store.append(
        [
            sample(T0, value, metric="loss", labels=labels)
            for labels, value in (((), 1), (train, 2), (test, 3))
        ]
    )
    assert all_means(store) == {
        SeriesKey("worker-0", "loss"): {T0: 1.0},
        SeriesKey("worker-0", "loss", None, train): {T0: 2.0},
        SeriesKey("worker-0", "loss", None, test): {T0: 3.0},
    }


def test_one_metric_of_one_task_can_be_asked_for(store: MetricStore) -> None:
    store.append(
        [
            sample(T0, number, task=task, metric=metric)
            for number, (task, metric) in enumerate(
                (task, metric) for task in ("worker-0", "worker-1") for metric in ("cpu_percent", "loss")
            )
        ]
    )
    window = {"start_ms": T0, "end_ms": T0 + 1000, "step_ms": 1000}
    assert store.means(JOB, task="worker-1", metric="loss", **window) == {
        SeriesKey("worker-1", "loss"): {T0: 3.0}
    }
    assert store.means(JOB, task=None, metric="loss", **window).keys() == {
        SeriesKey("worker-0", "loss"),
        SeriesKey("worker-1", "loss"),
    }
    assert store.means(JOB, task="worker-1", metric="gpu_percent", **window) == {}


def test_the_newest_sample_is_told_in_whatever_order_they_came(store: MetricStore) -> None:
    store.append([sample(T0 + 5_000, 5), sample(T0 + 9_000, 9, task="worker-1")])
    store.append([sample(T0 + 2_000, 2)])
    store.append([sample(T0, 1, job=OTHER)])
    found = store.latest([JOB, OTHER, JobId("never-was")], since_ms=T0 + 1)
    assert found == {
        JOB: {
            SeriesKey("worker-0", "cpu_percent"): (T0 + 5_000, 5.0),
            SeriesKey("worker-1", "cpu_percent"): (T0 + 9_000, 9.0),
        }
    }
    assert store.latest([JOB], since_ms=T0 + 5_001)[JOB].keys() == {SeriesKey("worker-1", "cpu_percent")}
    assert store.latest([JOB], since_ms=T0 + 9_001) == {}


def test_the_same_sample_twice_changes_nothing(store: MetricStore) -> None:
    batch = [sample(T0, 1), sample(T0 + 1, 3)]
    store.append(batch + batch)
    store.append(batch)
    assert list(all_means(store).values()) == [{T0: 2.0}]


def test_a_revision_changes_with_the_jobs_samples_only(store: MetricStore) -> None:
    before, other = store.revision(JOB), store.revision(OTHER)
    assert store.revision(JOB) == before
    store.append([sample(T0, 1)])
    after = store.revision(JOB)
    assert after != before
    assert store.revision(OTHER) == other
    store.append([sample(T0 + 1, 1)])
    assert store.revision(JOB) not in (before, after)


def test_a_forgotten_job_is_gone_and_others_stay(store: MetricStore) -> None:
    store.append([sample(T0, 1), sample(T0, 9, job=OTHER)])
    before = store.revision(JOB)
    store.forget(JOB)
    assert all_means(store) == {}
    assert store.revision(JOB) != before
    assert list(all_means(store, OTHER).values()) == [{T0: 9.0}]
    store.forget(JobId("never-was"))
    store.append([sample(T0 + 1, 5)])
    assert list(all_means(store).values()) == [{T0: 5.0}]


@pytest.mark.parametrize(
    "bad",
    [
        sample(T0, float("nan")),
        sample(T0, float("inf")),
        sample(T0, 1.7e308),
        sample(-1, 1),
        sample(1 << 60, 1),
        sample(T0, 1, task="x" * 129),
        sample(T0, 1, metric=""),
        sample(T0, 1, metric="a\0b"),
        sample(T0, 1, task="\ud800"),
        sample(T0, 1, card=-1),
    ],
    ids=repr,
)
def test_what_is_no_measurement_is_dropped_and_the_rest_kept(store: MetricStore, bad: Sample) -> None:
    store.append([sample(T0, 1), bad, sample(T0 + 1, 3)])
    assert all_means(store) == {SeriesKey("worker-0", "cpu_percent"): {T0: 2.0}}
    store.append([bad])
    assert len(all_means(store)) == 1


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Sample], list[list[Sample]]]:
    """Draw samples, and batches that bring each of them at least once in any order."""
    keys = st.tuples(
        st.sampled_from(["worker-0", "worker-1"]),
        st.sampled_from(
            [("cpu_percent", None), ("gpu_percent", None), ("gpu_percent", 0), ("gpu_percent", 3)]
        ),
        st.integers(T0, T0 + 300_000),
    )
    values = st.floats(-1e9, 1e9)
    samples = [
        sample(at_ms, value, task=task, metric=metric, card=card)
        for (task, (metric, card), at_ms), value in draw(st.dictionaries(keys, values, max_size=40)).items()
    ]
    again = draw(st.lists(st.sampled_from(samples), max_size=20)) if samples else []
    order = draw(st.permutations(samples + again))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=5)))
    return samples, [list(order[a:b]) for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]


@pytest.mark.parametrize("kind", STORES)
@settings(deadline=None)  # a busy machine is no failure
@given(delivery=deliveries(), step_ms=st.sampled_from([1, 1_000, 7_001, 60_000, DAY_MS]))
def test_order_repetition_and_lateness_change_nothing(
    kind: str,
    tmp_path_factory: pytest.TempPathFactory,
    delivery: tuple[list[Sample], list[list[Sample]]],
    step_ms: int,
) -> None:
    samples, batches = delivery
    with STORES[kind](tmp_path_factory.mktemp("store")) as store:
        for batch in batches:
            store.append(batch)
        check_means(all_means(store, step_ms=step_ms), samples, step_ms)


def check_means(found: dict[SeriesKey, dict[int, float]], samples: Sequence[Sample], step_ms: int) -> None:
    """Check that an answer is the means of the samples, as if they had come once and in order."""
    expected: dict[SeriesKey, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in sorted(samples, key=lambda s: s.at_ms):
        expected[SeriesKey(one.task, one.metric, one.card)][one.at_ms // step_ms * step_ms].append(one.value)
    assert found.keys() == expected.keys()
    for series, steps in expected.items():
        assert found[series].keys() == steps.keys()
        for at_ms, values in steps.items():
            assert found[series][at_ms] == pytest.approx(fmean(values), rel=1e-12, abs=1e-6)


def test_readers_and_a_writer_do_not_wait_for_each_other_to_finish(store: MetricStore) -> None:
    failures: list[BaseException] = []
    enough = threading.Event()

    def read() -> None:
        try:
            while not enough.is_set():
                for steps in all_means(store).values():
                    # A batch is seen whole or not at all: two samples of equal weight per minute.
                    assert all(mean == 2.0 for mean in steps.values())
        except BaseException as failure:
            failures.append(failure)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for minute in range(60):
        at_ms = T0 + minute * 60_000
        store.append([sample(at_ms, 1), sample(at_ms + 1, 3)])
    enough.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert len(next(iter(all_means(store).values()))) == 60
