"""Asks a Prometheus-compatible server in PromQL; knows how its windows must be put so that they are ours.

PromQL looks back: at time T a window of length d holds (T-d, T], and in Prometheus before version 3 also what
lies at T-d. Ours are [start, end) in whole milliseconds, so each is asked for at end-1 ms with d = end-start,
less one where the window's edge belongs to it; the server is asked which it is. Only windows are ever asked
for, never "the value at T": nothing old is carried forward, and a window without samples has no answer.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from trackside.domain.errors import Unavailable
from trackside.domain.exposition import metric_name
from trackside.metricstore.remote_http import Form, RemoteServer
from trackside.metricstore.remote_sender import quoted
from trackside.metricstore.remote_wire import key_of
from trackside.ports import SeriesKey

POINTS_MAX = 11_000  # of one series in one answer: where Prometheus refuses
FAR_MS = 1 << 42  # the year 2109; Go's durations end at 292 years
ERROR_CHARS_SHOWN = 300
AWAY_SECONDS = 5.0  # how long a server that did not answer is not asked again: who asks waits for it
EDGE_KNOWN_SECONDS = 300.0  # then the server is asked again: it may have been replaced
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Found = list[tuple[str, SeriesKey, list[tuple[int, float]]]]  # job, series, (ms, value)


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct):
    result: list[_Series] = []


class _Answer(msgspec.Struct):
    status: str
    data: _Data = msgspec.field(default_factory=_Data)
    error: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


class Queries:
    """What the store asks of the server."""

    def __init__(self, server: RemoteServer) -> None:
        self._server = server
        self._away_until = 0.0
        self._edge: tuple[int, float] | None = (
            None  # how much shorter windows are, and until when that counts
        )

    def samples(self, series: str, start_ms: int, end_ms: int) -> Found:
        """Return every sample of [start, end)."""
        form = [("query", f"{series}[{end_ms - start_ms}ms]"), ("time", _time(end_ms - 1))]
        found = _named(self._ask("/api/v1/query", form))
        # A server may take the edge of the window in: it is cut here once more.
        return [(job, key, [p for p in points if start_ms <= p[0] < end_ms]) for job, key, points in found]

    def over_window(self, function: str, series: str, start_ms: int, end_ms: int) -> dict[SeriesKey, float]:
        """Return a function like sum_over_time over [start, end), for every series with samples in it.

        The window is longer than a millisecond: a shorter one cannot be told to every server.
        """
        query = f"{function}({series}[{end_ms - start_ms - self._edge_ms()}ms])"
        found = self._ask("/api/v1/query", [("query", query), ("time", _time(end_ms - 1))])
        return {key: points[0][1] for _, key, points in _named(found)}

    def over_steps(
        self, function: str, series: str, *, start_ms: int, end_ms: int, step_ms: int
    ) -> dict[SeriesKey, dict[int, float]]:
        """Return a function over each step of [start, end), a whole number of steps, keyed by its start."""
        form = [
            ("query", f"{function}({series}[{step_ms - self._edge_ms()}ms])"),
            ("start", _time(start_ms + step_ms - 1)),
            ("end", _time(end_ms - 1)),
            ("step", f"{step_ms}ms"),
        ]
        found = self._ask("/api/v1/query_range", form)
        return {
            key: {at_ms + 1 - step_ms: value for at_ms, value in points} for _, key, points in _named(found)
        }

    def occupied(self, series: str, *, start_ms: int, end_ms: int, step_ms: int) -> Iterator[tuple[int, int]]:
        """Split [start, end) into parts that one answer can hold, leaving out those without samples."""
        steps = (end_ms - start_ms) // step_ms
        if steps <= POINTS_MAX:
            yield start_ms, end_ms
            return
        coarse_ms = step_ms * -(-steps // POINTS_MAX)
        whole_ms = start_ms + -(-(end_ms - start_ms) // coarse_ms) * coarse_ms
        found = self.over_steps(
            "count_over_time", series, start_ms=start_ms, end_ms=whole_ms, step_ms=coarse_ms
        )
        for at_ms in sorted({at_ms for points in found.values() for at_ms in points}):
            upto = min(at_ms + coarse_ms, end_ms)
            if at_ms < upto:
                yield from self.occupied(series, start_ms=at_ms, end_ms=upto, step_ms=step_ms)

    def _edge_ms(self) -> int:
        """Return 1 where a window holds its left edge, else 0: a window of one step has one point or two."""
        if self._edge is None or self._edge[1] < time.monotonic():
            form = [("query", "count_over_time(vector(0)[10s:10s])"), ("time", _time(0))]
            (found,) = self._ask("/api/v1/query", form)
            self._edge = (int(_points(found)[0][1]) - 1, time.monotonic() + EDGE_KNOWN_SECONDS)
        return self._edge[0]

    def _ask(self, path: str, form: Form) -> list[_Series]:
        # nocache: else VictoriaMetrics moves the times asked for to where its cache likes them.
        if time.monotonic() < self._away_until:
            raise Unavailable(f"the metric store {self._server.shown} did not answer a moment ago")
        try:
            status, content = self._server.post_form(path, [*form, ("nocache", "1")])
        except Unavailable:
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise
        try:
            answer = _decode(content)
        except msgspec.DecodeError:
            raise Unavailable(f"the metric store {self._server.shown} answered {status}, not JSON") from None
        if status != 200 or answer.status != "success":
            said = answer.error[:ERROR_CHARS_SHOWN]
            raise Unavailable(f"the metric store {self._server.shown} answered {status}: {said}")
        return answer.data.result


def select(job_ids: Sequence[str], *, task: str | None = None, metric: str | None = None) -> str:
    """Return the selector of some series; what was scraped from us has no label `metric` and is left out."""
    jobs = "|".join(_literal(job_id) for job_id in job_ids)
    matchers = [f"job_id={quoted(job_ids[0])}" if len(job_ids) == 1 else f"job_id=~{quoted(jobs)}"]
    if metric is None:
        matchers.append('metric!=""')
    else:
        matchers += [f"__name__={quoted(metric_name(metric))}", f"metric={quoted(metric)}"]
    if task is not None:
        matchers.append(f"task={quoted(task)}")
    return "{" + ",".join(matchers) + "}"


def _literal(text: str) -> str:
    """Return a regular expression, in RE2's words, for exactly this text."""
    return "".join(c if c.isalnum() or c in "-_" else f"\\x{{{ord(c):x}}}" for c in text)


def _named(found: list[_Series]) -> Found:
    return [(one.metric.get("job_id", ""), key_of(one.metric), _points(one)) for one in found]


def _points(series: _Series) -> list[tuple[int, float]]:
    pairs = series.values if series.value is None else [series.value]
    return [(round(at * 1000), float(value)) for at, value in pairs]


def _time(at_ms: int) -> str:
    """Return a time both servers read as exactly this millisecond.

    They go through floating point and cut off what is below one: two tenths more keep it on the right side.
    """
    return (_EPOCH + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "2Z"
