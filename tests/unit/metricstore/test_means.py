"""Means are the same whatever was asked before, whatever is in blocks or in memory, and whenever it came."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trackside.domain.job import JobId
from trackside.domain.metric import MINUTE_MS, Sample
from trackside.metricstore import means
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.metricstore.layout import SPAN_MS
from trackside.ports import SeriesKey

JOB = JobId("job")
START = 118_000 * SPAN_MS
SPANS = 3
METRICS = ("cpu_percent", "loss")

moments = st.integers(0, SPANS * SPAN_MS // 15_000 - 1).map(lambda tick: START + tick * 15_000)
samples = st.builds(
    Sample,
    st.just(JOB),
    st.sampled_from([f"worker-{n}" for n in range(3)]),
    st.sampled_from(METRICS),
    moments,
    st.integers(-1000, 1000).map(lambda whole: whole / 8),
    st.sampled_from([None, None, 0]),
)
batches = st.lists(st.lists(samples, min_size=1, max_size=20), min_size=1, max_size=6)
acts = st.sampled_from(["", "compact", "ask"])
edges = st.integers(0, SPANS * SPAN_MS // 1000).map(lambda second: START + second * 1000)
steps = st.sampled_from([1, 5, 7, 60, 240, 1440]).map(lambda minutes: minutes * MINUTE_MS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedMetricStore]:
    made = EmbeddedMetricStore(tmp_path / "metrics.db", background=False)
    yield made
    made.close()


def counted(given_: Sequence[Sample], start_ms: int, end_ms: int, step_ms: int) -> dict[Any, Any]:
    """Return the means as a reader of the promise would count them."""
    values: dict[tuple[SeriesKey, int], float] = {}
    for one in given_:
        key = (SeriesKey(one.task, one.metric, one.card, one.labels), one.at_ms)
        values[key] = max(one.value, values.get(key, one.value))
    found: dict[Any, Any] = defaultdict(lambda: defaultdict(list))
    for (key, at_ms), value in values.items():
        if start_ms <= at_ms < end_ms:
            found[key][at_ms // step_ms * step_ms].append(value)
    return {key: {at: sum(v) / len(v) for at, v in one.items()} for key, one in found.items()}


def close_to(found: dict[Any, dict[int, float]]) -> dict[Any, Any]:
    return {key: pytest.approx(one, rel=1e-12, abs=1e-9) for key, one in found.items()}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    given_=batches, then=st.lists(acts, min_size=6, max_size=6), window=st.tuples(edges, edges), step=steps
)
def test_means_are_those_of_all_samples_whatever_happened_before(
    given_: list[list[Sample]],
    then: list[str],
    window: tuple[int, int],
    step: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    start, end = min(window), max(window)
    store = EmbeddedMetricStore(tmp_path_factory.mktemp("m") / "metrics.db", background=False)
    asked = {"task": None, "start_ms": start, "end_ms": end, "step_ms": step}
    told: list[Sample] = []
    for batch, act in zip(given_, then, strict=False):
        store.append(batch)
        told += batch
        if act == "compact":
            store.compact(everything=True)
        elif act == "ask":
            assert store.means(JOB, **asked) == close_to(counted(told, start, end, step))
    for _ in range(2):  # from what was decoded, too
        assert store.means(JOB, **asked) == close_to(counted(told, start, end, step))
    store.compact(everything=True)
    assert store.means(JOB, **asked) == close_to(counted(told, start, end, step))
    store.close()


def test_a_late_sample_shows_at_once_in_a_span_that_was_asked_for(store: EmbeddedMetricStore) -> None:
    window: dict[str, Any] = {"task": None, "start_ms": START, "end_ms": START + SPAN_MS, "step_ms": SPAN_MS}
    key = SeriesKey("worker-0", "loss")
    store.append([Sample(JOB, "worker-0", "loss", START + 15_000 * n, 1.0) for n in range(3)])
    store.compact(everything=True)
    assert store.means(JOB, **window) == {key: {START: 1.0}}
    store.append([Sample(JOB, "worker-0", "loss", START + 1, 5.0)])
    assert store.means(JOB, **window) == {key: {START: 2.0}}
    store.compact(everything=True)
    assert store.means(JOB, **window) == {key: {START: 2.0}}


def test_a_repeated_batch_is_not_counted_twice_beside_its_block(store: EmbeddedMetricStore) -> None:
    window: dict[str, Any] = {
        "task": None,
        "start_ms": START,
        "end_ms": START + SPAN_MS,
        "step_ms": MINUTE_MS,
    }
    tick = [Sample(JOB, f"worker-{n}", "loss", START, float(n)) for n in range(4)]
    store.append(tick)
    store.append([Sample(JOB, f"worker-{n}", "loss", START + 15_000, float(n)) for n in range(4)])
    store.compact(everything=True)
    before = store.means(JOB, **window)
    store.append(tick)
    assert store.means(JOB, **window) == before
    assert store.latest([JOB], since_ms=0)[JOB][SeriesKey("worker-3", "loss")] == (START + 15_000, 3.0)


def test_forgotten_samples_are_not_told_from_what_was_decoded(store: EmbeddedMetricStore) -> None:
    window: dict[str, Any] = {
        "task": None,
        "start_ms": START,
        "end_ms": START + SPAN_MS,
        "step_ms": MINUTE_MS,
    }
    store.append([Sample(JOB, "worker-0", "loss", START, 1.0)])
    store.compact(everything=True)
    assert store.means(JOB, **window)
    assert store.latest([JOB], since_ms=0)
    store.forget(JOB)
    assert store.means(JOB, **window) == {}
    assert store.latest([JOB], since_ms=0) == {}


def test_rollups_that_are_too_old_are_not_told_from_what_was_decoded(tmp_path: Path) -> None:
    now = START
    store = EmbeddedMetricStore(
        tmp_path / "metrics.db", raw_days=1, rollup_days=2, background=False, now_ms=lambda: now
    )
    window: dict[str, Any] = {
        "task": None,
        "start_ms": START,
        "end_ms": START + SPAN_MS,
        "step_ms": MINUTE_MS,
    }
    store.append([Sample(JOB, "worker-0", "loss", START, 1.0), Sample(JOB, "worker-0", "loss", now + 1, 2.0)])
    store.compact(everything=True)
    assert store.means(JOB, **window)
    now += 36 * 3_600_000
    store.expire()
    assert store.means(JOB, **window), "the rollup is still there"
    now += 36 * 3_600_000
    store.append([Sample(JOB, "worker-0", "loss", now, 3.0)])
    store.expire()
    assert store.means(JOB, **window) == {}
    store.close()


def test_columns_have_tasks_as_a_whole_only_and_say_which_steps(store: EmbeddedMetricStore) -> None:
    store.append([Sample(JOB, "worker-0", "loss", START + n * MINUTE_MS, float(n)) for n in range(3)])
    store.append([Sample(JOB, "worker-1", "loss", START + MINUTE_MS, 7.0)])
    store.append([Sample(JOB, "worker-1", "loss", START, 9.0, 0)])
    store.append([Sample(JOB, "worker-1", "other", START, 9.0)])
    found = store.means_columns(
        JOB, task=None, metrics=("loss",), start_ms=START, end_ms=START + SPAN_MS, step_ms=MINUTE_MS
    )
    assert [(key.task, key.card) for key in found.keys] == [("worker-0", None), ("worker-1", None)]
    assert found.bounds == [0, 3, 4]
    assert found.which is not None
    assert found.steps_ms[found.which].tolist() == [START + n * MINUTE_MS for n in (0, 1, 2, 1)]
    assert found.means.tolist() == [0.0, 1.0, 2.0, 7.0]


def test_many_series_are_answered_some_at_a_time(
    store: EmbeddedMetricStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([Sample(JOB, f"worker-{n}", "loss", START + n * MINUTE_MS, float(n)) for n in range(20)])
    window: dict[str, Any] = {"start_ms": START, "end_ms": START + SPAN_MS, "step_ms": MINUTE_MS}
    whole = store.means(JOB, task=None, **window)
    monkeypatch.setattr(means, "CELLS_MAX", 1000)  # four series at a time
    assert store.means(JOB, task=None, **window) == whole
    found = store.means_columns(JOB, task=None, metrics=("loss",), **window)
    assert found.means.tolist() == [float(n) for n in range(20)]
    assert found.which is not None
    assert np.array_equal(found.steps_ms[found.which], START + np.arange(20) * MINUTE_MS)
