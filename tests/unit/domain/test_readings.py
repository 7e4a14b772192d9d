"""Samples told as rows are the same samples, and what is not well told is refused."""

import json
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.domain import readings as readings_module
from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import Readings, grids_of, readings_of, samples_of, without

keys = st.tuples(
    st.sampled_from(["a", "b"]).map(JobId),
    st.sampled_from(["worker-0", "worker-1", "chief-0"]),
    st.sampled_from(["cpu_percent", "loss", "gpu_percent"]),
    st.integers(0, 3),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([(), (("set", "é"),)]),
)


def made(values: dict[tuple[JobId, str, str, int, int | None, tuple[()]], float]) -> list[Sample]:
    return [
        Sample(job, task, metric, at, value, card, labels)
        for (job, task, metric, at, card, labels), value in values.items()
    ]


@given(st.dictionaries(keys, st.floats(-1e300, 1e300)).map(made))
def test_samples_come_back_as_they_were(samples: list[Sample]) -> None:
    found = [one for some in readings_of(samples) for one in samples_of(some)]
    assert sorted(found, key=repr) == sorted(samples, key=repr)


@given(st.dictionaries(keys, st.floats(-1e300, 1e300)).map(made))
def test_jobs_can_be_left_out(samples: list[Sample]) -> None:
    left = [without(some, frozenset({JobId("a")})) for some in readings_of(samples)]
    found = [one for some in left if some is not None for one in samples_of(some)]
    assert sorted(found, key=repr) == sorted((one for one in samples if one.job_id != "a"), key=repr)


def tick(at_ms: int, tasks: int = 4) -> list[Sample]:
    return [
        Sample(JobId("job"), f"worker-{task}", metric, at_ms, float(task))
        for task in range(tasks)
        for metric in ("cpu_percent", "memory_percent")
    ]


def test_the_same_series_are_the_same_bytes_and_stand_together() -> None:
    (first,), (second,) = readings_of(tick(1)), readings_of(tick(2))
    assert first.series == second.series
    (both,) = readings_of(tick(1) + tick(2))
    assert both == Readings(series=first.series, times_ms=(1, 2), values=first.values + second.values)
    (grid,) = grids_of(first.series)
    assert (len(grid.tasks), len(grid.series), first.count) == (4, 2, 8)


def test_what_is_no_measurement_is_left_out_and_of_two_values_the_larger_stays() -> None:
    values = (1.0, float("nan"), 3.0, float("inf"), 1.7e308, 2.0)
    (found,) = readings_of([Sample(JobId("job"), "w", "loss", 5, value) for value in values])
    assert [one.value for one in samples_of(found)] == [3.0]
    assert readings_of([Sample(JobId("job"), "w", "loss", 5, float("nan"))]) == ()


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"5",
        b"[5]",
        b"[[1, [], []]]",
        b'[["job", [1], []]]',
        b'[["job", ["w"], [["m", "0", []]]]]',
        b'[["job", ["w"], [["m", true, []]]]]',
        b'[["job", ["w"], [["m", 0, [["name"]]]]]]',
        b"[" * 100_000,
    ],
)
def test_series_that_are_none_are_refused(text: bytes) -> None:
    with pytest.raises(Invalid, match="series"):
        grids_of(zlib.compress(text))


def test_bytes_that_are_no_series_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    good = zlib.compress(json.dumps([["job", ["w"], [["m", None, []]]]]).encode())
    assert len(grids_of(good)) == 1
    for bad in (b"", b"nonsense", good[:-5]):
        with pytest.raises(Invalid, match="series"):
            grids_of(bad)
    monkeypatch.setattr(readings_module, "SERIES_TEXT_BYTES_MAX", 100)
    with pytest.raises(Invalid, match="too many"):
        grids_of(zlib.compress(b"[" + b" " * 1000 + b"]"))


@pytest.mark.parametrize("change", [{"values": bytes(8)}, {"times_ms": (1, 2)}, {"values": bytes(65)}])
def test_too_few_or_too_many_values_are_refused(change: dict[str, bytes]) -> None:
    (readings,) = readings_of(tick(1))
    with pytest.raises(Invalid, match="one value"):
        list(samples_of(replace(readings, **change)))
