"""Our metric store against VictoriaMetrics and Prometheus: the same samples, the same questions, one run.

All are fed over loopback HTTP, a request per tick: peers by remote write, ours by an agent's reports. Then
they are asked, by turns, over connections that are kept: peers in PromQL, ours through the dialects' APIs
with the signature checked. But for the lines that say so no question is asked twice, so that no store
answers from what it answered before.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import metricstore_duckdb
from benchmarks import metricstore_ours as ours
from benchmarks.lean_http import LeanClient
from benchmarks.metricstore_peers import COMMANDS, Peer, Question, running_peer
from benchmarks.metricstore_workload import TICK_MS, Workload, job_id
from benchmarks.tools import have, progress

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
SPAN_MS = 4 * HOUR_MS  # what ends with a span can be compacted
DAY_MS = 24 * HOUR_MS
ROUNDS = 72
AT_ONCE = 6  # questions to one store before it is the next one's turn
WARM = 6  # answers that are not counted
LARGE_ROUNDS = 24
OURS = "trackside"
# The metrics of ShowTrainingJobMetrics that the workload has; the two others are of NPUs.
SHOWN = ("cpu_percent", "memory_percent", "gpu_percent", "gpu_memory_percent")

Store = ours.Server | Peer
Questions = Mapping[str, Sequence[Question]]


@dataclass(slots=True)
class Figures:
    """What was measured of one store."""

    samples_per_cpu_second: dict[str, float] = field(default_factory=dict)
    bytes_per_sample: dict[str, float] = field(default_factory=dict)
    latency_ms: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is fed and what is asked."""

    title: str
    jobs: Workload  # as our server is told of them
    fed: Sequence[Workload]
    questions: Questions = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Return how many samples are fed."""
        return sum(workload.samples for workload in self.fed)


def run() -> None:
    """Measure every store on all workloads and print the figures and their ratios."""
    end_ms = _end_ms()
    _measured([_many_jobs(end_ms), _one_large_job(end_ms), _large_ticks(end_ms)])
    metricstore_duckdb.run(Workload(10, 8, 6 * HOUR_MS // TICK_MS, end_ms - 6 * HOUR_MS))


def small() -> None:
    """Measure the workload of many small jobs only."""
    _measured([_many_jobs(_end_ms())])


def large() -> None:
    """Measure the workloads of one large job only."""
    _measured([_one_large_job(_end_ms()), _large_ticks(_end_ms())])


def _end_ms() -> int:
    return time.time_ns() // 1_000_000 // SPAN_MS * SPAN_MS


def _many_jobs(end_ms: int) -> Case:
    """Return 1,280 series for a day: ten jobs of eight tasks of sixteen metrics."""
    workload = Workload(10, 8, DAY_MS // TICK_MS, end_ms - DAY_MS)
    hour = [
        Question(
            job=job_id(number % 10),
            metrics=(tuple(ours.DLC_NAMES)[number // 10 % len(ours.DLC_NAMES)],),
            start_ms=end_ms - HOUR_MS,
            end_ms=end_ms,
            step_ms=5 * MINUTE_MS,
        )
        for number in range(ROUNDS)
    ]
    day = [
        Question(
            job=job_id(number % 10),
            task=f"worker-{number // 10}",
            metrics=SHOWN,
            start_ms=end_ms - DAY_MS,
            end_ms=end_ms,
            step_ms=MINUTE_MS,
        )
        for number in range(ROUNDS)
    ]
    questions = {
        "one job, one metric, 1 h at 5 m": hour,
        "the same, asked again": [replace(hour[0], again=True)] * ROUNDS,
        "one task, 4 metrics, 24 h at 1 m": day,
        "the same task, asked again": [replace(day[0], again=True)] * ROUNDS,
    }
    return Case(title="1,280 series, 24 h", jobs=workload, fed=[workload], questions=questions)


def _one_large_job(end_ms: int) -> Case:
    """Return 16,384 series: 1,024 tasks, one metric for 23 hours and all sixteen in the last one."""
    first = Workload(1, 1024, 23 * HOUR_MS // TICK_MS, end_ms - DAY_MS, ("cpu_percent",))
    last = Workload(1, 1024, HOUR_MS // TICK_MS, end_ms - HOUR_MS)
    whole = Workload(1, 1024, DAY_MS // TICK_MS, end_ms - DAY_MS, ("cpu_percent",))

    def question(before_ms: int, earlier_ms: int, step_ms: int | None) -> Question:
        start, end = end_ms - before_ms, end_ms - earlier_ms
        return Question(job=job_id(0), metrics=("cpu_percent",), start_ms=start, end_ms=end, step_ms=step_ms)

    rounds = range(LARGE_ROUNDS)
    questions = {
        "1,024 tasks, one metric, 24 h at 5 m": [
            question(DAY_MS, number * 5 * MINUTE_MS, 5 * MINUTE_MS) for number in rounds
        ],
        "newest value of 1,024 tasks": [question(5 * MINUTE_MS - number, 0, None) for number in rounds],
    }
    title = "1,024 then 16,384 series"
    return Case(title=title, jobs=whole, fed=[first, last], questions=questions)


def _large_ticks(end_ms: int) -> Case:
    """Return 16,384 series for two hours, to be fed only."""
    every = Workload(1, 1024, 2 * HOUR_MS // TICK_MS, end_ms - 2 * HOUR_MS)
    return Case(title="16,384 series, 2 h", jobs=every, fed=[every])


def _measured(cases: Sequence[Case]) -> None:
    found = {OURS: Figures()} | {name: Figures() for name in COMMANDS if have(name)}
    for case in cases:
        _measure(found, case)
    _print(found)


def _measure(found: Mapping[str, Figures], case: Case) -> None:
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="trackside-bench-")))
        server = running.enter_context(ours.running_server(folder, case.jobs))
        peers = {name: running.enter_context(running_peer(name)) for name in found if name != OURS}
        stores: dict[str, Store] = {OURS: server, **peers}
        for name, store in stores.items():
            progress(f"{name}: {case.title}, {case.samples / 1e6:.1f} million samples")
            found[name].samples_per_cpu_second[case.title] = case.samples / store.feed(*case.fed)
        _ask(found, case.questions, stores)
        for name, peer in peers.items():
            found[name].bytes_per_sample[case.title] = peer.disk_bytes() / case.samples
        server.stop()
        own = found[OURS].bytes_per_sample
        own[case.title] = ours.disk_bytes(server.metrics_file) / case.samples
        rollups = ours.rollup_bytes(server.metrics_file, case.jobs.end_ms)
        own[f"{case.title}, rollup only"] = rollups / case.samples


def _ask(found: Mapping[str, Figures], questions: Questions, stores: Mapping[str, Store]) -> None:
    """Ask all stores by turns, some questions at a time as a page does that shows several charts, each time
    another store first: whatever else the machine does, and whatever one of them goes on doing after its
    answer, meets them alike."""
    for title, every in questions.items():
        spent: dict[str, list[float]] = {name: [] for name in stores}
        with ExitStack() as open_clients:
            clients = {
                name: open_clients.enter_context(closing(LeanClient(store.address)))
                for name, store in stores.items()
            }
            for turn, first in enumerate(range(0, len(every), AT_ONCE)):
                for name in _turned(list(stores), turn):
                    asked = [stores[name].prepared(question) for question in every[first : first + AT_ONCE]]
                    spent[name] += [_timed(clients[name].ask, request) for request in asked]
        for name, seconds in spent.items():
            found[name].latency_ms[title] = statistics.median(seconds[WARM:]) * 1000


def _turned(names: list[str], number: int) -> list[str]:
    first = number % len(names)
    return names[first:] + names[:first]


def _timed(ask: Callable[[bytes], bytes], request: bytes) -> float:
    before = time.perf_counter()
    ask(request)
    return time.perf_counter() - before


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
