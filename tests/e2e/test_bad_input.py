"""Whatever is sent, the answer is a clear refusal, never a 5xx and never a half-made job."""

import http.client
import json
import os
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from tests.e2e.conftest import LiveServer

pytestmark = pytest.mark.e2e
EXAMPLES = 100 if os.environ.get("TRACKSIDE_SOAK") else 4  # per operation, valid and not
# Not part of what users call, or would take away the keys this test signs with.
NOT_ATTACKED = ("/api/trackside/v1/agent", "/api/trackside/v1/users")


def call(server: LiveServer, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """Send a request with the admin's token and return status and body."""
    address = urlsplit(server.endpoint)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    try:
        headers = {"X-Auth-Token": server.token, "Content-Type": "application/json"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def jobs_path(server: LiveServer) -> str:
    return f"/v2/{server.project_id}/training-jobs"


def job(**fields: Any) -> dict[str, Any]:
    """Return a good create body with some parts replaced."""
    body: dict[str, Any] = {
        "kind": "job",
        "metadata": {"name": "x"},
        "algorithm": {"command": "true"},
        "spec": {"resource": {"node_count": 1}},
    }
    return body | fields


BAD: dict[str, bytes] = {
    "not json": b"{",
    "not an object": b"[1, 2]",
    "bad utf-8": b'{"metadata": {"name": "\xff"}}',
    "deep": b"[" * 100_000,
    "name of a wrong type": json.dumps(job(metadata={"name": 7})).encode(),
    "name too long": json.dumps(job(metadata={"name": "a" * 65})).encode(),
    "name with a slash": json.dumps(job(metadata={"name": "a/b"})).encode(),
    "no name": json.dumps(job(metadata={})).encode(),
    "no command": json.dumps(job(algorithm={})).encode(),
    "absurd node count": json.dumps(job(spec={"resource": {"node_count": 10**9}})).encode(),
    "node count zero": json.dumps(job(spec={"resource": {"node_count": 0}})).encode(),
    "nul in the command": json.dumps(job(algorithm={"command": "a\0b"})).encode(),
    "unknown flavor": json.dumps(job(spec={"resource": {"flavor_id": "huge"}})).encode(),
    "unknown engine": json.dumps(
        job(algorithm={"command": "true", "engine": {"engine_id": "nope"}})
    ).encode(),
    "boot file that is not there": json.dumps(
        job(algorithm={"code_dir": "obs://b/code/", "boot_file": "obs://b/code/train.py"})
    ).encode(),
    "input that climbs out": json.dumps(
        job(
            algorithm={
                "command": "true",
                "inputs": [{"name": "d", "remote": {"obs": {"obs_url": "obs://b/../../etc/"}}}],
            }
        )
    ).encode(),
    "output that climbs out": json.dumps(
        job(
            algorithm={
                "command": "true",
                "outputs": [{"name": "d", "remote": {"obs": {"obs_url": "/../../etc/"}}}],
            }
        )
    ).encode(),
    "environment that is reserved": json.dumps(
        job(algorithm={"command": "true", "environments": {"MA_X": "1"}})
    ).encode(),
    "more than the machine has": json.dumps(
        job(spec={"resource": {"main_container_customized_flavor": {"cpu_core_num": 4096, "mem_size": 1}}})
    ).encode(),
    "NaN": b'{"metadata":{"name":"x"},"algorithm":{"command":"true"},"spec":{"resource":{"node_count":NaN}}}',
}


@pytest.mark.parametrize("what", list(BAD))
def test_a_bad_job_is_refused_with_a_code_and_a_sentence(server: LiveServer, what: str) -> None:
    before = call(server, "POST", f"/v2/{server.project_id}/training-job-searches", b"{}")[1]["total"]
    status, answer = call(server, "POST", jobs_path(server), BAD[what])
    assert 400 <= status < 500, answer
    assert answer["error_code"].startswith(("ModelArts.", "APIGW."))
    assert len(answer["error_msg"]) > 10
    after = call(server, "POST", f"/v2/{server.project_id}/training-job-searches", b"{}")[1]["total"]
    assert after == before, "a refused job must not be half made"


def test_a_huge_body_is_refused_with_413(server: LiveServer) -> None:
    status, answer = call(server, "POST", jobs_path(server), b" " * (9 * 1024 * 1024))
    assert status == 413
    assert answer["error_code"]


@pytest.mark.parametrize(
    "job_id", ["nope", "..%2f..%2fetc", "%00", "a" * 5000, "11111111-1111-4111-8111-111111111111"]
)
def test_unknown_jobs_are_404_in_every_spelling(server: LiveServer, job_id: str) -> None:
    for path in (f"{jobs_path(server)}/{job_id}", f"{jobs_path(server)}/{job_id}/metrics/worker-0"):
        status, answer = call(server, "GET", path)
        assert status in (400, 404), answer
        assert answer["error_msg"]


def test_requests_that_are_not_signed_or_wrongly_signed_are_401(server: LiveServer) -> None:
    stranger = LiveServer(
        server.data_dir, endpoint=server.endpoint, project_id=server.project_id, token="wrong"
    )
    status, answer = call(stranger, "GET", f"{jobs_path(server)}/x")
    assert status == 401
    assert answer["error_code"] == "APIGW.0301"


@pytest.mark.timeout(3600)
def test_no_input_that_the_published_api_describes_or_forbids_breaks_the_server(server: LiveServer) -> None:
    schema = schemathesis.openapi.from_url(f"{server.endpoint}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    attacked = [one for one in operations if not one.path.startswith(NOT_ATTACKED)]
    assert len(attacked) >= 20
    for operation in attacked:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            attack(server, operation, mode)


def attack(server: LiveServer, operation: Any, mode: GenerationMode) -> None:
    """Send what the description of an operation allows, or just not allows, and look for a 5xx."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def check(case: Any) -> None:
        if "project_id" in (case.path_parameters or {}):
            case.path_parameters["project_id"] = server.project_id
        answer = case.call(headers={"X-Auth-Token": server.token}, timeout=30)
        assert answer.status_code < 500, f"{case.as_curl_command()}\n{answer.text}"
        assert answer.headers["content-type"][0].startswith(("application/json", "text/plain"))

    try:
        check()
    except Unsatisfiable:  # an operation that takes nothing cannot be given anything wrong
        assert mode is GenerationMode.NEGATIVE
