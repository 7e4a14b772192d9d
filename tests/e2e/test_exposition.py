"""A live server is scraped by a real Prometheus, and keeps its samples in a real VictoriaMetrics."""

import csv
import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from huaweicloudsdkmodelarts import v1 as sdk
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, submit, wait_until
from tests.e2e.waiting import eventually
from tests.servers.prometheus import PrometheusServer
from tests.servers.victoriametrics import VictoriaMetricsServer

pytestmark = pytest.mark.e2e

SCRAPE = """
scrape_configs:
  - job_name: trackside
    scrape_interval: 1s
    authorization: {{credentials: "{token}"}}
    static_configs: [{{targets: ["{target}"]}}]
"""
BURN = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; sleep 60"


@pytest.fixture
def page_server(tmp_path: Path) -> Iterator[LiveServer]:
    """A server that measures every second and whose page asks for a token."""
    config = tmp_path / "trackside.toml"
    config.write_text('sample_seconds = 1\nstop_grace_seconds = 2\nmetrics_page = "token"\n')
    live = LiveServer(tmp_path / "data", extra=("--config", str(config)))
    try:
        yield live.start()
    finally:
        live.stop()


def ask(server: PrometheusServer, query: str) -> list[dict[str, Any]]:
    url = f"{server.url}/api/v1/query?query={urllib.parse.quote(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def test_prometheus_scrapes_a_running_task_and_loses_it_when_it_ends(page_server: LiveServer) -> None:
    target = page_server.endpoint.removeprefix("http://")
    prometheus = PrometheusServer(SCRAPE.format(token=page_server.token, target=target))
    try:
        client = client_of(page_server)
        job_id = submit(client, BURN, name="scraped")
        query = f'trackside_task_cpu_percent{{job_id="{job_id}"}}'
        (found,) = eventually(lambda: ask(prometheus, query), "the task was never scraped")
        labels = {name: found["metric"][name] for name in ("job_name", "task", "job")}
        assert labels == {"job_name": "scraped", "task": "worker-0", "job": "trackside"}
        assert ask(prometheus, "trackside_jobs{phase='running'} == 1")
        assert ask(prometheus, "trackside_nodes{state='up'} == 1")
        applied = ask(prometheus, "trackside_reports_applied_total > 0")
        assert applied
        created = 'trackside_request_duration_seconds_count{operation="CreateTrainingJob",status="2xx"} == 1'
        assert ask(prometheus, created)
        client.stop_training_job(
            sdk.StopTrainingJobRequest(
                training_job_id=job_id, body=sdk.JobActionType(action_type="terminate")
            )
        )
        wait_until(client, job_id, "Terminated")
        # Five minutes would be how long Prometheus goes on with a series that just stops coming.
        eventually(lambda: not ask(prometheus, query), "the task is still shown", seconds=30)
    finally:
        prometheus.remove()


def test_the_page_asks_for_a_token_and_speaks_openmetrics(page_server: LiveServer) -> None:
    url = page_server.endpoint + "/metrics"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=10)
    assert refused.value.code == 401
    refused.value.close()
    headers = {"Authorization": f"Bearer {page_server.token}", "Accept": "application/openmetrics-text"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        names = {family.name for family in text_string_to_metric_families(answer.read().decode())}
    assert {"trackside_build", "trackside_jobs", "trackside_nodes", "trackside_samples_dropped"} <= names


def test_the_page_is_open_on_loopback(server: LiveServer) -> None:
    with urllib.request.urlopen(server.endpoint + "/metrics", timeout=10) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        assert b"trackside_build_info{" in answer.read()


def test_single_samples_leave_the_server_as_csv_and_parquet(page_server: LiveServer, tmp_path: Path) -> None:
    client = client_of(page_server)
    job_id = submit(client, "sleep 3", name="exported")
    assert wait_until(client, job_id).status.phase == "Completed"
    environment = {
        **os.environ,
        "TRACKSIDE_ENDPOINT": page_server.endpoint,
        "TRACKSIDE_PROJECT_ID": page_server.project_id,
        "TRACKSIDE_ACCESS_KEY": page_server.access_key,
        "TRACKSIDE_SECRET_KEY": page_server.secret_key,
    }

    def export(*flags: str) -> str:
        command = [sys.executable, "-m", "trackside", "metrics", job_id, *flags]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    rows = list(csv.DictReader(export("--csv", "--raw").splitlines()))
    memory = [row for row in rows if row["metric"] == "memory_percent"]
    assert len(memory) >= 3, "one every second, not one a minute"
    export("--parquet", str(tmp_path / "out.parquet"), "--raw")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.column("value").to_pylist() == [float(row["value"]) for row in rows]


def test_samples_in_victoriametrics_are_read_through_the_sdk(tmp_path: Path) -> None:
    store = VictoriaMetricsServer()
    config = tmp_path / "trackside.toml"
    address = store.url.replace("http://", "http://someone:hidden-word@")
    config.write_text(f'sample_seconds = 1\nmetrics_url = "{address}"\n')
    live = LiveServer(tmp_path / "data", extra=("--config", str(config)))
    try:
        client = client_of(live.start())
        job_id = submit(client, "sleep 3", name="remote")
        assert wait_until(client, job_id).status.phase == "Completed"
        request = sdk.ShowTrainingJobMetricsRequest(training_job_id=job_id, task_id="worker-0")
        metrics = {one.metric: one.value for one in client.show_training_job_metrics(request).metrics}
        assert any(value >= 0 for value in metrics["memUsage"])
        assert not (tmp_path / "data" / "metrics.db").exists()

        def stored() -> list[Any]:
            store.force_flush()
            url = f"{store.url}/api/v1/series?match[]={{job_id=%22{job_id}%22}}&start=0"
            with urllib.request.urlopen(url, timeout=10) as answer:
                found: list[Any] = json.load(answer)["data"]
            return found

        names = {one["__name__"] for one in eventually(stored, "nothing came to VictoriaMetrics")}
        assert {"trackside_task_cpu_percent", "trackside_task_memory_percent"} <= names
        store.stop()
        submit(client, "sleep 1", name="meanwhile")
        eventually(lambda: any("queued on disk" in line for line in live.log), "the outage is not said")
        assert not any("hidden-word" in line for line in live.log)
    finally:
        live.stop()
        store.remove()
