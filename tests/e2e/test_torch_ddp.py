"""A real PyTorch DDP job whose worker-1 is killed goes on from its checkpoint."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import LiveServer
from tests.e2e.processes import processes_of
from tests.e2e.recovering import kill, log_of, submit
from tests.e2e.sdk import client_of, wait_until
from tests.e2e.waiting import eventually
from tests.requirements import missing

pytestmark = pytest.mark.e2e
TRAIN = Path(__file__).parents[2] / "examples" / "ddp_torch" / "train.py"
PATIENCE_SECONDS = 180.0  # importing torch takes its time on a busy machine
STEPS = 100_000  # so many that it never gets there before it is killed


def test_ddp_resumes_from_its_checkpoint_after_its_worker_1_is_killed(
    server: LiveServer, open_dir: Path
) -> None:
    if importlib.util.find_spec("torch") is None:
        missing("torch (make torch)")
    script, checkpoint, steps = open_dir / "train.py", open_dir / "model.pt", open_dir / "steps"
    script.write_text(TRAIN.read_text())
    steps.write_text(str(STEPS))
    client = client_of(server)
    command = f"exec {sys.executable} {script} --checkpoint {checkpoint} --steps $(cat {steps})"
    job_id = submit(client, command, nodes=2, cores=0.5, memory_gb=1.5, proc_retry_num="2")
    wait_until(client, job_id, "Running")
    eventually(checkpoint.exists, "it made no checkpoint", seconds=PATIENCE_SECONDS)
    said = eventually(
        lambda: re.findall(r"step (\d+) loss", log_of(client, job_id, "worker-0")), "it says nothing"
    )
    steps.write_text(str(int(said[-1]) + 2_000))  # the next attempt has an end
    kill(job_id, "worker-1")
    found = wait_until(client, job_id, "Completed", seconds=PATIENCE_SECONDS)
    first, second = found.status.running_records
    assert (first.end_related_task, first.end_recover) == ("worker-1", "proc_restart")
    assert first.end_reason == "worker-1 was killed by SIGKILL from outside"
    assert second.start_type == "restarted"
    for rank in (0, 1):
        log = log_of(client, job_id, f"worker-{rank}")
        resumed = re.search(rf"start 2: rank {rank} goes on at step (\d+)", log)
        assert resumed, log[-2000:]
        assert int(resumed[1]) >= 5
        assert log.rstrip().endswith("done")
    assert processes_of(job_id) == []
