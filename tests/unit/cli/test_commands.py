"""Each verb against a server that checks signatures: what it asks, what it prints, how it exits."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_server import JOB_ID, PROJECT, SECRET, FakeServer, Request, job

V2 = f"/v2/{PROJECT}/training-jobs"
OTHER_ID = "1a5b8a52-2222-4a6e-9d2f-bbbbbbbbbbbb"
REASON = {
    "text": "worker-1 ran out of memory (16.0 GiB of 16.0 GiB)",
    "code": "out-of-memory",
    "certainty": "certain",
    "task": "worker-1",
    "evidence": ["the out-of-memory counter of its cgroup went up"],
    "hint": "ask for a flavor with more memory",
}
TASKS = [
    {"name": "worker-0", "state": "ended", "exit_code": 143, "signal": 15, "node": "n1", "duration_ms": 1500},
    {"name": "worker-1", "state": "ended", "exit_code": 137, "signal": 9, "node": "n1", "reason": REASON},
]
FAILED: dict[str, Any] = {"reason": REASON, "tasks": TASKS, "ended_at_ms": 1_700_000_008_000}


def log_answer(text: str, end: int) -> tuple[int, dict[str, Any]]:
    return 200, {"start_line": "1", "end_line": str(end), "lines": end, "content": text}


def log_of(lines: list[str]) -> Any:
    """Answer as the v2 log operation does: after base_line ascending, the newest descending."""

    def answer(request: Request) -> tuple[int, dict[str, Any]]:
        count = int(request.query["lines"][0])
        if request.query["order"][0] == "desc":
            first = max(0, len(lines) - count)
        else:
            first = int(request.query["base_line"][0])
        part = lines[first : first + count]
        return log_answer("".join(f"{line}\n" for line in part), first + len(part))

    return answer


def test_ls_for_programs_is_tab_separated_with_a_header(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(), job("bert", "failed", id=OTHER_ID, **FAILED)]
    ran = run("ls")
    assert ran.code == 0
    header, first, second = ran.out.splitlines()
    assert header.split("\t")[:4] == ["ID", "NAME", "STATE", "WORKERS"]
    assert first.split("\t")[:4] == [JOB_ID, "llama-sft", "running", "0/2"]
    assert second.split("\t")[-1] == REASON["text"]


def test_ls_filters_on_the_server(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(), job("bert", "failed", id=OTHER_ID)]
    ran = run("ls", "--state", "failed", "--name", "be", "--json")
    told = json.loads(ran.out)
    assert (told["schema"], told["matching"], told["total"]) == ("trackside/1", 1, 2)
    assert [one["name"] for one in told["jobs"]] == ["bert"]
    assert set(fake.seen[0].query["state"]) == {"failed", "create_failed"}
    assert run("ls", "--state", "broken").code == 2


def test_ls_reads_all_pages(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(f"job-{n}", id=f"{n:08d}-0000-4000-8000-000000000000") for n in range(1203)]
    assert len(run("ls", "--all").out.splitlines()) == 1204
    ran = run("ls", "-n", "3")
    assert len(ran.out.splitlines()) == 4
    assert "3 of 1,203 jobs. All: trackside ls --all" in ran.err


def test_an_empty_list_says_what_to_do(fake: FakeServer, run: Run) -> None:
    assert "trackside submit job.yaml" in run("ls").err
    assert run("ls", "-q").err == ""


def test_json_has_iso_times_and_plain_seconds(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(phase="failed", **FAILED)]
    told = json.loads(run("show", "llama-sft", "--json").out)["job"]
    assert told["created_at"] == "2023-11-14T22:13:20.000Z"
    assert told["ended_at"] == "2023-11-14T22:13:28.000Z"
    assert told["tasks"][0]["duration_seconds"] == 1.5
    assert told["reason"]["certainty"] == "certain"
    assert not [key for key in told if key.endswith("_ms")]


@pytest.mark.parametrize("wanted", ["llama-sft", JOB_ID, "0f5b", "@last"])
def test_a_job_is_found_by_name_id_prefix_and_last(fake: FakeServer, run: Run, wanted: str) -> None:
    fake.jobs = [job(), job("llama-sft-2", id=OTHER_ID)]
    assert f"id\t{JOB_ID}" in run("show", wanted).out.splitlines()


def test_an_unknown_job_gets_a_suggestion(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job()]
    ran = run("show", "lama-sft")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == "error: no job called lama-sft\nhint: did you mean llama-sft?\n"


def test_an_ambiguous_job_is_listed(fake: FakeServer, run: Run) -> None:
    fake.jobs = [
        job(id="aa000000-0000-4000-8000-000000000000"),
        job("b", id="aa100000-0000-4000-8000-000000000000"),
    ]
    ran = run("show", "aa")
    assert ran.code == 3
    assert "aa means 2 jobs" in ran.err
    assert "aa100000-0000-4000-8000-000000000000  b  Running" in ran.err


def test_explain_tells_reason_certainty_hint_and_exits(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(phase="failed", **FAILED)]
    ran = run("explain", "llama-sft")
    assert "worker-1 ran out of memory (16.0 GiB of 16.0 GiB) at 22:13:28 UTC." in ran.out
    assert "[certain: the out-of-memory counter of its cgroup went up] [out-of-memory]" in ran.out
    assert "try\task for a flavor with more memory" in ran.out
    assert "worker-0\tended\tn1\t1.5\t143" in ran.out
    told = json.loads(run("explain", "llama-sft", "--json").out)
    assert (told["reason"]["code"], told["tasks"][1]["signal"]) == ("out-of-memory", 9)


STUCK = {
    "text": "all 2 tasks seem to hang since 2026-11-16 02:14:00 UTC: no input or output for 30 min",
    "code": "hanged",
    "certainty": "likely",
    "hint": "trackside stacks JOB shows where every task stood at that moment",
}


def test_a_job_that_seems_to_hang_says_so_everywhere(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(phase="running", suspicion=STUCK, tasks=[{"name": "worker-0", "state": "running"}])]
    ran = run("explain", "llama-sft")
    assert f"{STUCK['text']}.  [likely] [hanged]" in ran.out
    assert "try\ttrackside stacks JOB shows" in ran.out
    assert json.loads(run("explain", "llama-sft", "--json").out)["suspicion"]["code"] == "hanged"
    assert STUCK["text"] in run("show", "llama-sft").out
    assert STUCK["text"] in run("ls").out


def test_stacks_are_shown_by_worker_and_attempt(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(phase="running")]
    taken = {"task": "worker-1", "attempt": 2, "taken_at_ms": 1_700_000_000_000, "text": "in all_reduce\n"}
    asked: list[Any] = []

    def answer(request: Request) -> tuple[int, Any]:
        asked.append(request.query)
        return 200, {"stacks": [taken], "matching": 3}

    fake.answers["GET", f"/api/trackside/v1/jobs/{JOB_ID}/stacks"] = answer
    ran = run("stacks", "llama-sft")
    assert ran.out == "=== worker-1, attempt 2, 2023-11-14 22:13:20 UTC ===\nin all_reduce\n"
    told = json.loads(run("stacks", "llama-sft", "-w", "worker-1", "--attempt", "2", "--json").out)
    assert told["stacks"][0]["taken_at"] == "2023-11-14T22:13:20.000Z"
    assert told["matching"] == 3
    assert asked == [{}, {"task": ["worker-1"], "attempt": ["2"]}]


@pytest.mark.parametrize(
    ("phase", "code"), [("succeeded", 0), ("failed", 20), ("create_failed", 20), ("stopped", 21)]
)
def test_wait_exits_by_how_the_job_ended(fake: FakeServer, run: Run, phase: str, code: int) -> None:
    states = iter(["queued", "starting", "running"])
    fake.jobs = [job(phase="running", tasks=[{"name": "worker-0", "state": "running"}])]

    def show(_: Request) -> tuple[int, Any]:
        return 200, job(phase=next(states, phase), tasks=[{"name": "worker-0", "state": "ended"}])

    fake.answers["GET", f"/api/trackside/v1/jobs/{JOB_ID}"] = show
    fake.answers["GET", f"{V2}/{JOB_ID}/logs/worker-0"] = log_of(["Traceback", "Boom"])
    ran = run("wait", "llama-sft")
    assert ran.code == code
    assert ("Boom" in ran.out) == (code == 20)
    assert f"llama-sft {'failed' if code == 20 else phase}" in ran.out
    assert [line.split(" UTC ")[1] for line in ran.err.splitlines() if " UTC " in line] == [
        "running: 1 of 2 workers up",
        "waiting",
        "starting 2 workers",
        "running",
    ]


def test_wait_gives_up_in_time_and_the_job_goes_on(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job()]
    ran = run("wait", "llama-sft", "--timeout", "0.01")
    assert ran.code == 22
    assert "hint: trackside wait llama-sft" in ran.err
    assert not [request for request in fake.seen if request.method != "GET"]


def test_logs_of_all_workers_carry_prefixes(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(phase="succeeded", tasks=[{"name": "worker-0"}, {"name": "worker-1"}])]
    fake.answers["GET", f"{V2}/{JOB_ID}/logs/worker-0"] = log_of([f"step {n}" for n in range(1201)])
    fake.answers["GET", f"{V2}/{JOB_ID}/logs/worker-1"] = log_of(["", "two"])
    lines = run("logs", "llama-sft").out.splitlines()
    assert lines[0] == "0│ step 0"
    assert lines[1200:] == ["0│ step 1200", "1│ ", "1│ two"]
    assert run("logs", "llama-sft", "-w", "1", "--tail", "1").out == "two\n"
    assert run("logs", "llama-sft", "-w", "worker-0", "--grep", "7{3}").out == "step 777\n"
    assert json.loads(run("logs", "llama-sft", "-w", "1", "--grep", "t", "--json").out)["line"] == "two"


def test_following_a_log_ends_with_the_job_and_prints_each_line_once(fake: FakeServer, run: Run) -> None:
    written = ["a", "b"]
    fake.jobs = [job(tasks=[{"name": "worker-0"}])]
    asked = []

    def show(_: Request) -> tuple[int, Any]:
        asked.append(1)
        written.append(f"c{len(asked)}")
        return 200, job(phase="succeeded" if len(asked) == 2 else "running")

    fake.answers["GET", f"/api/trackside/v1/jobs/{JOB_ID}"] = show
    fake.answers["GET", f"{V2}/{JOB_ID}/logs/worker-0"] = log_of(written)
    assert run("logs", "-f", "llama-sft").out.split() == ["a", "b", "c1", "c2"]


def test_a_worker_that_is_not_there_is_refused(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(tasks=[{"name": "worker-0"}, {"name": "ps-0"}])]
    assert "llama-sft has no worker '7'" in run("logs", "llama-sft", "-w", "7").err
    assert "'0' means worker-0 and ps-0" in run("logs", "llama-sft", "-w", "0").err
    assert run("logs", "llama-sft", "--grep", "(").code == 2


def test_metrics_as_table_csv_and_json(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(phase="succeeded", ended_at_ms=1_700_000_121_000, tasks=[{"name": "worker-0"}])]
    points = [[1_700_000_000_000, 20.0], [1_700_000_060_000, 40.0]]
    series = [{"task": "worker-0", "metric": "cpu_percent", "card": None, "points": points}]
    fake.answers["GET", f"/api/trackside/v1/jobs/{JOB_ID}/metrics"] = 200, {"series": series}
    assert run("metrics", "llama-sft").out.splitlines()[1].split("\t")[:4] == [
        "worker-0",
        "cpu_percent",
        "40.0",
        "40.0",
    ]
    assert run("metrics", "llama-sft", "--csv").out.splitlines() == [
        "time,task,card,metric,labels,value",
        "2023-11-14T22:13:20.000Z,worker-0,,cpu_percent,,20.0",
        "2023-11-14T22:14:20.000Z,worker-0,,cpu_percent,,40.0",
    ]
    told = json.loads(run("metrics", "llama-sft", "--json").out)
    assert (told["step_seconds"], told["series"][0]["points"][1][1]) == (60.0, 40.0)
    assert run("metrics", "llama-sft", "--json", "--csv").code == 2
    none = run("metrics", "llama-sft", "-m", "gpu")
    assert none.code == 2
    assert "llama-sft has no metric with 'gpu' in its name" in none.err
    assert "it has cpu_percent" in none.err
    fake.answers["GET", f"/api/trackside/v1/jobs/{JOB_ID}/metrics"] = 200, {"series": []}
    assert "No samples" in run("metrics", "llama-sft", "-m", "gpu").err


def test_a_jobs_own_metrics_show_with_their_labels(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job(phase="succeeded", ended_at_ms=1_700_000_121_000, tasks=[{"name": "worker-0"}])]
    points = [[1_700_000_000_000, 0.25]]
    series = [
        {"task": "worker-0", "metric": "custom.loss", "card": None, "labels": labels, "points": points}
        for labels in ({"split": "val", "run": 'a"b'}, {"split": "train"}, {})
    ]
    fake.answers["GET", f"/api/trackside/v1/jobs/{JOB_ID}/metrics"] = 200, {"series": series}
    shown = run("metrics", "llama-sft", "-m", "loss").out.splitlines()[1:]
    assert [line.split("\t")[1:3] for line in shown] == [
        ["custom.loss", "0.25"],
        [r'custom.loss{run="a\"b",split="val"}', "0.25"],
        ['custom.loss{split="train"}', "0.25"],
    ]
    rows = list(csv.DictReader(run("metrics", "llama-sft", "--csv").out.splitlines()))
    assert [row["labels"] for row in rows] == ["", r'run="a\"b",split="val"', 'split="train"']
    told = json.loads(run("metrics", "llama-sft", "--json").out)
    assert told["series"][2]["labels"] == {"split": "train"}


def test_events_come_in_pages(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job()]
    told = [{"time": "t", "level": "Info", "source": "s", "message": f"m{n}"} for n in range(130)]

    def answer(request: Request) -> tuple[int, Any]:
        offset = int(request.query["offset"][0])  # a number of events, as docs/modelarts-v2.md says
        return 200, {"total": 130, "events": told[offset : offset + 100]}

    fake.answers["GET", f"{V2}/{JOB_ID}/events"] = answer
    assert run("events", "llama-sft").out.splitlines()[-1] == "t\tInfo\ts\tm129"
    assert run("events", "llama-sft", "--tail", "1").out.splitlines()[1:] == ["t\tInfo\ts\tm129"]
    assert len(run("events", "llama-sft", "--json").out.splitlines()) == 130
    assert run("events", "llama-sft", "--level", "loud").code == 2


def test_stop_and_rm_say_what_they_did(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job()]
    fake.answers["POST", f"{V2}/{JOB_ID}/actions"] = 202, {}
    fake.answers["DELETE", f"{V2}/{JOB_ID}"] = 202, None
    assert run("stop", "llama-sft").out == "Stopping llama-sft (0f5b8a52)\n"
    assert [r.json() for r in fake.seen if r.method == "POST"] == [{"action_type": "terminate"}]
    assert run("rm", "llama-sft").out == "Deleted llama-sft (0f5b8a52)\n"


def test_submit_from_flags(fake: FakeServer, run: Run) -> None:
    fake.jobs = [job("quick")]
    fake.answers["POST", V2] = 201, {"metadata": {"id": JOB_ID, "name": "quick"}}
    ran = run(
        "submit", "-c", "python t.py", "--name", "quick", "--workers", "2", "-e", "A=b=c", "--flavor", "f"
    )
    assert (ran.code, ran.out) == (0, f"ID\tNAME\n{JOB_ID}\tquick\n")
    assert "2 workers, flavor f" in ran.err
    body = next(r.json() for r in fake.seen if r.method == "POST")
    assert body["algorithm"] == {"command": "python t.py", "environments": {"A": "b=c"}}
    assert body["spec"] == {"resource": {"node_count": 2, "flavor_id": "f"}}


def test_submit_uploads_local_code_to_a_place_of_its_own(fake: FakeServer, run: Run, tmp_path: Path) -> None:
    (tmp_path / "src" / "__pycache__").mkdir(parents=True)
    (tmp_path / "src" / "__pycache__" / "x.pyc").write_bytes(b"no")
    (tmp_path / "src" / "ü t.py").write_text("print(1)")
    (tmp_path / "job.yaml").write_text("name: quick\ncode: src\nboot_file: ü t.py\n")
    put: list[Request] = []

    def answer(request: Request) -> tuple[int, Any]:
        put.append(request)
        return 200, {}

    class Any_(dict[tuple[str, str], Any]):
        def get(self, key: tuple[str, str], default: Any = None) -> Any:
            return answer if key[0] == "PUT" else super().get(key, default)

    fake.answers = Any_()
    fake.jobs = [job("quick")]
    fake.answers["POST", V2] = 201, {"metadata": {"id": JOB_ID, "name": "quick"}}
    assert run("submit", str(tmp_path / "job.yaml")).code == 0
    body = next(r.json() for r in fake.seen if r.method == "POST")
    code_dir = body["algorithm"]["code_dir"]
    assert [request.query["url"] for request in put] == [[f"{code_dir}ü t.py"]]
    assert put[0].body == b"print(1)"
    assert run("submit", str(tmp_path / "job.yaml"), "--set", "code=none").code == 6


def test_submit_refuses_before_it_sends(fake: FakeServer, run: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: quick\ncomand: a\n")
    ran = run("submit", str(tmp_path / "job.yaml"))
    assert (ran.code, ran.err) == (6, "error: a job file has no key 'comand'\nhint: did you mean command?\n")
    assert run("submit").code == 2
    assert run("submit", "-c", "a", "--env", "A").code == 2
    assert run("submit", "-c", "a", "--workers", "0").code == 2
    assert json.loads(run("submit", "-c", "a b", "--dry-run").out)["body"]["metadata"]["name"].startswith(
        "a-"
    )
    assert fake.seen == []


def test_flavors_and_users(fake: FakeServer, run: Run) -> None:
    info = {"cpu": {"core_num": 2}, "memory": {"size": 4, "unit": "GB"}}
    fake.answers["GET", f"/v2/{PROJECT}/training-job-flavors"] = (
        200,
        {"flavors": [{"flavor_id": "cpu.2c4g", "flavor_type": "CPU", "flavor_info": info}]},
    )
    assert run("flavor", "ls").out.splitlines()[1] == "cpu.2c4g\tCPU\t2\t4 GB\t0\t"
    keys = {"name": "bob", "project_id": "p1", "access_key": "AK9", "secret_key": "SK9", "token": "T9"}
    fake.answers["POST", "/api/trackside/v1/users"] = 201, keys
    ran = run("user", "add", "bob", "--role", "viewer")
    assert "TRACKSIDE_ACCESS_KEY=AK9\nTRACKSIDE_SECRET_KEY=SK9\n" in ran.out
    assert fake.seen[-1].json() == {"name": "bob", "role": "viewer"}
    fake.answers["GET", "/api/trackside/v1/users"] = 200, {"users": [{"name": "bob", "role": "viewer"}]}
    assert run("user", "ls").out.splitlines()[1].startswith("bob\tviewer")
    fake.answers["DELETE", "/api/trackside/v1/users/bob"] = 200, None
    assert run("user", "rm", "bob").out == "Removed bob\n"


@pytest.mark.parametrize(
    ("status", "code"), [(400, 6), (401, 4), (403, 4), (404, 3), (409, 6), (413, 6), (429, 6), (500, 1)]
)
def test_refusals_have_exit_codes_and_never_show_the_secret(
    fake: FakeServer, run: Run, status: int, code: int
) -> None:
    fake.answers["GET", "/api/trackside/v1/jobs"] = status, {"error_code": "X.1", "error_msg": "said no"}
    ran = run("ls", "-v")
    assert ran.code == code
    assert "error: said no [X.1]\n" in ran.err
    assert SECRET not in ran.out + ran.err
    told = json.loads(run("ls", "--json").err)
    assert (told["error"], told["exit_code"]) == ("said no [X.1]", code)


def test_a_wrong_secret_is_refused_by_the_server(
    fake: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKSIDE_SECRET_KEY", "other")
    ran = run("ls")
    assert ran.code == 4
    assert "signature does not match" in ran.err
    assert "trackside doctor" in ran.err


def test_a_server_that_does_not_answer(run: Run, fake: FakeServer) -> None:
    ran = run("ls", "--server", "http://127.0.0.1:1")
    assert ran.code == 5
    assert "error: the server at http://127.0.0.1:1 cannot be reached (Connection refused)" in ran.err
    assert "hint: start it with: trackside serve" in ran.err


def test_something_else_that_answers(run: Run, fake: FakeServer) -> None:
    for strange in ("hello", [1], {"jobs": [{"no": "id"}]}):
        fake.answers["GET", "/api/trackside/v1/jobs"] = 200, strange
        ran = run("ls")
        assert ran.code == 1
        assert "does not answer like a Trackside server" in ran.err
    fake.answers["GET", "/api/trackside/v1/jobs"] = fake.answers["GET", "/readyz"] = (
        404,
        "<html>not here</html>",
    )
    ran = run("ls")
    assert ran.code == 1
    assert "the server answered 404, and not like a Trackside server\nhint: check the address" in ran.err
    ran = run("doctor")
    assert ran.code == 1
    assert "does not answer like a Trackside server" in ran.out
    assert "html" not in ran.out


def test_ls_counts_the_workers_of_a_job_that_is_over_by_how_they_ended(fake: FakeServer, run: Run) -> None:
    tasks = [{"name": f"worker-{n}", "state": "ended", "exit_code": code} for n, code in enumerate((0, 0, 1))]
    fake.jobs = [job("bert", "failed", tasks=tasks, workers=3)]
    assert run("ls").out.splitlines()[1].split("\t")[3] == "2/3"


def test_doctor_names_what_to_do(
    fake: FakeServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "data"
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    monkeypatch.setenv("TRACKSIDE_DATA_DIR", str(place))
    fake.answers["GET", "/readyz"] = 200, {}
    fake.answers["GET", "/api/trackside/v1/nodes"] = 200, {"nodes": [{"id": "n1", "last_seen_ms": 5}]}
    ran = run("doctor", "--json")
    found = {finding["what"]: finding for finding in json.loads(ran.out)["findings"]}
    assert ran.code == 1
    assert found["data directory"]["todo"] == f"chmod 700 {place}"
    assert found["agent"]["level"] == "fail"
    assert found["server"]["level"] == found["clock"]["level"] == found["signed in"]["level"] == "ok"
    assert {"python", "disk", "limits", "task user", "postgresql", "gpu"} <= set(found)


def test_agent_status_without_an_agent(run: Run, tmp_path: Path) -> None:
    ran = run("agent", "status", "--data-dir", str(tmp_path))
    assert ran.code == 3
    assert "no agent runs on" in ran.err
    assert run("agent", "stop", "--data-dir", str(tmp_path / "none")).out.startswith("No agent ran on")
