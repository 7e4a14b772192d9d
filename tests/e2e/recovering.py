"""What tests of recovery do all the time: jobs with annotations, and faults made on purpose."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from huaweicloudsdkmodelarts.v1 import (
    CreateTrainingJobRequest,
    Job,
    JobAlgorithm,
    JobMetadata,
    ShowTrainingJobLogsFromAomRequest,
    Spec,
    SpecResource,
)

from tests.e2e.processes import processes_of
from tests.e2e.sdk import details
from tests.e2e.waiting import eventually


def submit(
    client: Any,
    command: str,
    *,
    nodes: int = 3,
    cores: float = 0.2,
    memory_gb: float = 0.25,
    algorithm: Mapping[str, Any] = MappingProxyType({}),
    **wishes: str,
) -> str:
    """Create a job with fault-tolerance annotations: proc_retry_num="2" and the like."""
    annotations = {f"fault-tolerance/{name.replace('_', '-')}": value for name, value in wishes.items()}
    size = {"cpu_core_num": cores, "mem_size": memory_gb}
    body = Job(
        kind="job",
        metadata=JobMetadata(name="recovers", annotations=annotations),
        algorithm=JobAlgorithm(command=command, **algorithm),
        spec=Spec(resource=SpecResource(node_count=nodes, main_container_customized_flavor=size)),
    )
    return str(client.create_training_job(CreateTrainingJobRequest(body=body)).metadata.id)


def main_process(job_id: str, task: str) -> int:
    """Return the process of a task's command."""

    def look() -> int | None:
        for pid in sorted(processes_of(job_id)):
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
                name = Path(f"/proc/{parent}/comm").read_text().strip()
            except OSError:
                continue
            if f"TRACKSIDE_TASK={task}".encode() in environment and name.startswith("trackside-shim"):
                return pid
        return None

    return int(eventually(look, f"{task} has no process"))


def log_of(client: Any, job_id: str, task: str) -> str:
    """Return everything a task printed, over all its starts."""
    request = ShowTrainingJobLogsFromAomRequest(training_job_id=job_id, task_id=task)
    return str(client.show_training_job_logs_from_aom(request).content)


def kill(job_id: str, task: str) -> int:
    """Kill a task's main process as somebody outside would; return its pid."""
    pid = main_process(job_id, task)
    os.kill(pid, signal.SIGKILL)
    return pid


def restarted(client: Any, job_id: str, records: int) -> Any:
    """Return the details once that many attempts have begun and the last one runs."""

    def look() -> Any:
        found = details(client, job_id)
        running = found.status.phase == "Running" and len(found.status.running_records or ()) >= records
        return found if running else None

    return eventually(look, f"{job_id} did not come back")
