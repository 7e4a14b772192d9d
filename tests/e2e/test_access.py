"""Who may do what on a live server: several users, the vendors' own SDKs, and requests sent by hand."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkmodelarts.v1 import DeleteTrainingJobRequest, ListTrainingJobsRequest, ModelArtsClient

from tests.e2e.conftest import LiveServer
from tests.e2e.dlc_sdk import CURRENT, OLD, Refused, Sdk, opened, python_with_sdk
from tests.e2e.sdk import details, submit
from tests.e2e.test_cli import Cli
from tests.e2e.waiting import eventually
from tests.unit.auth import acs_signers
from trackside.cli.signing import sign

pytestmark = pytest.mark.e2e
OWN = "/api/trackside/v1"


@dataclass(frozen=True)
class Person:
    """A user of a server, and the ways to call it."""

    server: LiveServer
    name: str
    access_key: str
    secret_key: str
    token: str

    def huawei(self, security_token: str | None = None) -> Any:
        """Return the Huawei SDK's client with this user's keys."""
        credentials = BasicCredentials(self.access_key, self.secret_key, self.server.project_id)
        if security_token:
            credentials = credentials.with_security_token(security_token)
        builder = ModelArtsClient.new_builder().with_credentials(credentials)
        return builder.with_endpoint(self.server.endpoint).build()

    def dlc(self, config: pytest.Config, version: str = CURRENT, **more: Any) -> Any:
        """Open the PAI-DLC SDK's client with this user's keys."""
        keys = {"access_key_id": self.access_key, "access_key_secret": self.secret_key, **more}
        return opened(python_with_sdk(config, version), version, self.server, **keys)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Call by hand with the bearer token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return send(self.server, method, path, headers, b"" if body is None else json.dumps(body).encode())


def send(
    server: LiveServer, method: str, target: str, headers: dict[str, str], body: bytes = b""
) -> tuple[int, dict[str, Any]]:
    """Send one request and return status and JSON."""
    request = urllib.request.Request(
        server.endpoint + target, data=body or None, headers=headers, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def admin_of(server: LiveServer) -> Person:
    return Person(server, "admin", server.access_key, server.secret_key, server.token)


@pytest.fixture
def admin(server: LiveServer) -> Person:
    return admin_of(server)


@pytest.fixture
def person(admin: Person, request: pytest.FixtureRequest) -> Iterator[Person]:
    """A viewer of the test's own, who is gone afterwards."""
    name = f"u{time.monotonic_ns()}"
    status, made = admin.call("POST", f"{OWN}/users", {"name": name, "role": "viewer"})
    assert status == 201, made
    yield Person(admin.server, name, made["access_key"], made["secret_key"], made["token"])
    admin.call("DELETE", f"{OWN}/users/{name}")


@pytest.fixture
def admin_dlc(admin: Person, request: pytest.FixtureRequest) -> Iterator[Sdk]:
    with admin.dlc(request.config) as sdk:
        yield sdk


def refused(call: Any) -> tuple[int, str, str]:
    with pytest.raises(ClientRequestException) as caught:
        call()
    return caught.value.status_code, caught.value.error_code, caught.value.error_msg


def tagged(sdk: Sdk, admin: Person, team: str) -> tuple[str, str]:
    """Create a job with a tag; return its id in PAI-DLC and in ModelArts."""
    name = f"of-{team}-{time.monotonic_ns()}"
    dlc_id = sdk.create("true", DisplayName=name, Settings={"Tags": {"team": team}})
    status, page = admin.call("GET", f"{OWN}/jobs?name={name}")
    assert (status, page["matching"]) == (200, 1)
    return dlc_id, page["jobs"][0]["id"]


def limit(admin: Person, person: Person, *statements: dict[str, Any]) -> str:
    """Leave a user with one policy alone; return its name."""
    name = f"p{time.monotonic_ns()}"
    for method, path, body in (
        ("PUT", f"{OWN}/policies/{name}", {"Statement": list(statements)}),
        ("PUT", f"{OWN}/users/{person.name}/policies/{name}", None),
        ("DELETE", f"{OWN}/users/{person.name}/policies/viewer", None),
    ):
        status, told = admin.call(method, path, body)
        assert status == 200, told
    return name


OF_TEAM_A = {
    "Effect": "Allow",
    "Action": ["modelarts:*", "paidlc:*", "trackside:*"],
    "Condition": {"StringEquals": {"g:ResourceTag/team": "a"}},
}


def test_a_viewer_looks_and_creates_nothing_in_any_dialect(
    person: Person, request: pytest.FixtureRequest
) -> None:
    client = person.huawei()
    assert client.list_training_jobs(ListTrainingJobsRequest()).total >= 0
    status, code, said = refused(lambda: submit(client, "true"))
    assert (status, code) == (403, "APIGW.0302")
    assert said == f"User {person.name} may not do modelarts:trainJob:create: no statement allows it."
    with person.dlc(request.config) as sdk:
        assert sdk("list_jobs")["TotalCount"] >= 0
        with pytest.raises(Refused) as caught:
            sdk.create()
    assert (caught.value.status, caught.value.code) == (403, "Forbidden.NoPermission")
    status, told = person.call("POST", f"/v1/{person.server.project_id}/training-jobs", {"job_name": "x"})
    assert (status, told["is_success"], told["error_code"]) == (403, False, "APIGW.0302")
    assert "may not do" in told["error_message"]
    status, told = person.call("GET", f"{OWN}/policies")
    assert (status, told["error_code"]) == (403, "Trackside.forbidden")


def test_a_policy_about_tags_opens_those_jobs_and_no_others(
    admin: Person, admin_dlc: Sdk, person: Person, request: pytest.FixtureRequest
) -> None:
    (dlc_a, id_a), (dlc_b, id_b) = (tagged(admin_dlc, admin, team) for team in "ab")
    name = limit(admin, person, OF_TEAM_A)
    client = person.huawei()
    assert details(client, id_a).metadata.id == id_a
    assert refused(lambda: details(client, id_b))[:2] == (403, "APIGW.0302")
    assert refused(lambda: details(client, "00000000-0000-4000-8000-000000000000"))[0] == 403
    assert refused(lambda: client.list_training_jobs(ListTrainingJobsRequest()))[0] == 403
    assert refused(lambda: submit(client, "true"))[0] == 403
    with person.dlc(request.config) as sdk:
        assert sdk("get_job", dlc_a)["JobId"] == dlc_a
        with pytest.raises(Refused) as caught:
            sdk("get_job", dlc_b)
    assert (caught.value.status, caught.value.code) == (403, "Forbidden.NoPermission")
    assert person.call("GET", f"{OWN}/jobs/{id_a}")[0] == 200
    assert person.call("GET", f"{OWN}/jobs/{id_b}")[0] == 403

    admin_dlc("tag_resources", ResourceType="job", ResourceId=[dlc_b], Tag=[{"Key": "team", "Value": "a"}])
    assert details(client, id_b).metadata.id == id_b

    assert admin.call("DELETE", f"{OWN}/users/{person.name}/policies/{name}")[0] == 200
    assert refused(lambda: details(client, id_a))[0] == 403


def test_deny_wins(admin: Person, admin_dlc: Sdk, person: Person) -> None:
    _, job_id = tagged(admin_dlc, admin, "a")
    keep = {"Sid": "keep", "Effect": "Deny", "Action": "modelarts:trainJob:delete"}
    name = limit(admin, person, {"Effect": "Allow", "Action": "*"}, keep)
    client = person.huawei()
    status, _, said = refused(
        lambda: client.delete_training_job(DeleteTrainingJobRequest(training_job_id=job_id))
    )
    assert status == 403
    assert said.endswith(f"statement 2 (keep) of the policy {name} denies it.")
    assert details(client, job_id).metadata.id == job_id


def test_temporary_keys_work_in_both_worlds_and_end(person: Person, request: pytest.FixtureRequest) -> None:
    status, made = person.call("POST", f"{OWN}/credentials", {"seconds": 600})
    assert status == 201
    holder = Person(person.server, person.name, made["access_key"], made["secret_key"], "")
    client = holder.huawei(made["security_token"])
    assert client.list_training_jobs(ListTrainingJobsRequest()).total >= 0
    assert refused(lambda: submit(client, "true"))[0] == 403
    assert refused(lambda: holder.huawei().list_training_jobs(ListTrainingJobsRequest()))[0] == 401
    assert (
        refused(lambda: person.huawei(made["security_token"]).list_training_jobs(ListTrainingJobsRequest()))[
            0
        ]
        == 401
    )
    for version in (CURRENT, OLD):
        with holder.dlc(request.config, version, security_token=made["security_token"]) as sdk:
            assert sdk("list_jobs")["TotalCount"] >= 0
    status, told = person.call("POST", f"{OWN}/credentials", {"seconds": 0})
    assert (status, "1 to 129,600" in told["error_msg"]) == (400, True)

    status, short = person.call("POST", f"{OWN}/credentials", {"seconds": 1})
    assert status == 201
    brief = Person(person.server, person.name, short["access_key"], short["secret_key"], "")

    def ended() -> str | None:
        try:
            brief.huawei(short["security_token"]).list_training_jobs(ListTrainingJobsRequest())
        except ClientRequestException as error:
            return f"{error.status_code} {error.error_msg}"
        return None

    assert eventually(ended, "the keys never ended").startswith("401 ")
    assert "is over" in str(ended())


def test_temporary_keys_cannot_prolong_themselves(person: Person) -> None:
    _, made = person.call("POST", f"{OWN}/credentials")
    headers = sign(
        method="POST",
        path=f"{OWN}/credentials",
        query="",
        headers={
            "Host": person.server.endpoint.removeprefix("http://"),
            "X-Security-Token": made["security_token"],
        },
        body=b"",
        access_key=made["access_key"],
        secret_key=made["secret_key"],
    )
    status, told = send(person.server, "POST", f"{OWN}/credentials", headers)
    assert (status, "cannot be prolonged" in told["error_msg"]) == (403, True)


def test_the_token_of_a_job_reads_that_job_and_nothing_else(
    admin: Person, admin_dlc: Sdk, request: pytest.FixtureRequest
) -> None:
    server = admin.server
    (mine, _), (other, _) = (tagged(admin_dlc, admin, team) for team in "ab")
    token = admin_dlc("get_token", TargetId=mine, TargetType="job")["Token"]

    def status(method: str, path: str, **query: str) -> int:
        return send(server, method, f"/api/v1/{path}?{urlencode(query)}", {})[0]

    window = {"MetricName": "CPU_UTILIZATION", "Period": "60"}
    assert status("GET", f"jobs/{mine}", Token=token) == 200
    assert status("GET", f"jobs/{mine}/metrics", MetricType="CpuCoreUsage", Token=token) == 200
    assert status("GET", f"jobs/{other}", Token=token) == 403
    assert status("GET", "jobs", Token=token) == 403
    assert status("GET", "jobs", JobId=mine, Token=token) == 403
    assert status("GET", "cms/metrics", JobId=other, Token=token, **window) == 403
    assert status("GET", "cms/metrics", JobId=mine, Token=token, **window) in (200, 400)
    assert status("DELETE", f"jobs/{mine}", Token=token) == 403
    assert status("POST", f"jobs/{mine}/stop", Token=token) == 403
    assert status("GET", f"jobs/{mine}", Token=token[:-1]) == 401
    assert status("GET", f"jobs/{mine}") == 401

    bearer = {"x-acs-bearer-token": token, "x-acs-signature-type": "BEARERTOKEN"}
    assert send(server, "GET", f"/api/v1/jobs/{mine}", bearer)[0] == 200
    assert send(server, "GET", f"/api/v1/jobs/{other}", bearer)[0] == 403

    metrics = {"MetricType": "CpuCoreUsage"}
    assert admin_dlc("get_job_metrics", mine, Token=token, **metrics)["JobId"] == mine
    for path, given, expected in ((other, token, 403), (mine, "made-up", 401)):
        with pytest.raises(Refused) as caught:
            admin_dlc("get_job_metrics", path, Token=given, **metrics)
        assert caught.value.status == expected


def test_a_bearer_token_works_in_pai_dlc(person: Person, request: pytest.FixtureRequest) -> None:
    python = python_with_sdk(request.config, CURRENT)
    config = {"access_key_id": None, "access_key_secret": None, "bearer_token": person.token}
    with opened(python, CURRENT, person.server, **config) as sdk:
        assert sdk("list_jobs")["TotalCount"] >= 0
        with pytest.raises(Refused) as caught:
            sdk.create()
    assert caught.value.status == 403


def by_hand(person: Person, *, roa: bool = False) -> dict[str, str]:
    """Return the headers of GET /api/v1/jobs, signed now."""
    now = time.gmtime()
    host = person.server.endpoint.removeprefix("http://")
    nonce = str(time.monotonic_ns())
    if roa:
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", now)
        wire = acs_signers.plain_roa(
            "GET",
            "/api/v1/jobs",
            secret=person.secret_key,
            access=person.access_key,
            date=date,
            host=host,
            x_acs_signature_nonce=nonce,
        )
    else:
        wire = acs_signers.plain_acs3(
            "GET",
            "/api/v1/jobs",
            secret=person.secret_key,
            access=person.access_key,
            x_acs_date=time.strftime("%Y-%m-%dT%H:%M:%SZ", now),
            host=host,
            x_acs_signature_nonce=nonce,
        )
    return wire.headers


@pytest.mark.parametrize("roa", [False, True])
def test_a_request_sent_again_is_refused(admin: Person, roa: bool) -> None:
    headers = by_hand(admin, roa=roa)
    assert send(admin.server, "GET", "/api/v1/jobs", headers)[0] == 200
    status, told = send(admin.server, "GET", "/api/v1/jobs", headers)
    assert (status, told["Code"]) == (401, "InvalidCredentials")
    assert "made already" in told["Message"]
    assert send(admin.server, "GET", "/api/v1/jobs", by_hand(admin, roa=roa))[0] == 200


def test_hmac_sha1_can_be_switched_off(own_server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "trackside.toml").write_text("allow_roa_sha1 = false\n")
    admin = admin_of(own_server.start())
    status, told = send(own_server, "GET", "/api/v1/jobs", by_hand(admin, roa=True))
    assert (status, "switched off" in told["Message"]) == (401, True)
    assert send(own_server, "GET", "/api/v1/jobs", by_hand(admin))[0] == 200


def test_the_command_line_writes_grants_tries_and_takes_away(
    server: LiveServer, person: Person, tmp_path: Path
) -> None:
    cli = Cli(server)
    job = cli.submit("true", "--name", f"tried-{time.monotonic_ns()}")
    name = f"p{time.monotonic_ns()}"
    file = tmp_path / f"{name}.yaml"
    file.write_text(
        "Statement:\n- Effect: Allow\n  Action: modelarts:trainJob:get\n"
        f"  Resource: trainJob:{job}\n- Effect: Deny\n  Action: paidlc:*\n"
    )
    assert cli("policy", "put", str(file)) == f"Stored {name}; nobody has it\n"
    assert cli("user", "grant", person.name, name) == f"{person.name} has viewer, {name}\n"
    assert cli("user", "revoke", person.name, "viewer") == f"{person.name} has {name}\n"
    asked = ("policy", "try", person.name, "modelarts:trainJob:get")
    assert cli(*asked, "--job", job) == f"yes: statement 1 of the policy {name} allows it\n"
    assert cli(*asked, code=4) == "no: no statement allows it\n"
    told = json.loads(cli("policy", "try", person.name, "paidlc:GetJob", "--json", code=4))["answer"]
    assert (told["allowed"], told["policy"], told["statement"]) == (False, name, 2)
    assert json.loads(cli("policy", "show", name))["Statement"][1]["Effect"] == "Deny"
    rows = [line.split("\t") for line in cli("policy", "ls").splitlines()]
    assert [name, "own", "2", person.name] in rows
    cli("policy", "rm", name, code=6)
    assert cli("user", "revoke", person.name, name) == f"{person.name} has no policy at all\n"
    assert cli("policy", "rm", name) == f"Removed {name}\n"
    cli("policy", "show", name, code=3)
    file.write_text("Statement:\n- Effect: Allow\n  Action: nothing\n")
    cli("policy", "put", str(file), "--name", "broken", code=6)


def test_policies_survive_a_killed_server(own_server: LiveServer) -> None:
    admin = admin_of(own_server.start())
    _, made = admin.call("POST", f"{OWN}/users", {"name": "bob", "role": "viewer"})
    bob = Person(own_server, "bob", made["access_key"], made["secret_key"], made["token"])
    limit(admin, bob, {"Effect": "Allow", "Action": "trackside:node:list"})
    for _ in range(2):
        assert bob.call("GET", f"{OWN}/nodes")[0] == 200
        assert bob.call("GET", f"{OWN}/jobs")[0] == 403
        own_server.kill()
        own_server.start()
