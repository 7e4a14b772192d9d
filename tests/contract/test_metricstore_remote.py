"""A Prometheus-compatible store answers as the embedded one does: the same suite, on real servers."""

import inspect
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract import test_metricstore as suite
from tests.servers.prometheus import PrometheusServer
from tests.servers.victoriametrics import VictoriaMetricsServer
from trackside.domain.errors import Unavailable
from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import Readings, samples_of
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.metricstore.prometheus import PrometheusMetricStore
from trackside.ports import MetricStore, SeriesKey

T0 = suite.T0
Server = VictoriaMetricsServer | PrometheusServer
SERVERS: dict[str, Callable[[], Server]] = {
    "victoriametrics": VictoriaMetricsServer,
    "prometheus": PrometheusServer,
}
SECONDS_MAX = 60.0


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server of each kind; tests have jobs of their own on it."""
    made = SERVERS[request.param]()
    yield made
    made.remove()


class OwnJobs:
    """A store whose jobs have other names inside, so that tests that share a server do not meet."""

    def __init__(self, inner: PrometheusMetricStore) -> None:
        self.inner = inner
        self._suffix = uuid.uuid4().hex

    def append(self, samples: Sequence[Sample]) -> None:
        self.inner.append(
            [
                Sample(
                    self._name(one.job_id), one.task, one.metric, one.at_ms, one.value, one.card, one.labels
                )
                for one in samples
            ]
        )

    def append_readings(self, readings: Sequence[Readings]) -> None:
        self.append([sample for some in readings for sample in samples_of(some)])

    def means(self, job_id: JobId, **window: Any) -> dict[SeriesKey, dict[int, float]]:
        return self.inner.means(self._name(job_id), **window)

    def latest(
        self, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        outside = {self._name(job_id): job_id for job_id in job_ids}
        found = self.inner.latest(list(outside), since_ms=since_ms)
        return {outside[job_id]: newest for job_id, newest in found.items()}

    def revision(self, job_id: JobId) -> int:
        return self.inner.revision(self._name(job_id))

    def forget(self, job_id: JobId) -> None:
        self.inner.forget(self._name(job_id))

    def _name(self, job_id: JobId) -> JobId:
        return JobId(f"{job_id}-{self._suffix}")


@pytest.fixture
def remote(server: Server, tmp_path: Path) -> Iterator[PrometheusMetricStore]:
    """A store as a server has it."""
    made = PrometheusMetricStore(server.url, tmp_path / "queue.db")
    yield made
    made.close()


@pytest.fixture
def store(remote: PrometheusMetricStore) -> MetricStore:
    """What the suite for all stores is run on."""
    return OwnJobs(remote)


def _suite() -> dict[str, Any]:
    """Return the tests of the suite that ask for nothing but a store."""
    return {
        name: test
        for name, test in vars(suite).items()
        if name.startswith("test_") and "store" in inspect.signature(test).parameters
    }


globals().update(_suite())


def test_the_suite_is_here() -> None:
    assert len(_suite()) >= 10


STEPS = st.sampled_from([1_000, 7_001, 60_000, suite.DAY_MS])
MANY = settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))
FEW = settings(MANY, max_examples=15)


@MANY
@given(delivery=suite.deliveries(), step_ms=STEPS)
def test_order_repetition_and_lateness_change_nothing(
    remote: PrometheusMetricStore, delivery: tuple[list[Sample], list[list[Sample]]], step_ms: int
) -> None:
    samples, batches = delivery
    own = OwnJobs(remote)  # other names for each example: a server keeps what it was told
    for batch in batches:
        own.append(batch)
    suite.check_means(suite.all_means(own, step_ms=step_ms), samples, step_ms)


@FEW
@given(every=st.lists(st.tuples(suite.deliveries(), STEPS), min_size=4, max_size=4))
def test_order_repetition_and_lateness_change_nothing_over_there(
    server: Server,
    remote: PrometheusMetricStore,
    reading: PrometheusMetricStore,
    every: list[tuple[tuple[list[Sample], list[list[Sample]]], int]],
) -> None:
    stores = [OwnJobs(remote) for _ in every]
    for own, ((_, batches), _) in zip(stores, every, strict=True):
        for batch in batches:
            own.append(batch)
        own.inner = reading
    settle(server, remote)
    for own, ((samples, _), step_ms) in zip(stores, every, strict=True):
        series = len({(one.task, one.metric, one.card) for one in samples})
        eventually(lambda own=own, series=series: len(suite.all_means(own)) == series, "series are missing")
        suite.check_means(suite.all_means(own, step_ms=step_ms), samples, step_ms)


@pytest.fixture
def reading(server: Server, tmp_path: Path) -> Iterator[PrometheusMetricStore]:
    """A store that remembers nothing: all it answers comes from the server."""
    made = only_remote(server, tmp_path)
    yield made
    made.close()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedMetricStore]:
    """The store whose answers are to be met."""
    made = EmbeddedMetricStore(tmp_path / "metrics.db")
    yield made
    made.close()


def only_remote(server: Server, tmp_path: Path) -> PrometheusMetricStore:
    """Open a store that remembers nothing: all it answers comes from the server."""
    return PrometheusMetricStore(server.url, tmp_path / "empty.db")


def settle(server: Server, store: PrometheusMetricStore) -> None:
    """Wait until the server can be asked for all that was appended."""
    assert store.flush(SECONDS_MAX)
    if isinstance(server, VictoriaMetricsServer):
        server.force_flush()


def eventually(check: Callable[[], bool], what: str) -> None:
    """Wait for something a server does in its own time."""
    deadline = time.monotonic() + SECONDS_MAX
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def new_job() -> JobId:
    return JobId(str(uuid.uuid4()))


def measured(job: JobId, seconds: int, chance: random.Random) -> list[Sample]:
    """Return what two tasks with two cards would send: irregular, with holes."""
    samples = []
    for task in ("worker-0", "worker-1"):
        for metric, card in (("cpu_percent", None), ("gpu_percent", 0), ("gpu_percent", 1)):
            at_ms = T0 + chance.randrange(5_000)
            while at_ms < T0 + seconds * 1000:
                samples.append(Sample(job, task, metric, at_ms, chance.uniform(0, 100), card))
                at_ms += chance.choice([1, 4_999, 5_000, 5_001, 59_999, 60_000, 200_000])
    return samples


def same(found: dict[SeriesKey, dict[int, float]], expected: dict[SeriesKey, dict[int, float]]) -> None:
    """Check that two answers have the same series, steps and, to 12 digits, values."""
    assert found.keys() == expected.keys()
    for key, points in expected.items():
        assert found[key] == pytest.approx(points, rel=1e-12, abs=1e-9)


WINDOWS = [  # start and end relative to T0, step
    (0, 7_200_000, 60_000),
    (0, 7_200_000, 300_000),
    (1, 7_199_999, 60_000),
    (61_234, 3_333_333, 61_234),
    (59_999, 60_001, 60_000),
    (60_000, 120_000, 60_000),
    (-3_600_000, 10_800_000, 3_600_000),
    (0, 7_200_000, 86_400_000),
    (10, 20, 86_400_000),
    (0, 600_000, 1_000),
    (0, 300_000, 1),
    (7_000, 1_000_000, 7_001),
]


@pytest.mark.parametrize("held", [True, False], ids=["held", "remote"])
def test_every_window_and_step_has_the_embedded_stores_answers(
    held: bool,
    server: Server,
    remote: PrometheusMetricStore,
    embedded: EmbeddedMetricStore,
    tmp_path: Path,
) -> None:
    job, chance = new_job(), random.Random(4)
    samples = measured(job, 7_200, chance)
    chance.shuffle(samples)
    for first in range(0, len(samples), 50):
        batch = samples[first : first + 50] + chance.sample(samples[: first + 1], 1)  # one of them again
        remote.append(batch)
        embedded.append(batch)
    asked = remote
    if not held:
        settle(server, remote)
        asked = only_remote(server, tmp_path)
    try:
        for start, end, step_ms in WINDOWS:
            window = {"start_ms": T0 + start, "end_ms": T0 + end, "step_ms": step_ms}
            for task, metric in ((None, None), ("worker-1", None), (None, "gpu_percent")):
                expected = embedded.means(job, task=task, metric=metric, **window)
                same(asked.means(job, task=task, metric=metric, **window), expected)
        for since in (0, T0 + 7_000_000, T0 + 7_200_000):
            expected_newest = embedded.latest([job, new_job()], since_ms=since)
            found = asked.latest([job, new_job()], since_ms=since)
            assert found.keys() == expected_newest.keys()
            for key, (at_ms, value) in expected_newest.get(job, {}).items():
                assert found[job][key] == (at_ms, pytest.approx(value, rel=1e-12))
    finally:
        if asked is not remote:
            asked.close()


def test_boundaries_are_exact_to_the_millisecond(
    server: Server, remote: PrometheusMetricStore, tmp_path: Path
) -> None:
    job = new_job()
    edges = [at for minute in range(20) for at in (T0 + minute * 60_000 - 1, T0 + minute * 60_000)]
    remote.append([Sample(job, "worker-0", "cpu_percent", at, float(at % 60_000)) for at in edges])
    settle(server, remote)
    asked = only_remote(server, tmp_path)
    try:
        for step in (60_000, 61_001, 119_999):
            for start in (T0 - 1, T0, T0 + 1, T0 + 59_999, T0 + 60_000):
                (found,) = asked.means(
                    job, task=None, start_ms=start, end_ms=T0 + 1_140_000, step_ms=step
                ).values()
                expected: dict[int, list[float]] = {}
                for at in edges:
                    if start <= at < T0 + 1_140_000:
                        expected.setdefault(at // step * step, []).append(float(at % 60_000))
                assert found == {t: pytest.approx(sum(v) / len(v)) for t, v in expected.items()}
    finally:
        asked.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_nothing_is_made_up_between_samples_or_after_the_last(kind: str, tmp_path: Path) -> None:
    server = SERVERS[kind]()  # of its own: Prometheus takes minutes over a head that spans years
    job, now_ms = new_job(), int(time.time() * 1000) // 60_000 * 60_000
    store = PrometheusMetricStore(server.url, tmp_path / "queue.db")
    asked = only_remote(server, tmp_path)
    try:
        # Now, because servers treat the last minutes specially; two samples, three minutes apart.
        store.append([Sample(job, "w", "loss", at, 7.0) for at in (now_ms - 240_000, now_ms - 60_001)])
        settle(server, store)
        for step, steps in ((60_000, [-240_000, -120_000]), (10_000, [-240_000, -70_000])):
            window = {"start_ms": now_ms - 600_000, "end_ms": now_ms + 600_000, "step_ms": step}
            found = asked.means(job, task=None, **window)
            assert found == {SeriesKey("w", "loss"): {now_ms + at: 7.0 for at in steps}}
        assert asked.latest([job], since_ms=now_ms - 60_000) == {}
    finally:
        asked.close()
        store.close()
        server.remove()


@pytest.mark.parametrize("deduplicates", [True, False])
def test_a_victoriametrics_that_counts_twice_is_said(
    deduplicates: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = VictoriaMetricsServer(deduplicates=deduplicates)
    store = PrometheusMetricStore(server.url, tmp_path / "queue.db")
    try:
        store.append([Sample(new_job(), "w", "loss", T0, 1.0)])
        assert store.flush(SECONDS_MAX)
    finally:
        store.close()
        server.remove()
    assert ("-dedup.minScrapeInterval=1ms" in caplog.text) is not deduplicates


def test_samples_that_are_shipped_twice_count_once(server: Server, tmp_path: Path) -> None:
    job, chance = new_job(), random.Random(5)
    samples = measured(job, 600, chance)
    for number in range(3):  # as after a restart: none remembers what the one before has shipped
        chance.shuffle(samples)
        store = PrometheusMetricStore(server.url, tmp_path / f"queue-{number}.db")
        try:
            store.append(samples)
            settle(server, store)
            assert store.dropped == 0
        finally:
            store.close()
    asked, embedded = only_remote(server, tmp_path), EmbeddedMetricStore(tmp_path / "metrics.db")
    try:
        embedded.append(samples)
        for step in (60_000, 300_000, 5_000):
            window = {"start_ms": T0, "end_ms": T0 + 600_000, "step_ms": step}
            same(asked.means(job, task=None, **window), embedded.means(job, task=None, **window))
    finally:
        asked.close()
        embedded.close()


def test_names_and_labels_come_back_as_they_were(
    server: Server, remote: PrometheusMetricStore, tmp_path: Path
) -> None:
    job = new_job()
    keys = [
        SeriesKey("wörker-0", "loss/train"),
        SeriesKey("wörker-0", "loss train"),
        SeriesKey("worker-0", 'a"b\\c{}', 3),
        SeriesKey("worker-0", "loss", None, (("step", "1"),)),
        SeriesKey("worker-0", "loss", None, (("empty", ""), ("job_id", "x"), ("task", "y"), ("über", "ä"))),
        SeriesKey("worker-0", "loss", None, (("__name__", "n"), ("x_", "1\n2"))),
        SeriesKey("worker-0", "loss", 1, tuple((f"label_{n:02}", "v" * 256) for n in range(32))),
    ]
    remote.append(
        [
            Sample(job, key.task, key.metric, T0, float(n), key.card, key.labels)
            for n, key in enumerate(keys, 1)
        ]
    )
    settle(server, remote)
    asked = only_remote(server, tmp_path)
    try:
        window = {"start_ms": T0, "end_ms": T0 + 60_000, "step_ms": 60_000}
        assert asked.means(job, task=None, **window) == {key: {T0: float(n)} for n, key in enumerate(keys, 1)}
        (only,) = asked.means(job, task="wörker-0", metric="loss/train", **window).items()
        assert only == (keys[0], {T0: 1.0})
    finally:
        asked.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_forgotten_samples_are_deleted_over_there(kind: str, tmp_path: Path) -> None:
    server = SERVERS[kind]()  # of its own: Prometheus 2 does not delete samples that came late
    job, other = new_job(), new_job()
    store = PrometheusMetricStore(server.url, tmp_path / "queue.db", visible_seconds=0)
    asked = only_remote(server, tmp_path)
    try:
        store.append([Sample(each, "w", "loss", T0, 1.0) for each in (job, other)])
        settle(server, store)
        window = {"start_ms": T0, "end_ms": T0 + 1, "step_ms": 60_000}
        assert asked.means(job, task=None, **window) == {SeriesKey("w", "loss"): {T0: 1.0}}
        store.forget(job)
        eventually(lambda: asked.means(job, task=None, **window) == {}, "the samples are still there")
        assert asked.means(other, task=None, **window) == {SeriesKey("w", "loss"): {T0: 1.0}}
    finally:
        asked.close()
        store.close()
        server.remove()


def test_a_server_that_does_not_delete_leaves_a_forgotten_job_hidden(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = PrometheusServer(admin_api=False)
    store = PrometheusMetricStore(server.url, tmp_path / "queue.db", visible_seconds=0)
    try:
        job = new_job()
        store.append([Sample(job, "w", "loss", T0, 1.0)])
        assert store.flush(SECONDS_MAX)
        store.forget(job)
        eventually(lambda: "does not delete" in caplog.text, "no warning")
        assert store.means(job, task=None, start_ms=T0, end_ms=T0 + 1, step_ms=1) == {}
        assert store.latest([job], since_ms=0) == {}
    finally:
        store.close()
        server.remove()


def test_samples_too_old_for_the_server_do_not_take_others_with_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = PrometheusServer("storage: {tsdb: {out_of_order_time_window: 1h}}")
    store = PrometheusMetricStore(server.url, tmp_path / "queue.db", visible_seconds=0)
    try:
        job, hour = new_job(), 3_600_000
        store.append([Sample(job, "w", "loss", T0 + 24 * hour, 1.0)])
        assert store.flush(SECONDS_MAX)
        late = [Sample(job, "w", "loss", T0 + n * hour + 1, 2.0) for n in range(24)]
        store.append([*late, Sample(job, "w", "loss", T0 + 24 * hour + 1, 3.0)])
        assert store.flush(SECONDS_MAX)
        assert store.dropped == 23
        assert "refused 23 of 25 samples" in caplog.text
        asked = only_remote(server, tmp_path)
        try:
            (found,) = asked.means(job, task=None, start_ms=T0, end_ms=T0 + 25 * hour, step_ms=hour).values()
            assert sorted(found.values()) == [2.0, 2.0]  # the mean of 1 and 3, and the one within the hour
        finally:
            asked.close()
    finally:
        store.close()
        server.remove()


def test_an_outage_delays_samples_and_loses_none(server: Server, tmp_path: Path) -> None:
    job = new_job()
    store = PrometheusMetricStore(server.url, tmp_path / "queue.db", timeout_seconds=5)
    try:
        store.append([Sample(job, "w", "loss", T0, 1.0)])
        assert store.flush(SECONDS_MAX)
        server.stop()  # not killed: VictoriaMetrics has the last seconds in memory only, as its docs say
        with pytest.raises(Unavailable, match="does not answer"):
            store.means(job, task=None, start_ms=T0, end_ms=T0 + 1, step_ms=60_000)
        store.append([Sample(job, "w", "loss", T0 + second * 1000, 1.0) for second in range(1, 60)])
        assert not store.flush(0.5)
        assert store.queued_bytes
    finally:
        store.close()
    assert server.start()
    again = PrometheusMetricStore(server.url, tmp_path / "queue.db")
    try:
        settle(server, again)
        (found,) = again.means(job, task=None, start_ms=T0, end_ms=T0 + 60_000, step_ms=1_000).values()
        assert len(found) == 60
        assert again.dropped == 0
    finally:
        again.close()


WRITER = """
import sys
from pathlib import Path
from trackside.domain.metric import Sample
from trackside.domain.readings import Readings, samples_of
from trackside.metricstore.prometheus import PrometheusMetricStore
url, queue, job, first, t0 = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
store = PrometheusMetricStore(url, queue)
for batch in range(first, first + 100_000):
    store.append([Sample(job, "w", "loss", t0 + batch * 1000 + n, float(batch + n)) for n in range(5)])
    print(batch, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(server: Server, tmp_path: Path) -> None:
    job, first, chance = new_job(), 0, random.Random(7)
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, server.url, str(tmp_path / "queue.db"), job, str(first), str(T0)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(chance.randint(1, 40))]
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate()
        acknowledged += [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        first = acknowledged[-1] + 1
    store = PrometheusMetricStore(server.url, tmp_path / "queue.db")
    try:
        settle(server, store)
        (found,) = store.means(
            job, task=None, start_ms=T0, end_ms=T0 + (first + 9) * 1000, step_ms=1_000
        ).values()
    finally:
        store.close()
    assert set(range(first)) <= {(at_ms - T0) // 1000 for at_ms in found}
    assert all(mean == pytest.approx((at_ms - T0) // 1000 + 2) for at_ms, mean in found.items())
