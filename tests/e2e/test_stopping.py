"""Stopping: the whole tree goes, and stopped is said only once it is gone."""

import textwrap
import time

import pytest
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkmodelarts.v1 import (
    DeleteTrainingJobRequest,
    JobActionType,
    ShowTrainingJobDetailsRequest,
    StopTrainingJobRequest,
)

from tests.e2e.conftest import LiveServer
from tests.e2e.processes import processes_of
from tests.e2e.sdk import client_of, submit, wait_until
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

TREE = textwrap.dedent(
    """
    import os, signal, time
    def live(ignore):
        if ignore:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)
    def fork_while_dying(*_):
        if os.fork() == 0:
            live(True)
        os._exit(0)
    for number in range(29):
        if os.fork() == 0:
            if number % 3 == 0:
                os.setsid()
            if number % 5 == 0 and os.fork():
                os._exit(0)
            if number % 7 == 0:
                signal.signal(signal.SIGTERM, fork_while_dying)
                while True:
                    time.sleep(60)
            live(number % 2 == 0)
    print("up", flush=True)
    live(True)
    """
)


def stop(client: object, job_id: str) -> None:
    """Ask a job to stop."""
    body = JobActionType(action_type="terminate")
    client.stop_training_job(StopTrainingJobRequest(training_job_id=job_id, body=body))  # type: ignore[attr-defined]


def test_a_tree_of_thirty_half_of_which_ignores_term_is_gone_when_stopped_is_said(
    own_server: LiveServer,
) -> None:
    client = client_of(own_server.start())
    job_id = submit(client, "python - <<'EOF'\n" + TREE + "\nEOF")
    wait_until(client, job_id, "Running")
    eventually(lambda: len(processes_of(job_id)) >= 30, "the tree did not grow")
    stop(client, job_id)
    job = wait_until(client, job_id, "Terminated")
    assert processes_of(job_id) == []
    assert job.status.running_records[-1].end_reason == "stopped by admin"


def test_a_queued_job_stops_at_once_and_a_job_that_is_over_stays_as_it_is(server: LiveServer) -> None:
    client = client_of(server)
    job_id = submit(client, "true")
    wait_until(client, job_id, "Completed")
    stop(client, job_id)
    assert wait_until(client, job_id).status.phase == "Completed"


def test_deleting_a_running_job_stops_it_and_hides_it_at_once(server: LiveServer) -> None:
    client = client_of(server)
    job_id = submit(client, "sleep 300")
    wait_until(client, job_id, "Running")
    client.delete_training_job(DeleteTrainingJobRequest(training_job_id=job_id))
    with pytest.raises(ClientRequestException) as caught:
        client.show_training_job_details(ShowTrainingJobDetailsRequest(training_job_id=job_id))
    assert caught.value.status_code == 404
    eventually(lambda: not processes_of(job_id), "the deleted job went on")
    deadline = time.monotonic() + 20
    while any((server.data_dir / "logs").glob(job_id)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (server.data_dir / "logs" / job_id).exists()
