"""What is remembered until a remote store shows it."""

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.metricstore import remote_recent
from trackside.metricstore.remote_recent import Recent
from trackside.ports import SeriesKey

JOB, OTHER = JobId("j"), JobId("k")
KEY = SeriesKey("w", "loss")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def sample(at_ms: int, value: float = 1.0, job: JobId = JOB, task: str = "w") -> Sample:
    return Sample(job, task, "loss", at_ms, value)


def held(recent: Recent, job: JobId = JOB) -> dict[SeriesKey, dict[int, float]]:
    return recent.held(job, task=None, metric=None, start_ms=0, end_ms=1_000)


def test_samples_are_held_until_they_are_shipped_and_visible() -> None:
    clock = Clock()
    recent = Recent(visible_seconds=30, monotonic=clock)
    first, second = recent.add([sample(1)]), recent.add([sample(2)])
    first.number, second.number = 1, 2
    recent.shipped(1)
    clock.now += 31
    assert recent.let_go() == {JOB}
    assert held(recent) == {KEY: {2: 1.0}}, "the second still waits"
    recent.shipped(2)
    assert recent.let_go() == set()
    clock.now += 31
    recent.let_go()
    assert held(recent) == {}


def test_a_sample_that_is_held_already_is_not_fresh() -> None:
    recent = Recent(visible_seconds=30)
    assert recent.add([sample(1), sample(1), sample(2)]).fresh == [sample(1), sample(2)]
    assert recent.add([sample(2), sample(3)]).fresh == [sample(3)]


def test_a_batch_that_could_not_be_kept_is_fresh_again() -> None:
    recent = Recent(visible_seconds=30)
    recent.add([sample(1)])
    recent.learn(JOB, {}, 0)
    recent.take_back(recent.add([sample(2)]))
    assert held(recent) == {KEY: {1: 1.0}}
    assert recent.newest(JOB, 0) is None, "what is the newest must be asked for"
    assert recent.add([sample(2)]).fresh == [sample(2)]


def test_held_samples_are_chosen_by_window_task_and_metric() -> None:
    recent = Recent(visible_seconds=30)
    recent.add([sample(1), sample(5), sample(9), sample(5, task="v"), sample(5, job=OTHER)])
    assert recent.held(JOB, task="w", metric="loss", start_ms=1, end_ms=9) == {KEY: {1: 1.0, 5: 1.0}}
    assert recent.held(JOB, task=None, metric="other", start_ms=0, end_ms=99) == {}


def test_the_newest_is_known_only_once_it_was_learnt() -> None:
    recent = Recent(visible_seconds=30)
    recent.add([sample(5, 5.0)])
    assert recent.newest(JOB, 0) is None
    recent.learn(JOB, {KEY: (4, 4.0), SeriesKey("v", "loss"): (3, 3.0)}, since_ms=2)
    assert recent.newest(JOB, 2) == {KEY: (5, 5.0), SeriesKey("v", "loss"): (3, 3.0)}
    assert recent.newest(JOB, 4) == {KEY: (5, 5.0)}
    assert recent.newest(JOB, 1) is None, "of what was before nobody asked"
    recent.add([sample(4, 0.0), sample(6, 6.0)])
    assert recent.newest(JOB, 4) == {KEY: (6, 6.0)}


def test_memory_is_bounded() -> None:
    recent = Recent(visible_seconds=30)
    limit = remote_recent.HELD_SAMPLES_MAX
    for first in range(0, limit + 10_000, 5_000):
        recent.add([sample(at) for at in range(first, first + 5_000)])
    recent.let_go()
    assert (
        sum(map(len, recent.held(JOB, task=None, metric=None, start_ms=0, end_ms=1 << 40).values())) <= limit
    )
    for number in range(remote_recent.NEWEST_JOBS_MAX + 10):
        recent.learn(JobId(f"job-{number}"), {}, 0)
    assert recent.newest(JobId("job-0"), 0) is None
    assert recent.newest(JobId(f"job-{remote_recent.NEWEST_JOBS_MAX}"), 0) == {}


def test_a_forgotten_job_is_gone() -> None:
    recent = Recent(visible_seconds=0)
    batch = recent.add([sample(1)])
    recent.forget(JOB)
    assert held(recent) == {}
    batch.number = 1
    recent.shipped(1)
    recent.let_go()
    assert recent.add([sample(1)]).fresh == [sample(1)]
