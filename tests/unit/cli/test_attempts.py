"""What the command line tells of one attempt, on a terminal and on a pipe, and the file it writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_server import JOB_ID, FakeServer, Request, job
from trackside.cli.session import Session

OWN = f"/api/trackside/v1/jobs/{JOB_ID}"
T0 = 1_700_000_000_000
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\nValueError: no loss'
REASON: dict[str, Any] = {
    "text": "worker-1 ran out of memory (16.0 GiB of 16.0 GiB)",
    "code": "out-of-memory",
    "certainty": "certain",
    "task": "worker-1",
    "evidence": ["the out-of-memory counter of its cgroup went from 0 to 1"],
    "hint": "ask for a flavor with more memory",
}
RECORDS: list[dict[str, Any]] = [
    {
        "number": number,
        "queued_at_ms": T0,
        "running_at_ms": T0,
        "ended_at_ms": T0 + 60_000,
        "duration_ms": 60_000,
        "reason": REASON,
    }
    for number in (1, 2, 3)
]
TASKS = [
    {
        "name": f"worker-{rank}",
        "rank": rank,
        "start": 3,
        "node": "n1",
        "state": "ended",
        "duration_ms": 60_000,
        "exit_code": 137 if rank == 1 else 143,
        "signal": 9 if rank == 1 else 15,
        "memory_peak_bytes": 16 * 1024**3 if rank == 1 else 1024**3,
        "memory_limit_bytes": 16 * 1024**3,
        "reason": REASON if rank == 1 else {"text": f"worker-{rank} was stopped", "code": "peer-failed"},
    }
    for rank in (0, 1)
]
ATTEMPT: dict[str, Any] = {
    **RECORDS[2],
    "text": REASON["text"],
    "start_type": "restarted",
    "started_at_ms": T0,
    "culprit": "worker-1",
    "others": "the other task was stopped 1.2 s later because of it",
    "pattern": "attempts 1 and 2 had the same cause",
    "same_cause": [1, 2],
    "recoveries": [{"text": "queueing the whole job again: not allowed: its budget of 2 is used up"}],
    "lost": {"text": "at most 14 GPU-minutes", "unit": "gpu", "total_unit_ms": 840_000},
    "job_lost": {"text": "at most 41 GPU-minutes", "unit": "gpu", "total_unit_ms": 2_460_000},
    "exits": [
        {"task": "worker-1", "exit_code": 137, "signal": 9, "after_first_ms": 0},
        {"task": "worker-0", "exit_code": 143, "signal": 15, "after_first_ms": 1_200, "stopped_by_us": True},
    ],
    "tasks": TASKS,
}
SERIES = {
    "series": [
        {
            "task": "worker-1",
            "metric": "memory_percent",
            "points": [[T0 + step * 1_250, step * 2.0] for step in range(48)],
        }
    ]
}


@pytest.fixture(autouse=True)
def failed_job(fake: FakeServer) -> FakeServer:
    """A job whose third attempt failed like the two before it."""
    ended: dict[str, Any] = {"reason": REASON, "ended_at_ms": T0 + 60_000, "records": RECORDS}
    fake.jobs = [job(phase="failed", tasks=TASKS, **ended)]
    fake.answers["GET", f"{OWN}/attempts"] = 200, {"attempts": [], "lost": ATTEMPT["job_lost"]}
    fake.answers["GET", f"{OWN}/attempts/3"] = 200, ATTEMPT
    fake.answers["GET", f"{OWN}/attempts/3/logs/worker-1"] = _log
    fake.answers["GET", f"{OWN}/metrics"] = 200, SERIES
    return fake


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a person read, on 80 columns without colour."""
    monkeypatch.setattr(Session, "terminal", property(lambda self: not self.as_json))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def _log(request: Request) -> tuple[int, Any]:
    count = int(request.query["lines"][0])
    return 200, {"task": "worker-1", "text": "".join(f"step {step}\n" for step in range(1000))[-7 * count :]}


def test_a_pipe_gets_labels_and_whole_values(run: Run) -> None:
    ran = run("show", "llama-sft", "--attempt", "3", "--lines", "2")
    lines = ran.out.splitlines()
    assert lines[:2] == ["name\tllama-sft", "attempt\t3"]
    assert "then\tthe other task was stopped 1.2 s later because of it" in lines
    assert "pattern\tattempts 1 and 2 had the same cause" in lines
    assert "recovery\tqueueing the whole job again: not allowed: its budget of 2 is used up" in lines
    assert (
        "lost\tat most 14 GPU-minutes: everything since the attempt started; at most 41 GPU-minutes in all "
        "attempts together"
    ) in lines
    assert f"worker-1\t3\tn1\t60.0\t137\t0.0\t{16 * 1024**3}\t{REASON['text']}" in lines
    assert "step 999" in lines[-1]
    assert "last 2 lines of worker-1 in attempt 3:" in ran.err


def test_a_terminal_gets_the_story_within_its_width(run: Run, terminal: None) -> None:
    ran = run("show", "llama-sft", "--attempt", "3")
    lines = ran.out.splitlines()
    assert lines[0] == "llama-sft  attempt 3 of 3  ✕ Failed after 1 min"
    assert "Attempt 3 ended at 22:14:20 UTC because worker-1 ran out of memory (16.0 GiB of" in lines
    assert any("[certain: the out-of-memory counter" in line for line in lines)
    (curve,) = [line for line in lines if line.startswith("memory")]
    assert "▁" in curve
    assert "highest measured 94 % of 16.0 GiB" in curve
    assert max(len(line) for line in lines if not line.startswith("step")) <= 80
    assert any("+1.2 s" in line for line in lines if line.startswith("worker-0"))


def test_a_narrow_terminal_is_not_overrun(run: Run, terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    ran = run("explain", "llama-sft", "--lines", "0")
    assert max(len(line) for line in ran.out.splitlines()) <= 50
    assert "the same cause" in ran.out


def test_explain_tells_the_whole_story(run: Run, failed_job: FakeServer) -> None:
    ran = run("explain", "llama-sft", "--lines", "200")
    assert ran.out.startswith(
        "Attempt 3 ended at 22:14:20 UTC because worker-1 ran out of memory (16.0 GiB of 16.0 GiB).  "
        "[certain: the out-of-memory counter of its cgroup went from 0 to 1] [out-of-memory]\n"
    )
    assert "#1" not in ran.out, "the pattern says it"
    assert "try\task for a flavor with more memory" in ran.out
    asked = next(one for one in failed_job.seen if one.path.endswith("/logs/worker-1"))
    assert asked.query["lines"] == ["200"]
    told = json.loads(run("explain", "llama-sft", "--json").out)
    assert told["attempt"]["same_cause"] == [1, 2]
    assert told["attempt"]["ended_at"] == "2023-11-14T22:14:20.000Z"


def test_a_traceback_is_shown_as_it_is(run: Run, failed_job: FakeServer) -> None:
    reason = REASON | {"evidence": [TRACEBACK], "code": "exception"}
    failed_job.answers["GET", f"{OWN}/attempts/3"] = 200, ATTEMPT | {"reason": reason}
    out = run("explain", "llama-sft", "--lines", "0").out
    assert '    Traceback (most recent call last):\n      File "train.py", line 7' in out
    assert "[certain] [exception]" in out


def test_show_says_what_was_lost(run: Run) -> None:
    ran = run("show", "llama-sft")
    assert "attempts\t#1 1 min failed   #2 1 min failed   #3 1 min failed" in ran.out
    assert "lost\tat most 41 GPU-minutes" in ran.out


def test_an_attempt_is_written_whole(run: Run, failed_job: FakeServer, tmp_path: Path) -> None:
    failed_job.answers["GET", f"{OWN}/attempts/3/export"] = 200, b"PK" * 300_000
    file = tmp_path / "three.zip"
    ran = run("show", "llama-sft", "--attempt", "3", "--export", str(file))
    assert ran.out == f"Wrote {file} (585.9 KiB): attempt 3 of llama-sft\n"
    assert file.read_bytes() == b"PK" * 300_000
    told = json.loads(run("show", "llama-sft", "--attempt", "3", "--export", str(file), "--json").out)
    assert (told["file"], told["bytes"]) == (str(file), 600_000)
    assert [path.name for path in tmp_path.iterdir()] == ["three.zip"]


def test_what_cannot_be_written_leaves_nothing(run: Run, failed_job: FakeServer, tmp_path: Path) -> None:
    refused = run("show", "llama-sft", "--attempt", "3", "--export", str(tmp_path / "a.tgz"))
    assert (refused.code, "call it a.zip" in refused.err) == (2, True)
    nowhere = run("show", "llama-sft", "--attempt", "3", "--export", str(tmp_path / "no" / "a.zip"))
    assert (nowhere.code, "cannot write" in nowhere.err) == (2, True)
    gone = 404, {"error_code": "Trackside.not_found", "error_msg": "no attempt 9; its last one is 3"}
    failed_job.answers["GET", f"{OWN}/attempts/9/export"] = gone
    absent = run("show", "llama-sft", "--attempt", "9", "--export", str(tmp_path / "a.zip"))
    assert (absent.code, "no attempt 9" in absent.err) == (3, True)
    assert list(tmp_path.iterdir()) == []


def test_lines_and_export_need_an_attempt(run: Run) -> None:
    assert run("show", "llama-sft", "--lines", "5").code == 2
    assert run("show", "llama-sft", "--export", "a.zip").code == 2


def test_a_running_job_that_came_back_says_so_first(run: Run, failed_job: FakeServer) -> None:
    going = {"number": 4, "queued_at_ms": T0 + 60_000, "running_at_ms": T0 + 61_000}
    failed_job.jobs = [job(phase="running", records=[*RECORDS, going], tasks=[])]
    out = run("explain", "llama-sft", "--lines", "0").out.splitlines()
    assert out[0] == "llama-sft is running."
    assert out[1].startswith("Attempt 3 ended at 22:14:20 UTC because worker-1 ran out of memory")
