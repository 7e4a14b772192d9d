"""All points of a job as data: nothing twice, nothing left out, a window at a time."""

import builtins
import csv
import itertools
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_server import JOB_ID, FakeServer, Request, job
from trackside.cli.export import RAW_WINDOW_MS, WINDOW_STEPS, Export
from trackside.cli.views import JobView

START_MS = 1_700_000_000_000
METRICS = ("GET", f"/api/trackside/v1/jobs/{JOB_ID}/metrics")


def stored(samples: dict[int, float]) -> Any:
    """Answer like a server that has these samples of one card."""

    def answer(request: Request) -> tuple[int, Any]:
        asked = {name: values[0] for name, values in request.query.items()}
        start, end = int(asked["start_ms"]), int(asked["end_ms"])
        step = 1 if asked.get("raw") == "true" else int(asked["step_ms"])
        bins: dict[int, list[float]] = {}
        for at_ms, value in samples.items():
            if start <= at_ms < end:
                bins.setdefault(at_ms // step * step, []).append(value)
        points = [[at_ms, sum(values) / len(values)] for at_ms, values in sorted(bins.items())]
        one = {"task": "worker-0", "metric": "gpu_percent", "card": 1, "labels": {"a": "b"}, "points": points}
        return 200, {"series": [one] if points else []}

    return answer


@pytest.fixture
def long_job(fake: FakeServer) -> dict[int, float]:
    """A job of six hours with a sample every 100 seconds or so."""
    end = START_MS + 6 * 3_600_000
    fake.jobs = [
        job(phase="succeeded", started_at_ms=START_MS, ended_at_ms=end, tasks=[{"name": "worker-0"}])
    ]
    samples = {at_ms: float(at_ms % 97) for at_ms in range(START_MS, end, 99_991)}
    fake.answers[METRICS] = stored(samples)
    return samples


def test_csv_of_a_long_job_is_whole(long_job: dict[int, float], run: Run) -> None:
    rows = list(csv.DictReader(run("metrics", "llama-sft", "--csv", "--raw").out.splitlines()))
    assert [float(row["value"]) for row in rows] == list(long_job.values())
    assert rows[0] == {
        "time": "2023-11-14T22:13:20.000Z",
        "task": "worker-0",
        "card": "1",
        "metric": "gpu_percent",
        "labels": 'a="b"',
        "value": str(next(iter(long_job.values()))),
    }
    minutes = list(csv.DictReader(run("metrics", "llama-sft", "--csv").out.splitlines()))
    assert len({row["time"] for row in minutes}) == len(minutes) == len(long_job)


def test_parquet_holds_the_same(long_job: dict[int, float], run: Run, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    assert run("metrics", "llama-sft", "--parquet", str(file), "--raw").code == 0
    table = pyarrow.parquet.read_table(file)
    assert table.column("value").to_pylist() == list(long_job.values())
    assert [round(at.timestamp() * 1000) for at in table.column("time").to_pylist()] == list(long_job)
    assert set(table.column("labels").to_pylist()) == {'a="b"'}
    assert set(table.column("card").to_pylist()) == {1}
    assert list(tmp_path.iterdir()) == [file], "nothing unfinished is left"


def test_a_file_that_cannot_be_written_is_said(long_job: dict[int, float], run: Run, tmp_path: Path) -> None:
    told = run("metrics", "llama-sft", "--parquet", str(tmp_path / "no" / "out.parquet"))
    assert told.code == 2
    assert "cannot write" in told.err


def test_an_answer_that_fails_leaves_no_half_file(fake: FakeServer, run: Run, tmp_path: Path) -> None:
    fake.jobs = [job(phase="succeeded", ended_at_ms=START_MS + 60_000, tasks=[{"name": "worker-0"}])]
    fake.answers[METRICS] = 500, {"message": "no"}
    assert run("metrics", "llama-sft", "--parquet", str(tmp_path / "out.parquet")).code != 0
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_there_is_a_hint(
    long_job: dict[int, float], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def absent(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(name="pyarrow")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.delitem(sys.modules, "pyarrow", raising=False)
    told = run("metrics", "llama-sft", "--parquet", str(tmp_path / "out.parquet"))
    assert told.code == 2
    assert "trackside[parquet]" in told.err


@pytest.mark.parametrize(
    "flags",
    [
        ["--csv", "--json"],
        ["--csv", "--parquet", "x"],
        ["--raw"],
        ["--raw", "--json"],
        ["--raw", "--csv", "--step", "5"],
    ],
)
def test_flags_that_exclude_each_other_are_refused(
    flags: list[str], long_job: dict[int, float], run: Run
) -> None:
    assert run("metrics", "llama-sft", *flags).code == 2


@pytest.mark.parametrize("step_ms", [1_000, 7_000, 60_000, None])
@pytest.mark.parametrize("length_ms", [1, 59_999, 86_400_000])
def test_windows_cover_the_run_in_whole_steps(step_ms: int | None, length_ms: int) -> None:
    start, end = START_MS + 123, START_MS + 123 + length_ms
    view = JobView(id="j", name="n", phase="running")
    windows = list(Export(job=view, start_ms=start, end_ms=end, step_ms=step_ms, wanted=list).windows())
    assert windows[0][0] == start
    assert windows[-1][1] == end
    assert all(before[1] == after[0] for before, after in itertools.pairwise(windows))
    assert all(edge % (step_ms or 1) == 0 for _, edge in windows[:-1])
    longest = RAW_WINDOW_MS if step_ms is None else WINDOW_STEPS * step_ms
    assert all(upper - lower <= longest for lower, upper in windows)
