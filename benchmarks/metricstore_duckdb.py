"""The alternative to storage code of our own: DuckDB with the same one-minute rollup, on the same samples."""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import metricstore_ours as ours
from benchmarks.metricstore_workload import Workload, job_id
from benchmarks.tools import progress
from trackside.domain.job import JobId
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.metricstore.names import key_of

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ROUNDS = 9
QUESTIONS = ("one metric, 1 h at 5 m, ms", "one task, 6 h at 1 m, ms", "one metric, 6 h at 5 m, ms")

MINUTE = """
CREATE TABLE minute (series INTEGER, minute BIGINT, count BIGINT, total DOUBLE, low DOUBLE, high DOUBLE)
"""
ROLL = """
INSERT INTO minute
SELECT series, at_ms // 60000, count(*), sum(value), min(value), max(value)
FROM (SELECT DISTINCT series, at_ms, value FROM raw WHERE at_ms >= ? AND at_ms < ?) GROUP BY 1, 2
"""
MEANS = """
SELECT task, metric, minute // ? AS step, sum(total) / sum(count)
FROM minute JOIN names USING (series)
WHERE job = ? AND (? IS NULL OR task = ?) AND (? IS NULL OR metric = ?) AND minute >= ? AND minute < ?
GROUP BY ALL
"""


def run(workload: Workload) -> None:
    """Print what DuckDB and our store cost in process on a shorter run of the first workload."""
    try:
        import duckdb
    except ImportError:
        print("   duckdb is not installed (pip install duckdb): left out")
        return
    progress(f"duckdb: {workload.samples / 1e6:.1f} million samples")
    with tempfile.TemporaryDirectory(prefix="trackside-bench-") as folder:
        path = Path(folder) / "duck.db"
        connection = duckdb.connect(str(path), config={"threads": 2})
        spent = _feed(connection, workload)
        latencies = [_asked(partial(_duck, connection, *asked)) for asked in _questions(workload)]
        connection.execute("CHECKPOINT")
        connection.close()
        size = path.stat().st_size
        own_path = Path(folder) / "own.db"
        own_spent = ours.feed(own_path, workload)
        own_size = ours.disk_bytes(own_path)
        store = EmbeddedMetricStore(own_path, background=False)
        own_latencies = [_asked(partial(_own, store, *asked)) for asked in _questions(workload)]
        store.close()
    print(f"{'in process, 1,280 series, 6 h':<34}{'trackside':>12}{'duckdb':>12}")
    samples = workload.samples
    _print("samples per CPU-second", samples / own_spent, samples / spent)
    _print("bytes per sample, raw and rollup", own_size / samples, size / samples)
    for title, own, theirs in zip(QUESTIONS, own_latencies, latencies, strict=True):
        _print(title, own, theirs)


def _print(title: str, own: float, theirs: float) -> None:
    print(f"{title:<34}{own:>12,.2f}{theirs:>12,.2f}")


def _feed(connection: object, workload: Workload) -> float:
    execute = connection.execute  # type: ignore[attr-defined]
    execute("CREATE TABLE names (series INTEGER, job TEXT, task TEXT, metric TEXT)")
    execute("CREATE TABLE raw (series INTEGER, at_ms BIGINT, value DOUBLE)")
    execute(MINUTE)
    known = {(*series, None, ()): number for number, series in enumerate(workload.series)}
    rows = [(number, *series) for number, series in enumerate(workload.series)]
    connection.executemany("INSERT INTO names VALUES (?, ?, ?, ?)", rows)  # type: ignore[attr-defined]
    spent, rolled = 0.0, workload.first_ms
    for batch in workload.batches():
        before = time.process_time()
        batch_columns = {  # noqa: F841 - read by name in the statement
            "series": np.array([known[key_of(sample)] for sample in batch], np.int32),
            "at_ms": np.fromiter((sample.at_ms for sample in batch), np.int64, len(batch)),
            "value": np.fromiter((sample.value for sample in batch), np.float64, len(batch)),
        }
        execute("INSERT INTO raw SELECT * FROM batch_columns")
        if batch[0].at_ms >= rolled + HOUR_MS:
            execute(ROLL, [rolled, rolled + HOUR_MS])
            rolled += HOUR_MS
        spent += time.process_time() - before
    before = time.process_time()
    execute(ROLL, [rolled, workload.end_ms])
    return spent + time.process_time() - before


def _questions(workload: Workload) -> list[tuple[str | None, str | None, int, int, int]]:
    end = workload.end_ms
    return [
        (None, "cpu_percent", end - HOUR_MS, end, 5),
        ("worker-1", None, workload.first_ms, end, 1),
        (None, "cpu_percent", workload.first_ms, end, 5),
    ]


def _duck(
    connection: object, task: str | None, metric: str | None, start: int, end: int, step: int
) -> object:
    asked = [step, job_id(0), task, task, metric, metric, start // MINUTE_MS, end // MINUTE_MS]
    return connection.execute(MEANS, asked).fetchall()  # type: ignore[attr-defined]


def _own(
    store: EmbeddedMetricStore, task: str | None, metric: str | None, start: int, end: int, step: int
) -> object:
    return store.means(
        JobId(job_id(0)), task=task, metric=metric, start_ms=start, end_ms=end, step_ms=step * MINUTE_MS
    )


def _asked(ask: Callable[[], object]) -> float:
    spent = []
    for _ in range(ROUNDS):
        before = time.perf_counter()
        ask()
        spent.append(time.perf_counter() - before)
    return statistics.median(spent) * 1000
