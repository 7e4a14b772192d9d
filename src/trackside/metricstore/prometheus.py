"""Keeps samples in a Prometheus-compatible server: remote write through a queue on disk, reads in PromQL.

Answers as the embedded store does. What was appended lately is remembered and put together with what the
server says, because it shows new samples only after a while (VictoriaMetrics: some seconds).
docs/prometheus.md says what a server must be told so that late and repeated samples are taken.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.domain.metric import MINUTE_MS, Sample
from trackside.domain.readings import Readings, samples_of
from trackside.metricstore.prometheus_query import FAR_MS, Queries, select
from trackside.metricstore.remote_checks import acceptable
from trackside.metricstore.remote_http import RemoteServer
from trackside.metricstore.remote_queue import DiskQueue
from trackside.metricstore.remote_recent import Newest, Points, Recent
from trackside.metricstore.remote_sender import Sender
from trackside.ports import SeriesKey

log = logging.getLogger(__name__)

QUEUE_BYTES_MAX = 256 * 1024 * 1024
SHIP_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = 10.0
VISIBLE_SECONDS = 30.0  # after this an accepted sample can be read: VictoriaMetrics indexes new series in ten
HIDDEN_JOBS_MAX = 100_000
FIRST_MS = 86_400_000  # VictoriaMetrics finds nothing at all in a window that begins with the epoch
JOBS_PER_QUERY_MAX = 100


class PrometheusMetricStore:
    """A MetricStore on a server that takes remote write and answers PromQL."""

    remote = True

    def __init__(
        self,
        url: str,
        queue_path: Path,
        *,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        visible_seconds: float = VISIBLE_SECONDS,
        timeout_seconds: float = ANSWER_SECONDS_MAX,
    ) -> None:
        self._asked = RemoteServer(url, timeout_seconds=timeout_seconds)
        self._server = RemoteServer(url, timeout_seconds=SHIP_SECONDS_MAX)
        self._queries = Queries(self._asked)
        self._queue = DiskQueue(queue_path, bytes_max=queue_bytes_max)
        self._recent = Recent(visible_seconds=visible_seconds)
        self._lock = threading.Lock()
        self._hidden: dict[JobId, None] = dict.fromkeys(map(JobId, self._queue.to_forget()))
        self._unacceptable = 0
        # Begun at the clock, so that a number seen before a restart does not come back with other data.
        self._revision = time.time_ns() // 1_000_000
        self._revisions: dict[JobId, int] = {}
        self._sender = Sender(
            self._queue,
            self._server,
            visible_seconds=visible_seconds,
            shipped=self._recent.shipped,
            ticked=self._tick,
        )
        self._sender.start()

    @property
    def dropped(self) -> int:
        """Return how many samples were lost: no measurements, refused over there, or too many to queue."""
        return self._unacceptable + self._sender.refused + self._queue.dropped

    @property
    def queued_bytes(self) -> int:
        """Return how much waits to be shipped."""
        return self._queue.bytes

    def append(self, samples: Sequence[Sample]) -> None:
        """Keep samples; they are durable on return. What is no measurement is dropped and counted."""
        good = [sample for sample in samples if acceptable(sample)]
        with self._lock:
            if len(good) < len(samples):
                self._unacceptable += len(samples) - len(good)
                log.warning("%d of %d samples were no measurements", len(samples) - len(good), len(samples))
            if not good:
                return
            batch = self._recent.add(good)
            try:
                if batch.fresh:
                    batch.number = self._queue.push(batch.fresh)
            except BaseException:
                self._recent.take_back(batch)
                raise
            for job_id in {sample.job_id for sample in good}:
                self._touch(job_id)
        self._sender.wake()

    def append_readings(self, readings: Sequence[Readings]) -> None:
        """Keep samples that come as rows; they are durable on return."""
        self.append([sample for some in readings for sample in samples_of(some)])

    def means(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, dict[int, float]]:
        """Return, per series, the mean of each step [t, t+step) that has samples, keyed by t.

        Steps are whole multiples of `step_ms` since the epoch; one that is only partly in the window has
        the samples that are.
        """
        if step_ms <= 0:
            raise Invalid(f"a step must be positive, not {step_ms} ms")
        start, end, step = max(_clamped(start_ms), FIRST_MS), _clamped(end_ms), min(step_ms, FAR_MS)
        if start >= end:
            return {}
        # Held ones first: what is let go meanwhile can be read remotely by then.
        held = self._recent.held(job_id, task=task, metric=metric, start_ms=start, end_ms=end)
        reading = _Reading(self._queries, select([job_id], task=task, metric=metric), step)
        if job_id in self._hidden:
            reading.add_points(held, {})
        elif step < MINUTE_MS:
            # As many steps as samples: averaging over there saves nothing.
            reading.add_samples(start, end, held)
        elif held:
            first = min(min(points) for points in held.values())
            last = max(max(points) for points in held.values())
            reading.add_means(start, first)
            reading.add_samples(first, last + 1, held)
            reading.add_means(last + 1, end)
        else:
            reading.add_means(start, end)
        return reading.means()

    def latest(
        self, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        """Return the newest sample (time, value) of every series that has one since then."""
        since = _clamped(since_ms)
        known = {job_id: self._recent.newest(job_id, since) for job_id in job_ids}
        unknown = [job_id for job_id, newest in known.items() if newest is None]
        for first in range(0, len(unknown), JOBS_PER_QUERY_MAX):
            part = unknown[first : first + JOBS_PER_QUERY_MAX]
            self._learn(part, since)
            known |= {job_id: self._recent.newest(job_id, since) for job_id in part}
        return {job_id: newest for job_id, newest in known.items() if newest}

    def revision(self, job_id: JobId) -> int:
        """Return a number that changes whenever samples of the job arrive."""
        return self._revisions.get(job_id, 0)

    def forget(self, job_id: JobId) -> None:
        """Drop all samples of a job: hidden at once, deleted over there as soon as that can be done.

        Hidden they stay, because a server may say that it deleted and not have (Prometheus 2: late samples).
        A job's id is never issued again.
        """
        with self._lock:
            self._queue.forget(job_id)
            self._recent.forget(job_id)
            self._hidden[job_id] = None
            if len(self._hidden) > HIDDEN_JOBS_MAX:
                del self._hidden[next(iter(self._hidden))]
            self._touch(job_id)
        self._sender.wake()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything appended has arrived; say whether it has."""
        return self._sender.flush(timeout_seconds)

    def close(self) -> None:
        """Stop shipping; what waits is shipped when the store is opened again."""
        self._sender.stop()
        self._queue.close()
        self._server.close()
        self._asked.close()

    def _learn(self, job_ids: Sequence[JobId], since_ms: int) -> None:
        """Read the newest samples of jobs this process does not know, after a restart for example."""
        newest: dict[str, Newest] = defaultdict(dict)
        visible = [job_id for job_id in job_ids if job_id not in self._hidden]
        if visible:
            for job_id, key, points in self._queries.samples(select(visible), since_ms, FAR_MS):
                if points:
                    newest[job_id][key] = max(points)
        for job_id in job_ids:
            self._recent.learn(job_id, newest.get(job_id, {}), since_ms)

    def _touch(self, job_id: JobId) -> None:
        self._revision += 1
        self._revisions[job_id] = self._revision

    def _tick(self) -> None:
        """Let go of what can be read remotely; answers may differ in the last bits from then on."""
        with self._lock:
            for job_id in self._recent.let_go():
                self._touch(job_id)


class _Reading:
    """Sums and counts per series and step, put together from several answers."""

    def __init__(self, queries: Queries, series: str, step_ms: int) -> None:
        self._queries = queries
        self._series = series
        self._step_ms = step_ms
        self._sums: dict[SeriesKey, dict[int, tuple[float, float]]] = defaultdict(dict)

    def means(self) -> dict[SeriesKey, dict[int, float]]:
        """Return the mean of every step."""
        return {
            key: {at_ms: total / count for at_ms, (total, count) in steps.items()}
            for key, steps in self._sums.items()
        }

    def add_samples(self, start_ms: int, end_ms: int, held: dict[SeriesKey, Points]) -> None:
        """Take the single samples of [start, end), those that are held too."""
        found = self._queries.samples(self._series, start_ms, end_ms)
        self.add_points(held, {key: dict(points) for _, key, points in found})

    def add_points(self, held: dict[SeriesKey, Points], found: dict[SeriesKey, Points]) -> None:
        """Take samples, each once."""
        for key in held.keys() | found.keys():
            points = found.get(key, {}) | held.get(key, {})
            for at_ms in sorted(points):
                self._add(key, at_ms, points[at_ms], 1)

    def add_means(self, start_ms: int, end_ms: int) -> None:
        """Take [start, end), averaged over there: its whole steps as such, its edges as sums and counts."""
        first, last = -(-start_ms // self._step_ms) * self._step_ms, end_ms // self._step_ms * self._step_ms
        if first > last:  # within one step
            self._add_edge(start_ms, end_ms)
            return
        self._add_edge(start_ms, first)
        for lower, upper in self._queries.occupied(
            self._series, start_ms=first, end_ms=last, step_ms=self._step_ms
        ):
            self._add_steps(lower, upper)
        self._add_edge(last, end_ms)

    def _add_steps(self, start_ms: int, end_ms: int) -> None:
        if start_ms >= end_ms:
            return
        found = self._queries.over_steps(
            "avg_over_time", self._series, start_ms=start_ms, end_ms=end_ms, step_ms=self._step_ms
        )
        for key, means in found.items():
            for at_ms, mean in means.items():
                self._add(key, at_ms, mean, 1)

    def _add_edge(self, start_ms: int, end_ms: int) -> None:
        if start_ms >= end_ms:
            return
        if end_ms - start_ms == 1:
            self.add_samples(start_ms, end_ms, {})
            return
        counts = self._queries.over_window("count_over_time", self._series, start_ms, end_ms)
        sums = self._queries.over_window("sum_over_time", self._series, start_ms, end_ms) if counts else {}
        for key in counts.keys() & sums.keys():
            self._add(key, start_ms, sums[key], counts[key])

    def _add(self, key: SeriesKey, at_ms: int, total: float, count: float) -> None:
        step = at_ms // self._step_ms * self._step_ms
        before = self._sums[key].get(step, (0.0, 0.0))
        self._sums[key][step] = (before[0] + total, before[1] + count)


def _clamped(at_ms: int) -> int:
    return min(max(at_ms, 0), FAR_MS)
