"""Notifications as users have them: SDKs and the command line on a live server, and real receivers."""

import hashlib
import hmac
import json
import subprocess
import sys
from collections.abc import Iterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from huaweicloudsdkmodelarts import v1 as sdk

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, submit, wait_until
from tests.e2e.test_access import Person, admin_of
from tests.e2e.test_cli import Cli
from tests.e2e.waiting import eventually
from tests.servers.receiver import Receiver, Reply, unused_port

pytestmark = pytest.mark.e2e
OWN = "/api/trackside/v1"
SECRET = "secret-of-the-receiver"
HIDDEN = ("very-secret-path", "very-secret-key", SECRET)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Give somebody who listens."""
    with Receiver() as made:
        yield made


@pytest.fixture
def admin(server: LiveServer) -> Iterator[Person]:
    """Give an admin who leaves no topics behind."""
    person = admin_of(server)
    yield person
    for topic in person.call("GET", f"{OWN}/topics")[1]["topics"]:
        person.call("DELETE", f"{OWN}/topics/{topic['name']}")


def add(admin: Person, name: str, **body: Any) -> dict[str, Any]:
    """Add a topic."""
    status, made = admin.call("PUT", f"{OWN}/topics/{name}", body)
    assert status == 200, made
    return made


def create(server: LiveServer, command: str, *events: str, urn: str, name: str = "told") -> str:
    """Create a v2 job that names a topic, with the official SDK."""
    resource = sdk.SpecResource(
        node_count=1, main_container_customized_flavor={"cpu_core_num": 0.2, "mem_size": 0.25}
    )
    body = sdk.Job(
        kind="job",
        metadata=sdk.JobMetadata(name=name),
        algorithm=sdk.JobAlgorithm(command=command),
        spec=sdk.Spec(resource=resource, notification=sdk.Notification(topic_urn=urn, events=list(events))),
    )
    made = client_of(server).create_training_job(sdk.CreateTrainingJobRequest(body=body))
    return str(made.metadata.id)


def events_of(server: LiveServer, job_id: str) -> list[Any]:
    found = client_of(server).list_training_job_events(
        sdk.ListTrainingJobEventsRequest(training_job_id=job_id, limit=100)
    )
    return list(found.events)


def test_a_job_that_completes_is_told_of(server: LiveServer, admin: Person, receiver: Receiver) -> None:
    made = add(admin, "ops", url=receiver.url, secret=SECRET)
    assert made["address"] == f"http://127.0.0.1:{receiver.port}/…"
    job_id = create(server, "true", "JobStarted", "JobCompleted", urn="urn:smn:cn-north-4:0123:ops")
    first, second = receiver.get(), receiver.get()
    assert [first.content["event"], second.content["event"]] == ["JobStarted", "JobCompleted"]
    job = second.content["job"]
    assert (job["id"], job["name"], job["phase"], job["attempt"]) == (job_id, "told", "succeeded", 1)
    assert (job["project_id"], job["owner"]) == (server.project_id, "admin")
    assert job["dlc_id"].startswith("dlc")
    assert first.content["job"]["phase"] == "running"
    signed = second.headers["x-trackside-timestamp"].encode() + b"." + second.body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert second.headers["x-trackside-signature"] == f"sha256={expected}"
    path = job["url"].removeprefix(server.endpoint)
    assert admin.call("GET", path)[1]["id"] == job_id


def test_a_job_that_fails_is_told_of_with_the_reason(
    server: LiveServer, admin: Person, receiver: Receiver
) -> None:
    add(admin, "ops", url=receiver.url)
    job_id = create(server, "echo no luck >&2; exit 7", "JobFailed", urn="ops")
    said = receiver.get().content
    assert (said["event"], said["job"]["id"], said["job"]["phase"]) == ("JobFailed", job_id, "failed")
    assert said["reason"]["code"] == "exit-code"
    assert "worker-0" in said["reason"]["text"]
    assert "7" in said["reason"]["text"]
    assert said["culprit"] == "worker-0"
    assert receiver.got.empty()


def test_a_job_that_is_stopped_and_deleted_is_still_told_of(
    server: LiveServer, admin: Person, receiver: Receiver
) -> None:
    add(admin, "ops", url=receiver.url)
    job_id = create(server, "sleep 600", urn="ops")
    assert receiver.get().content["event"] == "JobStarted"
    client_of(server).delete_training_job(sdk.DeleteTrainingJobRequest(training_job_id=job_id))
    said = receiver.get().content
    assert (said["event"], said["job"]["id"]) == ("JobTerminated", job_id)


def test_a_topic_is_named_later(server: LiveServer, admin: Person, receiver: Receiver) -> None:
    add(admin, "ops", url=receiver.url)
    client = client_of(server)
    job_id = submit(client, "sleep 600")
    wait_until(client, job_id, "Running")
    wanted = sdk.Notification(topic_urn="ops", events=["JobTerminated"])
    body = sdk.JobUpdateRequestBody(spec=sdk.JobUpdateRequestBodySpec(notification=wanted))
    client.change_training_job_description(
        sdk.ChangeTrainingJobDescriptionRequest(training_job_id=job_id, body=body)
    )
    client.stop_training_job(
        sdk.StopTrainingJobRequest(training_job_id=job_id, body=sdk.JobActionType(action_type="terminate"))
    )
    assert receiver.get().content["event"] == "JobTerminated"


def test_a_topic_nobody_knows_does_not_stop_a_job(server: LiveServer) -> None:
    job_id = create(server, "true", "JobFailed", "JobOdd", urn="urn:smn:cn-north-4:0123:nobody")
    wait_until(client_of(server), job_id, "Completed")
    warnings = [event.message for event in events_of(server, job_id) if event.level == "Warning"]
    assert any("there is no topic 'nobody' here" in text and "notify add" in text for text in warnings)
    assert any("JobOdd: no such events" in text for text in warnings)


def test_a_topic_follows_all_jobs_of_every_dialect(
    server: LiveServer, admin: Person, receiver: Receiver, request: pytest.FixtureRequest
) -> None:
    add(admin, "all", url=receiver.url, follows_all=True, events=["JobFailed"], format="slack")
    with admin.dlc(request.config) as dlc:
        dlc.create("exit 3", DisplayName="of-dlc")
    assert "JobFailed: of-dlc" in receiver.get().content["text"]
    submit(client_of(server), "exit 4", name="of-v2")
    assert "JobFailed: of-v2" in receiver.get().content["text"]


def test_the_events_are_listed(server: LiveServer) -> None:
    for request in (sdk.ListEventCategoriesRequest(), sdk.ListEventCategoriesRequest(flavor_type="GPU")):
        found = client_of(server).list_event_categories(request).event_categories
        assert [category.id for category in found] == [
            "JobStarted",
            "JobCompleted",
            "JobFailed",
            "JobTerminated",
            "JobRestarted",
            "JobHanged",
            "JobPreempted",
        ]
        assert all(category.notification and category.name and category.description for category in found)


def start_told(server: LiveServer, receiver: Receiver) -> None:
    server.start()
    add(admin_of(server), "ops", url=receiver.url, secret=SECRET)


def test_a_server_killed_before_it_was_heard_tells_it_again(
    own_server: LiveServer, receiver: Receiver
) -> None:
    receiver.stop()
    with Receiver(Reply(hang=True)) as deaf:
        start_told(own_server, deaf)
        job_id = create(own_server, "true", "JobCompleted", urn="ops")
        before = deaf.get()  # it is being told, and answers nothing
        own_server.kill()
    deaf.start()
    with deaf:
        own_server.start()
        after = deaf.get()
        assert after.content["id"] == before.content["id"]
        assert after.headers["x-trackside-delivery"] == before.content["id"]
        assert (after.content["event"], after.content["job"]["id"]) == ("JobCompleted", job_id)
    assert not any(part in line for line in own_server.log for part in HIDDEN)


def test_a_receiver_that_was_down_hears_when_it_is_back_and_logs_tell_no_secret(
    own_server: LiveServer, receiver: Receiver
) -> None:
    start_told(own_server, receiver)
    receiver.stop()
    job_id = create(own_server, "exit 3", "JobFailed", urn="ops")
    wait_until(client_of(own_server), job_id, "Failed")
    eventually(
        lambda: any("topic ops was not told: it cannot be reached" in line for line in own_server.log),
        "the first try was never made",
    )
    own_server.kill()
    own_server.start()
    receiver.start()
    assert receiver.get().content["event"] == "JobFailed"
    said = "".join(own_server.log) + "".join(
        path.read_text(errors="replace") for path in own_server.data_dir.rglob("*.log")
    )
    assert not any(part in said for part in HIDDEN)


def test_mail_arrives(own_server: LiveServer, tmp_path: Path) -> None:
    got: list[Any] = []

    class Mailbox:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            got.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=policy.default)))
            return "250 OK"

    controller = Controller(Mailbox(), hostname="127.0.0.1", port=unused_port())
    controller.start()
    try:
        with (tmp_path / "trackside.toml").open("a") as config:
            config.write(f'smtp_url = "smtp://127.0.0.1:{controller.port}"\nsmtp_from = "trackside@x.org"\n')
        own_server.start()
        add(admin_of(own_server), "mail", email="ana@example.com")
        create(own_server, "exit 3", "JobFailed", urn="mail", name="mailed")
        eventually(lambda: got, "no mail came")
        own_server.stop()
    finally:
        controller.stop()
    [(to, mail)] = got
    assert to == ["ana@example.com"]
    assert mail["Subject"] == "JobFailed: mailed"
    assert "exit-code" in mail.get_content()


def run(cli: Cli, *arguments: str, stdin: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "trackside", *arguments]
    return subprocess.run(
        command, env=cli.environment, input=stdin, capture_output=True, text=True, timeout=90
    )


def test_the_command_line(server: LiveServer, admin: Person, receiver: Receiver, tmp_path: Path) -> None:
    cli = Cli(server)
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    added = run(
        cli, "notify", "add", "ops", "--url", "-", "--secret-file", str(secret), stdin=receiver.url + "\n"
    )
    assert (added.returncode, added.stdout) == (
        0,
        f"Stored ops: json to http://127.0.0.1:{receiver.port}/…\n",
    )
    assert cli("notify", "test", "ops") == "ops was told\n"
    said = receiver.get()
    assert (said.content["test"], said.path) == (True, "/hook/very-secret-path?key=very-secret-key")
    assert "x-trackside-signature" in said.headers

    cli("notify", "add", "all", "--url", receiver.url, "--events", "JobFailed,JobHanged", "--all")
    listed = cli("notify", "ls")
    assert f"http://127.0.0.1:{receiver.port}/…" in listed
    assert "JobFailed, JobHanged" in listed
    assert not any(part in listed + cli("notify", "ls", "--json") for part in HIDDEN)

    receiver.stop()
    failed = run(cli, "notify", "test", "ops", stdin="")
    assert failed.returncode == 1
    assert "ops was not told: it cannot be reached" in failed.stderr
    assert cli("notify", "rm", "ops") == "Removed ops\n"
    assert cli("notify", "rm", "ops", code=3) == ""
    cli("notify", "add", "ops", code=2)
    for bad in (
        ("--url", "ftp://host/very-secret-path"),
        ("--url", "http://host/x", "--format", "telegram"),
        ("--url", "http://host/x", "--events", "JobOdd"),
        ("--email", "ana@example.com"),  # no smtp_url here
    ):
        refused = run(cli, "notify", "add", "ops", *bad, stdin="")
        assert refused.returncode == 6, refused.stderr
        assert not any(part in refused.stderr for part in HIDDEN)


def test_the_server_is_not_made_to_ask_itself_or_a_metadata_service(
    server: LiveServer, admin: Person, receiver: Receiver
) -> None:
    for url, why in (
        ("http://169.254.169.254/latest/very-secret-path", "metadata service"),
        (f"{server.endpoint}/very-secret-path", "own port"),
    ):
        status, said = admin.call("PUT", f"{OWN}/topics/bad", {"url": url})
        assert status == 400
        assert why in json.dumps(said)
        assert "very-secret" not in json.dumps(said)
    assert admin.call("GET", f"{OWN}/topics")[1]["topics"] == []
    add(admin, "good", url=receiver.url)
    assert admin.call("POST", f"{OWN}/topics/good/test", {})[1]["delivered"]


def test_topics_are_only_where_the_settings_allow(
    own_server: LiveServer, receiver: Receiver, tmp_path: Path
) -> None:
    start_told(own_server, receiver)
    own_server.stop()
    with (tmp_path / "trackside.toml").open("a") as config:
        config.write('notify_hosts = ["*.example.com", "10.0.0.0/8"]\n')
    own_server.start()
    admin = admin_of(own_server)
    status, said = admin.call("PUT", f"{OWN}/topics/more", {"url": receiver.url})
    assert (status, "notify_hosts" in json.dumps(said)) == (400, True)
    outcome = admin.call("POST", f"{OWN}/topics/ops/test", {})[1]
    assert (outcome["delivered"], "notify_hosts" in outcome["why"]) == (False, True)
    assert receiver.got.empty()


def test_only_admins_add_topics_unless_a_policy_says_so(server: LiveServer, admin: Person) -> None:
    status, made = admin.call("POST", f"{OWN}/users", {"name": "topic-viewer", "role": "viewer"})
    assert status == 201, made
    viewer = Person(server, "topic-viewer", made["access_key"], made["secret_key"], made["token"])
    try:
        add(admin, "ops", url="https://hooks.example.com/very-secret-path")
        body = {"url": "https://hooks.example.com/x"}
        assert viewer.call("PUT", f"{OWN}/topics/mine", body)[0] == 403
        assert viewer.call("DELETE", f"{OWN}/topics/ops")[0] == 403
        assert viewer.call("POST", f"{OWN}/topics/ops/test", {})[0] == 403
        status, listed = viewer.call("GET", f"{OWN}/topics")
        assert status == 200
        assert not any(part in json.dumps(listed) for part in HIDDEN)
        document = {
            "Version": "1",
            "Statement": [{"Effect": "Allow", "Action": ["trackside:topic:*"], "Resource": "*"}],
        }
        assert admin.call("PUT", f"{OWN}/policies/teller", document)[0] == 200
        assert admin.call("PUT", f"{OWN}/users/topic-viewer/policies/teller")[0] == 200
        assert viewer.call("PUT", f"{OWN}/topics/mine", body)[0] == 200
        assert viewer.call("PUT", f"{OWN}/topics/every", {**body, "all_projects": True})[0] == 403
    finally:
        admin.call("DELETE", f"{OWN}/users/topic-viewer")
        admin.call("DELETE", f"{OWN}/policies/teller")
