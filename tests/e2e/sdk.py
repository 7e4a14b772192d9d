"""The unmodified official SDK, pointed at a test server, and what tests do with it all the time."""

from typing import Any

from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkmodelarts.v1 import (
    CreateTrainingJobRequest,
    Job,
    JobAlgorithm,
    JobMetadata,
    ModelArtsClient,
    ShowTrainingJobDetailsRequest,
    Spec,
    SpecResource,
)

from tests.e2e.conftest import LiveServer
from tests.e2e.waiting import WAIT_SECONDS, eventually

OVER = ("Completed", "Failed", "Terminated", "Abnormal")


def client_of(server: LiveServer) -> Any:
    """Return the SDK's client, built as its documentation says."""
    credentials = BasicCredentials(server.access_key, server.secret_key, server.project_id)
    return ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(server.endpoint).build()


def submit(client: Any, command: str, *, name: str = "job", nodes: int = 1, **algorithm: Any) -> str:
    """Create a job that runs a command and return its id."""
    resource = SpecResource(
        node_count=nodes, main_container_customized_flavor={"cpu_core_num": 0.2, "mem_size": 0.25}
    )
    body = Job(
        kind="job",
        metadata=JobMetadata(name=name),
        algorithm=JobAlgorithm(command=command, **algorithm),
        spec=Spec(resource=resource),
    )
    return str(client.create_training_job(CreateTrainingJobRequest(body=body)).metadata.id)


def details(client: Any, job_id: str) -> Any:
    """Return the details of a job."""
    return client.show_training_job_details(ShowTrainingJobDetailsRequest(training_job_id=job_id))


def wait_until(client: Any, job_id: str, *phases: str, seconds: float = WAIT_SECONDS) -> Any:
    """Return the details once the job is in one of the phases (or, by default, over)."""
    wanted = phases or OVER
    return eventually(
        lambda: _in_phase(client, job_id, wanted), f"{job_id} never became {wanted}", seconds=seconds
    )


def _in_phase(client: Any, job_id: str, wanted: tuple[str, ...]) -> Any:
    found = details(client, job_id)
    assert found.status.phase in wanted or found.status.phase not in OVER, found.status
    return found if found.status.phase in wanted else None
