"""What a million jobs cost whoever asks: ShowWorkloadStatistics against a thousand jobs, and job searches.

Two servers stand side by side, one with a thousand jobs and one with a million, filled by SQL in one
statement per table; requests go to them in turn, over HTTP, each on a connection that is kept open.
"""

import http.client
import json
import sqlite3
import time
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from benchmarks.server import Bench, running_server
from benchmarks.tools import p50, p99, progress
from trackside.domain.phase import FINAL, Phase

FEW, MANY = 1_000, 1_000_000
ROUNDS = 300
SEARCHES = 40
RATIO_MAX = 1.5
SEARCH_MS_MAX = 50.0
DAY_MS = 86_400_000
SPREAD_DAYS = 365
START_MS = 1_750_000_000_000
NAMES = ("llama-sft", "resnet-50", "bert-base", "diffusion", "eval-nightly")
# Of a thousand jobs, so many in each phase: most are over.
OF_THOUSAND = {
    Phase.RUNNING: 1,
    Phase.QUEUED: 4,
    Phase.FAILED: 60,
    Phase.CREATE_FAILED: 5,
    Phase.STOPPED: 30,
    Phase.SUCCEEDED: 900,
}


def run() -> None:
    """Measure both, and print what was found."""
    with running_server() as few, running_server() as many:
        for bench, count in ((few, FEW), (many, MANY)):
            began = time.perf_counter()
            fill(bench, count)
            progress(f"{count:,} jobs stored in {time.perf_counter() - began:.0f} s")
        _statistics(few, many)
        _searches(many)


def fill(bench: Bench, count: int) -> None:
    """Store jobs straight into the tables, and what the counters would say of them."""
    database = sqlite3.connect(bench.data_dir / "trackside.db", timeout=120, isolation_level=None)
    with closing(database):
        database.execute("PRAGMA synchronous=OFF")
        database.execute("BEGIN IMMEDIATE")
        indices = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'jobs' AND sql NOT NULL"
        ).fetchall()
        for name, _ in indices:
            database.execute(f"DROP INDEX {name}")
        _fill_jobs(database, bench.project_id, count)
        for _, sql in indices:
            database.execute(sql)
        _fill_counters(database, bench.project_id, count)
        database.execute("COMMIT")
        database.execute("ANALYZE")


def _fill_jobs(database: sqlite3.Connection, project_id: str, count: int) -> None:
    names = " ".join(f"WHEN {i} THEN '{name}'" for i, name in enumerate(NAMES))
    over = ", ".join(f"'{phase}'" for phase in sorted(FINAL))
    step_ms = SPREAD_DAYS * DAY_MS // count
    database.execute(
        f"""
        WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count}),
        made AS (
            SELECT i, {START_MS} + i * {step_ms} AS at_ms, {_phase_sql()} AS phase,
                CASE i % {len(NAMES)} {names} END || '-' || i AS name
            FROM numbers
        )
        INSERT INTO jobs (id, project_id, number, short_id, family, version, workspace_id, name, name_folded,
            description_folded, kind, phase, owner, pool_id, priority, created_at_ms, started_at_ms,
            ended_at_ms, deleting, revision, state)
        SELECT printf('%08x-0000-4000-8000-%012x', i, i), ?, i, printf('%016x', i), i, 1, '0', name, name,
            '', 'job', phase, 'user-' || (i % 50), 'default', 1, at_ms,
            CASE WHEN phase = 'queued' THEN NULL ELSE at_ms + 1000 END,
            CASE WHEN phase IN ({over}) THEN at_ms + 600000 END, 0, 1, '{{}}'
        FROM made
        """,
        (project_id,),
    )
    spec = {
        "name": "bench",
        "roles": [{"resources": {"cpu_cores": 1.0, "memory_bytes": 2**30}}],
        "command": "true",
    }
    database.execute("INSERT INTO specs (job_id, doc) SELECT id, ? FROM jobs", (json.dumps(spec),))
    record = json.dumps({"number": 1, "queued_at_ms": START_MS})
    database.execute("INSERT INTO records (job_id, number, doc) SELECT id, 1, ? FROM jobs", (record,))


def _phase_sql() -> str:
    """Return the phase of job i: by where it falls within its thousand."""
    parts, bound = [], 0
    for phase, share in OF_THOUSAND.items():
        bound += share
        parts.append(f"WHEN i % 1000 < {bound} THEN '{phase}'")
    return f"CASE {' '.join(parts)} END"


def _fill_counters(database: sqlite3.Connection, project_id: str, count: int) -> None:
    key = "project_id, pool_id, kind, phase, workspace_id"
    database.execute("DELETE FROM pool_counts")
    database.execute(f"INSERT INTO pool_counts ({key}, jobs) SELECT {key}, count(*) FROM jobs GROUP BY {key}")
    counts = json.dumps({"0": count})
    database.execute(
        "UPDATE projects SET next_number = ?, job_counts = ? WHERE id = ?", (count + 1, counts, project_id)
    )


class _Asker:
    """Asks one server, on one connection."""

    def __init__(self, bench: Bench) -> None:
        address = urlsplit(bench.endpoint)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port)
        self._prefix = f"/v2/{bench.project_id}"
        self._headers = {"X-Auth-Token": bench.keys["token"], "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None) -> tuple[float, Any]:
        """Return how many milliseconds the answer took, and the answer."""
        content = None if body is None else json.dumps(body)
        began = time.perf_counter()
        self._connection.request(method, f"{self._prefix}/{path}", content, self._headers)
        answer = self._connection.getresponse()
        said = answer.read()
        took_ms = (time.perf_counter() - began) * 1000
        assert answer.status == 200, said
        return took_ms, json.loads(said)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


def _statistics(few: Bench, many: Bench) -> None:
    path = "statistics/pools/default/workloads"
    with closing(_Asker(few)) as small, closing(_Asker(many)) as large:
        times: dict[int, list[float]] = {FEW: [], MANY: []}
        for number in range(ROUNDS):
            for count, asker in ((FEW, small), (MANY, large)):
                took_ms, told = asker.ask("GET", path)
                assert told["statistics"]["total"] == count
                if number >= ROUNDS // 10:  # the first ones warm up
                    times[count].append(took_ms)
    ratio = p50(times[MANY]) / p50(times[FEW])
    print(f"{'statistics':<28}{'p50 ms':>9}{'p99 ms':>9}")
    for count, taken in times.items():
        print(f"{f'{count:,} jobs':<28}{p50(taken):>9.2f}{p99(taken):>9.2f}")
    print(f"ratio {ratio:.2f} (goal: at most {RATIO_MAX})")


def _searches(many: Bench) -> None:
    print(f"\n{'search over ' + format(MANY, ',') + ' jobs':<52}{'found':>9}{'p50 ms':>9}{'p99 ms':>9}")
    with closing(_Asker(many)) as asker:
        for title, filters in _questions().items():
            times, found = [], 0
            for number in range(SEARCHES):
                body = {"limit": 10, "filters": filters}
                took_ms, page = asker.ask("POST", "training-job-searches", body)
                found = page["count"]
                if number >= SEARCHES // 10:
                    times.append(took_ms)
            mark = "" if p50(times) <= SEARCH_MS_MAX else f"  over {SEARCH_MS_MAX:.0f}"
            print(f"{title:<52}{found:>9,}{p50(times):>9.1f}{p99(times):>9.1f}{mark}")


def _questions() -> dict[str, list[dict[str, Any]]]:
    def like(text: str) -> dict[str, Any]:
        return {"key": "name", "operator": "like", "value": [text]}

    def status(*names: str) -> dict[str, Any]:
        return {"key": "phase", "operator": "in", "value": list(names)}

    def days(count: int) -> dict[str, Any]:
        middle = START_MS + SPREAD_DAYS * DAY_MS // 2
        return {
            "key": "create_time",
            "operator": "between",
            "value": [str(middle), str(middle + count * DAY_MS)],
        }

    return {
        "part of a name, status and one week": [like("bert"), status("Failed"), days(7)],
        "part of a name and one month": [like("bert-base-50"), days(30)],
        "status and one month": [status("Failed"), days(30)],
        "one week": [days(7)],
        "a whole name": [{"key": "name", "operator": "in", "value": ["bert-base-500002"]}],
        "a rare status": [status("Running")],
        "a usual status": [status("Completed")],
        "part of a name, rare, over all": [like("bert-base-500002")],
        "part of a name, frequent, over all": [like("bert")],
        "part of a name and status, over all": [like("bert"), status("Failed")],
    }
