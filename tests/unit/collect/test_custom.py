"""What a job says of itself, as samples: levels, rates, labels, and limits."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, generate_latest

from trackside.collect.custom import LABELS_MAX, NAME_CHARS_MAX, SERIES_PER_TASK_MAX, Read, TaskSeries
from trackside.collect.exposition import NotText
from trackside.domain.exchange import TaskKey
from trackside.domain.job import JobId, TaskName
from trackside.domain.metric import Metric

KEY = TaskKey(JobId("job"), 2, TaskName("worker-1"))


@pytest.fixture
def series() -> TaskSeries:
    return TaskSeries(KEY)


def values(read: Read) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(sample.metric, sample.labels): sample.value for sample in read.samples}


def test_gauges_are_kept_as_they_are_with_their_labels_sorted(series: TaskSeries) -> None:
    text = b'# TYPE loss gauge\nloss{split="val",fold="2"} 0.5 123456\nplain -1\n'
    read = series.read_text(text, at_ms=7, boot_ms=1)
    assert values(read) == {
        ("custom.loss", (("fold", "2"), ("split", "val"))): 0.5,
        ("custom.plain", ()): -1.0,
    }
    assert {(s.job_id, s.task, s.at_ms, s.card) for s in read.samples} == {("job", "worker-1", 7, None)}
    assert read.problems == []


def test_a_counter_is_its_count_and_its_rate_also_after_it_began_anew(series: TaskSeries) -> None:
    rates = []
    for boot_ms, count in ((0, 100), (10_000, 300), (20_000, 30)):
        text = f'# TYPE steps_total counter\nsteps_total{{a="b"}} {count}\n'.encode()
        found = values(series.read_text(text, at_ms=1, boot_ms=boot_ms))
        assert found["custom.steps_total", (("a", "b"),)] == count
        rates.append(found.get(("custom.steps_per_second", (("a", "b"),))))
    assert rates == [None, 20.0, 3.0]


def test_of_histograms_and_summaries_sum_and_count_are_counters(series: TaskSeries) -> None:
    text = b"""# TYPE step_seconds histogram
step_seconds_bucket{le="1"} 1
step_seconds_bucket{le="+Inf"} 4
step_seconds_sum 8
step_seconds_count 4
# TYPE size summary
size{quantile="0.5"} 3
size_sum 12
size_count 3
"""
    series.read_text(text, at_ms=1, boot_ms=0)
    found = values(series.read_text(text.replace(b"_sum 8", b"_sum 18"), at_ms=1, boot_ms=1_000))
    assert found == {
        ("custom.step_seconds_sum", ()): 18.0,
        ("custom.step_seconds_sum_per_second", ()): 10.0,
        ("custom.step_seconds_count", ()): 4.0,
        ("custom.step_seconds_count_per_second", ()): 0.0,
        ("custom.size_sum", ()): 12.0,
        ("custom.size_sum_per_second", ()): 0.0,
        ("custom.size_count", ()): 3.0,
        ("custom.size_count_per_second", ()): 0.0,
    }


def test_what_the_usual_library_exposes_is_understood(series: TaskSeries) -> None:
    registry = CollectorRegistry()
    Counter("steps", "Steps so far", ["phase"], registry=registry).labels("warmup").inc(32)
    Gauge("loss", "Loss", registry=registry).set(0.25)
    Gauge("account_created", "When", registry=registry).set(7)
    Histogram("step_seconds", "Time of a step", registry=registry).observe(2)
    Summary("batch", "Size of a batch", registry=registry).observe(64)
    text = generate_latest(registry)
    assert b"steps_created" in text
    assert values(series.read_text(text, at_ms=1, boot_ms=0)) == {
        ("custom.steps_total", (("phase", "warmup"),)): 32.0,
        ("custom.loss", ()): 0.25,
        ("custom.account_created", ()): 7.0,
        ("custom.step_seconds_count", ()): 1.0,
        ("custom.step_seconds_sum", ()): 2.0,
        ("custom.batch_count", ()): 1.0,
        ("custom.batch_sum", ()): 64.0,
    }


def test_what_is_no_number_is_absent_and_nothing_is_taken_for_ours(series: TaskSeries) -> None:
    read = series.read_text(b"a NaN\nb +Inf\ncpu_percent 50\n", at_ms=1, boot_ms=1)
    assert values(read) == {("custom.cpu_percent", ()): 50.0}
    assert {sample.metric for sample in read.samples}.isdisjoint(Metric)


def test_a_task_has_so_many_series_and_not_one_more(series: TaskSeries) -> None:
    text = "".join(f'loss{{i="{i}"}} {i}\n' for i in range(SERIES_PER_TASK_MAX + 5)).encode()
    first = series.read_text(text, at_ms=1, boot_ms=1)
    assert len(first.samples) == SERIES_PER_TASK_MAX
    assert [problem.kind for problem in first.problems] == ["series"]
    # Which ones does not change, and other sources of the task have no room either.
    assert values(series.read_text(text, at_ms=1, boot_ms=2)) == values(first)
    assert series.read_number("other", 1.0, at_ms=1).samples == []


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("n" * (NAME_CHARS_MAX + 1) + " 1", "name"),
        ("a{" + ",".join(f'l{i}="x"' for i in range(LABELS_MAX + 1)) + "} 1", "labels"),
        ('a{l="' + "x" * 129 + '"} 1', "labels"),
        ("a{" + "l" * 65 + '="x"} 1', "labels"),
        ('a{l="x\\ny"} 1', "labels"),
    ],
    ids=["name", "count", "value", "label name", "unprintable"],
)
def test_what_is_too_long_is_left_out_and_said(series: TaskSeries, line: str, kind: str) -> None:
    read = series.read_text(f"{line}\nfine 2\n".encode(), at_ms=1, boot_ms=1)
    assert values(read) == {("custom.fine", ()): 2.0}
    assert [problem.kind for problem in read.problems] == [kind]


def test_nonsense_is_refused_whole(series: TaskSeries) -> None:
    with pytest.raises(NotText):
        series.read_text(b"fine 1\nloss is 0.5 now\n", at_ms=1, boot_ms=1)
