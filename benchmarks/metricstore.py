"""Our metric store against VictoriaMetrics and Prometheus: the same samples, the same questions, one run.

All are fed over loopback HTTP, a request per tick: peers by remote write, ours by an agent's reports and
once more in process, by the call the server makes once a report is decoded. Peers are asked in PromQL, ours
through the HTTP API with the signature checked.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import metricstore_duckdb
from benchmarks import metricstore_ours as ours
from benchmarks.metricstore_peers import COMMANDS, Question, running_peer
from benchmarks.metricstore_workload import METRICS, TICK_MS, Workload, job_id
from benchmarks.tools import have, progress

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SPAN_MS = 4 * HOUR_MS
DAY_MS = 24 * HOUR_MS
ROUNDS = 17
WARM = 2  # rounds that are not counted
OURS = "trackside"


@dataclass(slots=True)
class Figures:
    """What was measured of one store."""

    samples_per_cpu_second: dict[str, float] = field(default_factory=dict)
    bytes_per_sample: dict[str, float] = field(default_factory=dict)
    latency_ms: dict[str, float] = field(default_factory=dict)


def run() -> None:
    """Measure every store on both workloads and print the figures and their ratios."""
    found = _stores()
    end_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    _many_jobs(found, end_ms)
    _one_large_job(found, end_ms)
    ingest(found)
    metricstore_duckdb.run(Workload(10, 8, 6 * HOUR_MS // TICK_MS, end_ms - 6 * HOUR_MS))
    _print(found)


def _stores() -> dict[str, Figures]:
    return {OURS: Figures()} | {name: Figures() for name in COMMANDS if have(name)}


def queries() -> None:
    """Measure questions and bytes only."""
    found = _stores()
    end_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    _many_jobs(found, end_ms)
    _one_large_job(found, end_ms)
    _print(found)


def ingest(found: dict[str, Figures] | None = None) -> None:
    """Measure what it costs every server to take samples over HTTP; alone it prints the figures."""
    alone = found is None
    found = found or _stores()
    end_ms = time.time_ns() // 1_000_000 // SPAN_MS * SPAN_MS  # so that all can be compacted
    day_ms = end_ms - DAY_MS
    small = Workload(10, 8, DAY_MS // TICK_MS, day_ms)
    every = Workload(1, 1024, 2 * HOUR_MS // TICK_MS, end_ms - 2 * HOUR_MS)
    one_metric = Workload(1, 1024, 23 * HOUR_MS // TICK_MS, day_ms, ("cpu_percent",))
    last_hour = Workload(1, 1024, HOUR_MS // TICK_MS, end_ms - HOUR_MS)
    whole = Workload(1, 1024, DAY_MS // TICK_MS, day_ms, ("cpu_percent",))
    fed = {
        "HTTP, 1,280 series, 24 h": (small, [small]),
        "HTTP, 16,384 series, 2 h": (every, [every]),
        "HTTP, 1,024 then 16,384 series": (whole, [one_metric, last_hour]),  # as for the questions
    }
    for title, (jobs, workloads) in fed.items():
        samples = sum(workload.samples for workload in workloads)
        for name, one in found.items():
            progress(f"{name}: {title}, {samples / 1e6:.1f} million samples")
            one.samples_per_cpu_second[title] = samples / _fed_over_http(name, jobs, workloads)
    if alone:
        _print(found)


def _fed_over_http(name: str, jobs: Workload, workloads: list[Workload]) -> float:
    if name != OURS:
        with running_peer(name) as peer:
            return peer.feed(*workloads)
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as folder:
        return ours.feed_http(Path(folder), jobs, *workloads)


def _many_jobs(found: dict[str, Figures], end_ms: int) -> None:
    """Measure 1,280 series for a day: ten jobs of eight tasks of sixteen metrics."""
    workload = Workload(10, 8, DAY_MS // TICK_MS, end_ms - DAY_MS)
    hour = Question(
        job=job_id(0),
        metrics=("cpu_percent",),
        start_ms=end_ms - HOUR_MS,
        end_ms=end_ms,
        step_ms=5 * MINUTE_MS,
    )
    tasks = [
        Question(
            job=job_id(number % 10),
            task=f"worker-{number // 10}",
            metrics=tuple(METRICS),
            start_ms=end_ms - DAY_MS,
            end_ms=end_ms,
            step_ms=MINUTE_MS,
        )
        for number in range(ROUNDS)  # another task each time: an answer that is kept is not measured
    ]
    questions = {
        "one job, one metric, 1 h at 5 m": [hour] * ROUNDS,
        "one task, all metrics, 24 h at 1 m": tasks,
    }
    _measure(found, "1,280 series, 24 h", [workload], questions, workload)


def _one_large_job(found: dict[str, Figures], end_ms: int) -> None:
    """Measure 16,384 series: 1,024 tasks, one metric for 23 hours and all sixteen in the last one."""
    first = Workload(1, 1024, 23 * HOUR_MS // TICK_MS, end_ms - DAY_MS, ("cpu_percent",))
    last = Workload(1, 1024, HOUR_MS // TICK_MS, end_ms - HOUR_MS)
    day = Question(
        job=job_id(0),
        metrics=("cpu_percent",),
        start_ms=end_ms - DAY_MS,
        end_ms=end_ms,
        step_ms=5 * MINUTE_MS,
    )
    newest = Question(
        job=job_id(0), metrics=("cpu_percent",), start_ms=end_ms - 5 * MINUTE_MS, end_ms=end_ms, step_ms=None
    )
    questions = {
        "1,024 tasks, one metric, 24 h at 5 m": [day] * ROUNDS,
        "newest value of 1,024 tasks": [newest] * ROUNDS,
    }
    whole = Workload(1, 1024, DAY_MS // TICK_MS, end_ms - DAY_MS, ("cpu_percent",))
    _measure(found, "16,384 series", [first, last], questions, whole)


def _measure(
    found: dict[str, Figures],
    title: str,
    workloads: list[Workload],
    questions: dict[str, list[Question]],
    jobs: Workload,
) -> None:
    samples = sum(workload.samples for workload in workloads)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="trackside-bench-")))
        progress(f"{OURS}: {title}, {samples / 1e6:.1f} million samples")
        own, file = found[OURS], folder / "fed.db"
        own.samples_per_cpu_second[title] = samples / ours.feed(file, *workloads)
        own.bytes_per_sample[title] = ours.disk_bytes(file) / samples
        own.bytes_per_sample[f"{title}, rollup only"] = ours.rollup_bytes(file, jobs.end_ms) / samples
        peers = {name: running.enter_context(running_peer(name)) for name in found if name != OURS}
        for name, peer in peers.items():
            progress(f"{name}: the same")
            found[name].samples_per_cpu_second[title] = samples / peer.feed(*workloads)
        server = running.enter_context(ours.running_server(folder, file, jobs))
        _ask(found, questions, {OURS: server.query, **{name: peer.query for name, peer in peers.items()}})
        for name, peer in peers.items():
            found[name].bytes_per_sample[title] = peer.disk_bytes() / samples


def _ask(
    found: dict[str, Figures],
    questions: dict[str, list[Question]],
    stores: dict[str, Callable[[Question], bytes]],
) -> None:
    """Ask all stores by turns, so that whatever else the machine does meets them alike."""
    for title, every in questions.items():
        spent: dict[str, list[float]] = {name: [] for name in stores}
        for question in every:
            for name, query in stores.items():
                before = time.perf_counter()
                query(question)
                spent[name].append(time.perf_counter() - before)
        for name, seconds in spent.items():
            found[name].latency_ms[title] = statistics.median(seconds[WARM:]) * 1000


def _print(found: dict[str, Figures]) -> None:
    names = list(found)
    print(f"{'':<42}" + "".join(f"{name:>18}" for name in names) + f"{'ratio':>9}")
    for title, text, ratio in _rows(found):
        print(f"{title:<42}{text}{ratio:>9}")


def _rows(found: dict[str, Figures]) -> Iterator[tuple[str, str, str]]:
    """Yield a title, the figures of every store, and how much better ours is than the best peer."""
    kinds: list[tuple[str, str, Callable[[Figures], dict[str, float]], bool]] = [
        ("samples per CPU-second", "{:>18,.0f}", lambda one: one.samples_per_cpu_second, True),
        ("bytes per sample", "{:>18.3f}", lambda one: one.bytes_per_sample, False),
        ("ms", "{:>18.2f}", lambda one: one.latency_ms, False),
    ]
    for unit, form, of, more_is_better in kinds:
        for title, own in of(found[OURS]).items():
            peers = [of(one).get(title) for name, one in found.items() if name != OURS]
            known = [value for value in peers if value is not None]
            text = form.format(own) + "".join(
                " " * 17 + "-" if value is None else form.format(value) for value in peers
            )
            ratio = ""
            if known:
                ratio = f"{own / max(known) if more_is_better else min(known) / own:.2f}x"
            yield f"{title}: {unit}", text, ratio
