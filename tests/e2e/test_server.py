"""The server as a whole: other databases, large logs, scripts that change nothing but their endpoint."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from huaweicloudsdkmodelarts.v1 import (
    ShowTrainingJobLogsFromAomRequest,
    ShowTrainingJobLogsPreviewRequest,
    ShowTrainingJobMetricsRequest,
)

from tests.e2e.conftest import LiveServer
from tests.e2e.processes import memory_bytes
from tests.e2e.sdk import client_of, details, submit, wait_until
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.e2e
MEGABYTE = 1_000_000


@pytest.fixture
def postgres() -> Iterator[str]:
    """A fresh database on a real PostgreSQL."""
    server = PostgresServer()
    try:
        yield server.create_database()
    finally:
        server.remove()


def test_jobs_run_and_survive_a_kill_on_postgresql(own_server: LiveServer, postgres: str) -> None:
    config = own_server.data_dir.parent / "postgres.toml"
    config.write_text(f'database_url = "{postgres}"\nstop_grace_seconds = 2\n')
    own_server.extra = ("--config", str(config))
    client = client_of(own_server.start())
    job_id = submit(client, "sleep 2; exit 5", nodes=2)
    wait_until(client, job_id, "Running")
    own_server.kill()
    job = wait_until(client_of(own_server.start()), job_id)
    assert job.status.phase == "Failed"
    assert 5 in [status.exit_code for status in job.status.task_statuses]
    assert not (own_server.data_dir / "trackside.db").exists()


def test_200_mb_of_output_lose_no_line_and_cost_the_server_no_memory(own_server: LiveServer) -> None:
    client = client_of(own_server.start())
    assert own_server.process is not None
    before = memory_bytes(own_server.process.pid)
    lines = 2_000_000
    job_id = submit(client, f"seq -f '%099.0f' {lines}")
    wait_until(client, job_id, "Completed")
    preview = client.show_training_job_logs_preview(
        ShowTrainingJobLogsPreviewRequest(training_job_id=job_id, task_id="worker-0")
    )
    assert preview.full_size == 100 * lines
    assert preview.current_size <= 5 * 1024 * 1024
    assert preview.content.endswith(f"{lines:099d}\n")
    for base in (1, lines // 2, lines - 50):
        page = client.show_training_job_logs_from_aom(
            ShowTrainingJobLogsFromAomRequest(
                training_job_id=job_id, task_id="worker-0", base_line=str(base), lines=50, order="asc"
            )
        )
        assert [int(line) for line in page.content.split()] == list(range(base + 1, base + 51))
    assert memory_bytes(own_server.process.pid) - before < 60 * MEGABYTE


def test_a_script_that_names_only_a_region_runs_unchanged(server: LiveServer) -> None:
    script = textwrap.dedent(
        """
        from huaweicloudsdkcore.auth.credentials import BasicCredentials
        from huaweicloudsdkmodelarts.v1 import ListTrainingJobsRequest, ModelArtsClient
        from huaweicloudsdkmodelarts.v1.region.modelarts_region import ModelArtsRegion
        client = ModelArtsClient.new_builder().with_region(ModelArtsRegion.value_of("cn-north-4")).build()
        print(client.list_training_jobs(ListTrainingJobsRequest(body={"limit": 1})).limit)
        """
    )
    environment = {
        **os.environ,
        "HUAWEICLOUD_SDK_REGION_MODELARTS_CN_NORTH_4": server.endpoint,
        "HUAWEICLOUD_SDK_IAM_ENDPOINT": server.endpoint,
        "HUAWEICLOUD_SDK_AK": server.access_key,
        "HUAWEICLOUD_SDK_SK": server.secret_key,
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "1", done.stderr


def test_two_workers_meet_and_every_one_is_measured(server: LiveServer) -> None:
    client = client_of(server)
    script = textwrap.dedent(
        """
        import os, socket, time
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            with socket.create_server(address) as door:
                for _ in range(size - 1):
                    peer, _ = door.accept()
                    peer.sendall(b"hello")
        else:
            while True:
                try:
                    with socket.create_connection(address) as peer:
                        print(peer.recv(5).decode())
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            pass
        """
    )
    job_id = submit(client, f"python - <<'END'\n{script}\nEND", nodes=2)
    job = wait_until(client, job_id)
    assert job.status.phase == "Completed", job.status.running_records
    for task in ("worker-0", "worker-1"):
        found = client.show_training_job_metrics(
            ShowTrainingJobMetricsRequest(training_job_id=job_id, task_id=task)
        )
        values = {metric.metric: metric.value for metric in found.metrics}
        assert max(values["cpuUsage"]) > 20, "it burned all of its fifth of a core"
        assert 0 < max(values["memUsage"]) < 100
        assert set(values["npuUtil"]) == {-1.0}


def test_secrets_of_the_server_reach_no_task(server: LiveServer) -> None:
    client = client_of(server)
    look = "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; ps axww -o args; ls -la " + str(
        server.data_dir
    )
    job_id = submit(client, f"{look} 2>&1; cat {server.data_dir}/credentials.json")
    job = wait_until(client, job_id)
    assert job.status.phase == "Failed", "reading the keys must not work"
    told = client.show_training_job_logs_preview(
        ShowTrainingJobLogsPreviewRequest(training_job_id=job_id, task_id="worker-0")
    ).content
    token = (server.data_dir / "agent" / "token").read_text()
    for secret in ("must-not-reach-tasks", server.secret_key, server.token, token):
        assert secret not in told
    assert details(client, job_id).status.tasks == ["worker-0"]


def test_the_data_directory_is_for_its_owner_alone(server: LiveServer) -> None:
    for path in [server.data_dir, *server.data_dir.glob("*")]:
        assert path.stat().st_mode & 0o077 == 0, f"{path} can be seen by others"
    assert Path(server.data_dir / "credentials.json").stat().st_mode & 0o777 == 0o600


def test_a_second_server_of_a_data_directory_says_what_is_wrong(server: LiveServer) -> None:
    command = [sys.executable, "-m", "trackside", "serve", "--port", "0", "--data-dir", str(server.data_dir)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 6
    assert ran.stderr.splitlines()[-1].startswith(f"hint: if another server uses {server.data_dir}, stop it")
