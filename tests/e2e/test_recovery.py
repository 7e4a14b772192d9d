"""Faults made for real, and what becomes of the jobs: in place, task by task, through the queue, or not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huaweicloudsdkmodelarts.v1 import (
    Input,
    InputDataInfo,
    InputDataInfoObs,
    JobActionType,
    Output,
    Remote,
    RemoteObs,
    StopTrainingJobRequest,
)

from tests.e2e.conftest import LiveServer
from tests.e2e.processes import processes_of
from tests.e2e.recovering import kill, log_of, main_process, restarted, submit
from tests.e2e.sdk import client_of, wait_until
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

# Says who it is, runs until it is told to go, and (a file of its own tells) which time this is.
WORKER = (
    'echo "start $MA_SCHEDULE_CNT.$MA_PROC_START_CNT"; while [ ! -e {gate} ]; do sleep 0.05; done; echo done'
)


@pytest.fixture
def gate(open_dir: Path) -> Iterator[Path]:
    """Return a file whose appearance lets every worker end."""
    path = open_dir / "gate"
    yield path
    path.touch()


def test_all_ranks_start_again_in_place(server: LiveServer, gate: Path) -> None:
    client = client_of(server)
    job_id = submit(client, WORKER.format(gate=gate), proc_retry_num="2")
    wait_until(client, job_id, "Running")
    before = {task: main_process(job_id, f"worker-{task}") for task in range(3)}
    kill(job_id, "worker-1")
    found = restarted(client, job_id, 2)
    after = {task: main_process(job_id, f"worker-{task}") for task in range(3)}
    assert not set(before.values()) & set(after.values())
    first, second = found.status.running_records
    assert first.end_reason == "worker-1 was killed by SIGKILL from outside"
    assert (first.end_related_task, first.end_recover) == ("worker-1", "proc_restart")
    assert (first.start_type, second.start_type) == ("init_or_rescheduled", "restarted")
    gate.touch()
    wait_until(client, job_id, "Completed")
    for task in range(3):
        assert log_of(client, job_id, f"worker-{task}").count("start 1.2") == 1
    assert processes_of(job_id) == []


def test_only_the_failed_task_is_replaced(server: LiveServer, gate: Path) -> None:
    client = client_of(server)
    job_id = submit(client, WORKER.format(gate=gate), pod_retry_num="1")
    wait_until(client, job_id, "Running")
    before = {task: main_process(job_id, f"worker-{task}") for task in range(3)}
    killed = kill(job_id, "worker-2")
    eventually(lambda: main_process(job_id, "worker-2") != killed, "worker-2 was not replaced")
    assert {task: main_process(job_id, f"worker-{task}") for task in (0, 1)} == {0: before[0], 1: before[1]}
    gate.touch()
    found = wait_until(client, job_id, "Completed")
    assert len(found.status.running_records) == 1
    assert "start 2.1" in log_of(client, job_id, "worker-2")
    assert "start 2" not in log_of(client, job_id, "worker-0")


def test_rank_0_takes_the_whole_job_through_the_queue(server: LiveServer, gate: Path) -> None:
    client = client_of(server)
    job_id = submit(client, WORKER.format(gate=gate), proc_retry_num="3", job_retry_num="3")
    wait_until(client, job_id, "Running")
    kill(job_id, "worker-0")
    found = restarted(client, job_id, 2)
    first, second = found.status.running_records
    assert (first.end_recover, first.end_related_task) == ("job_reschedule", "worker-0")
    assert second.start_type == "init_or_rescheduled"
    gate.touch()
    wait_until(client, job_id, "Completed")
    assert "start 2.1" in log_of(client, job_id, "worker-1")


def test_a_failure_of_its_own_is_not_retried_unless_it_asks(server: LiveServer) -> None:
    client = client_of(server)
    plain = submit(client, "exit 3", nodes=1, job_retry_num="2")
    asking = submit(client, "exit 3", nodes=1, job_retry_num="5", job_unconditional_retry="true")
    assert len(wait_until(client, plain, "Failed").status.running_records) == 1
    found = wait_until(client, asking, "Failed")
    assert len(found.status.running_records) == 4  # three restarts in a row and no more


def test_it_recovers_also_when_server_and_agent_die_with_it(own_server: LiveServer, gate: Path) -> None:
    server = own_server.start()
    client = client_of(server)
    job_id = submit(client, WORKER.format(gate=gate), proc_retry_num="5")
    wait_until(client, job_id, "Running")
    killed = kill(job_id, "worker-1")
    server.kill()
    server.start()
    client = client_of(server)
    restarted(client, job_id, 2)
    assert main_process(job_id, "worker-1") != killed
    gate.touch()
    wait_until(client, job_id, "Completed")
    assert processes_of(job_id) == []


def test_stopping_a_job_that_recovers_leaves_nothing(server: LiveServer, gate: Path) -> None:
    client = client_of(server)
    job_id = submit(client, "trap '' TERM; " + WORKER.format(gate=gate), proc_retry_num="5")
    wait_until(client, job_id, "Running")
    kill(job_id, "worker-1")
    client.stop_training_job(
        StopTrainingJobRequest(training_job_id=job_id, body=JobActionType(action_type="terminate"))
    )
    gate.touch()
    wait_until(client, job_id, "Terminated")
    assert processes_of(job_id) == []


def test_outputs_written_at_the_end_are_stored_before_the_next_attempt(
    server: LiveServer, gate: Path
) -> None:
    client = client_of(server)
    command = (
        'trap "echo saved by $VC_TASK_INDEX > $OUT/$VC_TASK_INDEX.txt; exit 1" TERM; '
        '[ "$MA_PROC_START_CNT" = 1 ] || { ls $PREVIOUS; exit 0; }; '
        f"while [ ! -e {gate} ]; do sleep 0.05; done"
    )
    output = Output(
        name="OUT", access_method="env", remote=Remote(obs=RemoteObs(obs_url="obs://recovered/saved/"))
    )
    previous = Input(
        name="PREVIOUS",
        access_method="env",
        remote=InputDataInfo(obs=InputDataInfoObs(obs_url="obs://recovered/saved/")),
    )
    bucket = server.data_dir / "obs" / "recovered" / "saved"
    bucket.mkdir(parents=True)
    (bucket / "first.txt").write_text("here from the start")
    job_id = submit(
        client, command, proc_retry_num="1", algorithm={"outputs": [output], "inputs": [previous]}
    )
    wait_until(client, job_id, "Running")
    kill(job_id, "worker-1")
    wait_until(client, job_id, "Completed")
    assert {"0.txt", "2.txt", "first.txt"} <= set(log_of(client, job_id, "worker-1").split())
