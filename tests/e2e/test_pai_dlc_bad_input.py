"""Whatever a caller sends, PAI-DLC answers with JSON of its own shape and never with a bug."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from tests.e2e.conftest import LiveServer

pytestmark = pytest.mark.e2e
EXAMPLES = 5
URL_LENGTH_MAX = 8000  # beyond it a request may be refused before anybody knows which API it is for
PREFIX = "/api/v1/"
GOOD: dict[str, Any] = {
    "DisplayName": "x",
    "JobType": "PyTorchJob",
    "UserCommand": "true",
    "JobSpecs": [{"Type": "Worker", "ResourceConfig": {"CPU": "0.1", "Memory": "64Mi"}}],
}


def call(server: LiveServer, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
    """Send a request with the admin's token as a bearer and return status and body."""
    address = urlsplit(server.endpoint)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        connection.request(
            method,
            path,
            content,
            {"Authorization": f"Bearer {token or server.token}"} if token != "-" else {},
        )
        answer = connection.getresponse()
        assert answer.headers["x-acs-request-id"]
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def job_id(server: LiveServer) -> str:
    """A job that exists, so that requests get further than to say that it does not."""
    status, answer = call(server, "POST", f"{PREFIX}jobs", GOOD)
    assert status == 200, answer
    return str(answer["JobId"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "jobs", b"{", 400, "InvalidRequestBody"),
        ("POST", "jobs", b"", 400, "InvalidRequestBody"),
        ("POST", "jobs", b"[]", 400, "InvalidParameter"),
        ("POST", "jobs", b"\xff", 400, "InvalidRequestBody"),
        ("POST", "jobs", b'{"Settings":' + b'{"a":' * 100_000, 400, "InvalidRequestBody"),
        ("POST", "jobs", {**GOOD, "UserCommand": "a\0b"}, 400, "InvalidParameter"),
        ("POST", "jobs", {**GOOD, "UserCommand": "x" * 40_000}, 400, "InvalidParameter"),
        ("POST", "jobs", {**GOOD, "JobSpecs": [{"PodCount": 10**30}]}, 400, "InvalidParameter"),
        ("POST", "jobs", {**GOOD, "JobSpecs": [{"PodCount": 1024}]}, 403, "QuotaExceeded"),
        (
            "POST",
            "jobs",
            {**GOOD, "JobSpecs": [{"ResourceConfig": {"CPU": "9999"}}]},
            400,
            "InvalidParameter",
        ),
        ("POST", "jobs", {**GOOD, "Settings": {"a": 2**70, "b": [None, {}]}}, 200, None),
        ("GET", "jobs/%2e%2e", None, 404, "JobNotFound"),
        ("GET", "jobs/dlc%00", None, 404, "ResourceNotFound"),
        ("GET", "jobs?PageNumber=99999999999999999999", None, 400, "InvalidParameter"),
        ("GET", "jobs?Tags=%7B%22a%22%3A" + "[" * 3000, None, 400, "InvalidParameter"),
        ("GET", "jobs?StartTime=0001-01-01T00:00:00Z", None, 400, "InvalidParameter"),
        ("GET", "jobs?DisplayName=%ff", None, 400, "InvalidParameter"),
        ("GET", "jobs?Status=Running&Status=Failed", None, 400, "InvalidParameter"),
        ("PATCH", "jobs", None, 405, "InvalidParameter"),
        ("GET", "tensorboards", None, 404, "ResourceNotFound"),
    ],
)
def test_bad_requests_are_answered(
    server: LiveServer, method: str, path: str, body: Any, status: int, code: str | None
) -> None:
    found, answer = call(server, method, PREFIX + path, body)
    assert found == status, answer
    assert answer.get("Code") == code
    assert answer["RequestId"]


def test_strangers_are_refused(server: LiveServer) -> None:
    for token in ("-", "wrong"):
        status, answer = call(server, "GET", f"{PREFIX}jobs", token=token)
        assert (status, answer["Code"]) == (401, "InvalidCredentials")


def test_the_token_of_a_job_reads_that_job_and_no_more(server: LiveServer, job_id: str) -> None:
    _, answer = call(server, "GET", f"{PREFIX}tokens?TargetId={job_id}&TargetType=job&ExpireTime=60")
    token = f"Token={answer['Token']}"
    metrics = f"{PREFIX}jobs/{job_id}/metrics?MetricType=CpuCoreUsage&{token}"
    status, answer = call(server, "GET", metrics, token="-")
    assert (status, answer.get("JobId")) == (200, job_id)
    _, other = call(server, "POST", f"{PREFIX}jobs", GOOD)
    for method, path in (
        ("GET", f"jobs/{other['JobId']}?{token}"),
        ("GET", f"jobs?{token}"),
        ("POST", f"jobs/{job_id}/stop?{token}"),
        ("DELETE", f"jobs/{job_id}?{token}"),
    ):
        status, answer = call(server, method, PREFIX + path, token="-")
        assert (status, answer["Code"]) == (403, "Forbidden.NoPermission")
    assert call(server, "GET", f"{metrics}x", token="-")[0] == 401


def test_no_request_meets_a_bug(server: LiveServer, job_id: str) -> None:
    schema = schemathesis.openapi.from_url(f"{server.endpoint}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    attacked = [one for one in operations if one.path.startswith(PREFIX)]
    assert len(attacked) == 27
    for operation in attacked:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            attack(server, operation, mode, job_id)


def attack(server: LiveServer, operation: Any, mode: GenerationMode, job_id: str) -> None:
    """Send what the description of an operation allows, or just not allows, and look for a 5xx."""
    names = {"JobId": job_id, "PodId": f"{job_id}-worker-0"}

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def check(case: Any) -> None:
        if operation.label != f"DELETE {PREFIX}jobs/{{JobId}}":  # that one would take the job away
            case.path_parameters.update({name: names[name] for name in case.path_parameters if name in names})
        answer = case.call(headers={"Authorization": f"Bearer {server.token}"}, timeout=30)
        assert answer.status_code < 500, f"{case.as_curl_command()}\n{answer.text}"
        body = answer.json()
        if answer.status_code >= 400 and len(answer.request.url) <= URL_LENGTH_MAX:
            assert set(body) == {"Code", "Message", "RequestId", "HostId"}

    try:
        check()
    except Unsatisfiable:  # an operation that takes nothing cannot be given anything wrong
        assert mode is GenerationMode.NEGATIVE
