"""One attempt of a job that really failed: by API, in its links, and as one file."""

import csv
import io
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, details
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e
WAIT_SECONDS = 90
# worker-1 prints a lot and raises in every attempt; the others would go on.
COMMAND = (
    "python3 -uc 'import os, time\n"
    'print("start", os.environ["MA_SCHEDULE_CNT"])\n'
    'if os.environ["RANK"] == "1":\n'
    '    print("\\n".join(f"line {n}" for n in range(20000)))\n'
    "    time.sleep(1.5)\n"
    '    raise ValueError("no loss")\n'
    "time.sleep(600)'"
)
RETRIES = {"fault-tolerance/job-retry-num": "1", "fault-tolerance/job-unconditional-retry": "true"}


class Site:
    """A server, asked by its own API."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server

    def get(self, path: str) -> bytes:
        request = urllib.request.Request(
            f"{self.server.endpoint}{path}", headers={"Authorization": f"Bearer {self.server.token}"}
        )
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            return bytes(answer.read())

    def json(self, path: str) -> Any:
        return json.loads(self.get(path))

    def refused(self, path: str) -> int:
        with pytest.raises(urllib.error.HTTPError) as error:
            self.get(path)
        with error.value:
            return error.value.code

    def run(self, *arguments: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRACKSIDE_")}
        done = subprocess.run(
            [sys.executable, "-m", "trackside", *arguments],
            env=kept | {"TRACKSIDE_DATA_DIR": str(self.server.data_dir)},
            check=True,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        return done.stdout


@pytest.fixture(scope="module")
def site(server: LiveServer) -> Site:
    return Site(server)


@pytest.fixture(scope="module")
def failed(site: Site, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a job of three that failed twice."""
    file = tmp_path_factory.mktemp("job") / "job.json.yaml"
    wanted = {
        "name": "recorded",
        "command": COMMAND,
        "workers": 3,
        "cpu": 0.2,
        "memory": "128MiB",
        "annotations": RETRIES,
    }
    file.write_text(json.dumps(wanted))
    job_id = str(json.loads(site.run("submit", str(file), "--json"))["job"]["id"])

    def over() -> bool:
        return bool(site.json(f"/api/trackside/v1/jobs/{job_id}")["phase"] == "failed")

    eventually(over, "it never failed", seconds=WAIT_SECONDS)
    return job_id


def test_every_attempt_is_listed_with_what_it_cost(site: Site, failed: str) -> None:
    told = site.json(f"/api/trackside/v1/jobs/{failed}/attempts")
    first, second = told["attempts"]
    assert (first["culprit"], first["recover"], first["same_cause"]) == ("worker-1", "job_reschedule", [])
    assert (second["same_cause"], second["pattern"]) == ([1], "attempt 1 had the same cause")
    assert [one["result"] for one in first["recoveries"]] == ["success"]
    assert [one["result"] for one in second["recoveries"]] == ["quotaExceeded"]
    assert told["lost"]["unit"] == "core"
    assert told["lost"]["total_unit_ms"] == pytest.approx(
        first["lost"]["total_unit_ms"] + second["lost"]["total_unit_ms"]
    )
    assert first["lost"]["total_unit_ms"] > 0.2 * 1500, "worker-1 alone ran for that long"


def test_one_attempt_has_its_evidence_and_its_links_work(site: Site, failed: str) -> None:
    view = site.json(f"/api/trackside/v1/jobs/{failed}/attempts/1")
    assert view["others"].startswith("the other 2 tasks were stopped ")
    assert (view["exits"][0]["task"], view["exits"][0]["after_first_ms"]) == ("worker-1", 0)
    assert all(one["after_first_ms"] >= 0 for one in view["exits"])
    worker = view["tasks"][1]
    assert (worker["name"], worker["exit_code"], worker["memory_limit_bytes"]) == (
        "worker-1",
        1,
        128 * 1024**2,
    )
    log = site.json(view["links"]["logs"]["worker-1"])
    assert "ValueError: no loss" in log["text"]
    assert "start 1" not in log["text"], "only the last 200 lines"
    begin = site.json(view["links"]["logs"]["worker-1"] + "&order=asc")
    assert begin["text"].startswith("start 1\nline 0\n")
    assert (begin["first_line"], begin["last_line"]) == (1, 200)
    series = site.json(view["links"]["metrics"])["series"]
    assert {one["task"] for one in series} == {"worker-0", "worker-1", "worker-2"}


def test_what_is_not_there_is_refused(site: Site, failed: str) -> None:
    base = f"/api/trackside/v1/jobs/{failed}/attempts"
    assert site.refused(f"{base}/3") == 404
    assert site.refused(f"{base}/3/export") == 404
    assert site.refused(f"{base}/one") == 400
    assert site.refused(f"{base}/1/logs/worker-9") == 404
    assert site.refused(f"{base}/1/logs/worker-1?lines=0") == 400


def test_one_file_holds_that_attempt_and_no_other(site: Site, failed: str) -> None:
    content = site.get(f"/api/trackside/v1/jobs/{failed}/attempts/2/export")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        read = {name: archive.read(name).decode() for name in names}
    logs = [f"logs/worker-{rank}.log" for rank in range(3)]
    assert set(names) >= {"README.txt", "attempt.json", "metrics.csv", "events.jsonl", *logs}
    assert json.loads(read["attempt.json"])["number"] == 2
    assert read["logs/worker-1.log"].startswith("start 2\nline 0\n")
    assert read["logs/worker-1.log"].count("line ") >= 20_000
    assert read["logs/worker-0.log"] == "start 2\n"
    window = json.loads(read["attempt.json"])
    rows = list(csv.DictReader(io.StringIO(read["metrics.csv"])))
    assert {row["task"] for row in rows} == {"worker-0", "worker-1", "worker-2"}
    assert {row["metric"] for row in rows} >= {"cpu_percent", "memory_percent"}
    assert min(row["time"] for row in rows) >= _time(window["started_at_ms"])
    assert max(row["time"] for row in rows) <= _time(window["ended_at_ms"])
    events = [json.loads(line) for line in read["events.jsonl"].splitlines()]
    assert any(
        "ValueError" in event["message"] or "exited with code 1" in event["message"] for event in events
    )


def test_the_command_writes_the_same_file_and_tells_the_story(
    site: Site, failed: str, tmp_path: Path
) -> None:
    file = tmp_path / "second.zip"
    site.run("show", failed, "--attempt", "2", "--export", str(file))
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
    story = site.run("explain", failed, "--lines", "3")
    assert story.startswith("Attempt 2 ended at ")
    assert "pattern\tattempt 1 had the same cause" in story
    assert "ValueError: no loss" in story.splitlines()[-1]
    assert "not allowed: its budget of 1 is used up" in site.run("show", failed, "--attempt", "2")


def test_everything_is_kept_after_the_server_was_started_again(own_server: LiveServer) -> None:
    site = Site(own_server.start())
    made = json.loads(
        site.run("submit", "-c", "echo once; exit 3", "--json", "--set", "memory=64MiB", "--set", "cpu=0.1")
    )
    job_id = made["job"]["id"]
    path = f"/api/trackside/v1/jobs/{job_id}/attempts/1"
    eventually(lambda: site.json(path)["ended_at_ms"], "it never ended")
    before = site.json(path)
    own_server.stop()
    own_server.start()
    assert Site(own_server).json(path) == before
    assert Site(own_server).json(f"{path}/logs/worker-0")["text"] == "once\n"


def test_the_sdk_sees_the_same_records(site: Site, failed: str) -> None:
    status = details(client_of(site.server), failed).status
    first, second = status.running_records
    assert (first.end_recover, first.end_related_task) == ("job_reschedule", "worker-1")
    assert [one.recover_result for one in second.recover_records] == ["quotaExceeded"]


def _time(at_ms: int) -> str:
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
