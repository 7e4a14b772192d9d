"""The unmodified official SDK drives every operation of ModelArts v2 against a live server."""

import json
import time
import urllib.request
import uuid
from typing import Any

import pytest
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkmodelarts import v1 as sdk

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, details, submit, wait_until
from tests.e2e.waiting import eventually
from trackside.api.modelarts_v2.render import METRIC_OF

pytestmark = pytest.mark.e2e

LINES = 120
SPEAKS = f"for i in $(seq 1 {LINES}); do echo line $i; done"
GATE_SECONDS = 60


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Any:
    return client_of(server)


@pytest.fixture(scope="module")
def finished(client: Any) -> str:
    """A two-task job that printed its lines and is over."""
    job_id = submit(client, SPEAKS, name="finished", nodes=2)
    assert wait_until(client, job_id).status.phase == "Completed"
    return job_id


@pytest.fixture(scope="module")
def failed(client: Any) -> str:
    """A job that ended with exit code 3."""
    job_id = submit(client, "echo out of cheese >&2; exit 3", name="failed")
    assert wait_until(client, job_id).status.phase == "Failed"
    return job_id


def refused(call: Any, *arguments: Any) -> ClientRequestException:
    with pytest.raises(ClientRequestException) as caught:
        call(*arguments)
    error: ClientRequestException = caught.value
    assert error.request_id, "the request id must reach the caller"
    return error


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


# From creation to deletion


def test_a_job_from_creation_to_deletion(client: Any) -> None:
    name = unique("life")
    resource = sdk.SpecResource(
        node_count=2,
        main_container_customized_flavor=sdk.MainContainerCustomizedFlavor(cpu_core_num=0.2, mem_size=0.25),
    )
    body = sdk.Job(
        kind="job",
        metadata=sdk.JobMetadata(name=name, description="from creation to deletion"),
        algorithm=sdk.JobAlgorithm(command=f"echo up; sleep {GATE_SECONDS}"),
        spec=sdk.Spec(resource=resource),
    )
    created = client.create_training_job(sdk.CreateTrainingJobRequest(body=body))
    assert created.status_code == 201
    assert (created.metadata.name, created.metadata.workspace_id) == (name, "0")
    assert created.status.phase in ("Creating", "Pending", "Running")
    assert created.status.duration == 0
    job_id = created.metadata.id
    assert str(uuid.UUID(job_id)) == job_id

    running = wait_until(client, job_id, "Running").status
    assert running.secondary_phase == "Running"
    assert running.tasks == ["worker-0", "worker-1"]
    assert running.task_statuses == []
    assert running.start_time >= created.metadata.create_time
    (record,) = running.running_records
    assert (record.start_type, record.end_at, record.end_reason) == ("init_or_rescheduled", None, None)
    assert record.start_at == pytest.approx(time.time(), abs=GATE_SECONDS)
    assert running.node_count_metrics[-1][1] == 2
    assert [(place.task, place.schedule_count) for place in running.task_ips] == [
        ("worker-0", 1),
        ("worker-1", 1),
    ]
    later = eventually(
        lambda: _longer(details(client, job_id).status, running.duration), "the duration does not grow"
    )
    assert later.phase == "Running"

    stopping = client.stop_training_job(
        sdk.StopTrainingJobRequest(training_job_id=job_id, body=sdk.JobActionType(action_type="terminate"))
    )
    assert stopping.status_code == 202
    assert stopping.metadata.id == job_id
    stopped = wait_until(client, job_id, "Terminated").status
    assert stopped.secondary_phase == "Terminated"
    (record,) = stopped.running_records
    assert record.end_at >= record.start_at
    assert record.end_reason
    assert stopped.duration > 0
    assert stopped.node_count_metrics[-1][1] == 0
    assert {status.task for status in stopped.task_statuses} == {"worker-0", "worker-1"}
    assert details(client, job_id).status.duration == stopped.duration, "it is over: it grows no more"

    deleted = client.delete_training_job(sdk.DeleteTrainingJobRequest(training_job_id=job_id))
    assert deleted.status_code == 202
    gone = refused(details, client, job_id)
    assert (gone.status_code, gone.error_code) == (404, "ModelArts.JobNotFound")
    assert job_id in gone.error_msg


def _longer(status: Any, than: int) -> Any:
    return status if status.duration > than else None


def test_a_job_that_succeeds(client: Any, finished: str) -> None:
    status = details(client, finished).status
    assert (status.phase, status.secondary_phase) == ("Completed", "Completed")
    assert [(one.task, one.exit_code) for one in status.task_statuses] == [("worker-0", 0), ("worker-1", 0)]
    (record,) = status.running_records
    assert (record.end_related_task, record.end_recover) == (None, None)


def test_a_job_that_fails_tells_who_and_why(client: Any, failed: str) -> None:
    status = details(client, failed).status
    assert (status.phase, status.secondary_phase) == ("Failed", "Failed")
    (task,) = status.task_statuses
    assert (task.task, task.exit_code) == ("worker-0", 3)
    assert "3" in task.message
    (record,) = status.running_records
    assert record.end_related_task == "worker-0"
    assert "3" in record.end_reason
    assert record.end_at >= record.start_at


def test_a_command_that_cannot_start_says_so(client: Any) -> None:
    job_id = submit(client, "/no/such/program --flag", name=unique("cannot-start"))
    status = wait_until(client, job_id).status
    assert status.phase in ("Failed", "Abnormal")
    (task,) = status.task_statuses
    assert task.exit_code in (126, 127, None)
    assert task.message
    assert status.running_records[-1].end_reason


# What a job did


def test_metrics_of_a_task(client: Any) -> None:
    job_id = submit(client, "sleep 2", name=unique("measured"), nodes=2)
    wait_until(client, job_id, "Completed")

    def read() -> Any:
        found = client.show_training_job_metrics(
            sdk.ShowTrainingJobMetricsRequest(training_job_id=job_id, task_id="worker-1")
        ).metrics
        return found if max(found[0].value) >= 0 else None

    found = eventually(read, "no metrics of a finished job")
    assert [row.metric for row in found] == list(METRIC_OF)
    lengths = {len(row.value) for row in found}
    assert len(lengths) == 1
    assert lengths != {0}, "the last minute counts once the task has ended"
    for row in found:
        assert all(value == -1 or value >= 0 for value in row.value), row
    memory = next(row for row in found if row.metric == "memUsage")
    assert max(memory.value) > 0


def test_lines_of_a_log_page_both_ways(client: Any, finished: str) -> None:
    def lines(**given: Any) -> Any:
        return client.show_training_job_logs_from_aom(
            sdk.ShowTrainingJobLogsFromAomRequest(training_job_id=finished, task_id="worker-0", **given)
        )

    newest = lines()
    assert (newest.start_line, newest.end_line, newest.lines) == (str(LINES - 49), str(LINES), 50)
    assert newest.content.splitlines() == [f"line {i}" for i in range(LINES - 49, LINES + 1)]
    before = lines(base_line=newest.start_line)
    assert (before.start_line, before.end_line) == (str(LINES - 99), str(LINES - 50))
    oldest = lines(order="asc", lines=7)
    assert oldest.content.splitlines() == [f"line {i}" for i in range(1, 8)]
    after = lines(order="asc", base_line=oldest.end_line, lines=500)
    assert (after.start_line, after.lines) == ("8", LINES - 7)
    nothing = lines(order="asc", base_line=str(LINES))
    assert (nothing.lines, nothing.content) == (0, "")


def test_the_preview_of_a_log(client: Any, failed: str) -> None:
    found = client.show_training_job_logs_preview(
        sdk.ShowTrainingJobLogsPreviewRequest(training_job_id=failed, task_id="worker-0")
    )
    assert found.content == "out of cheese\n"
    assert found.current_size == found.full_size == len(found.content)


def test_the_link_to_a_log_works_for_whoever_holds_it(server: LiveServer, failed: str) -> None:
    url = f"{server.endpoint}/v2/{server.project_id}/training-jobs/{failed}/tasks/worker-0/logs/url"
    request = urllib.request.Request(url, headers={"X-Auth-Token": server.token})
    with urllib.request.urlopen(request, timeout=30) as answer:
        link = json.load(answer)["obs_url"]
    with urllib.request.urlopen(link, timeout=30) as answer:
        assert answer.read() == b"out of cheese\n"


def test_events_of_a_job(client: Any, failed: str) -> None:
    def events(**given: Any) -> Any:
        return client.list_training_job_events(
            sdk.ListTrainingJobEventsRequest(training_job_id=failed, **given)
        )

    newest_first = events()
    assert newest_first.total == len(newest_first.events) > 1
    assert (newest_first.limit, newest_first.offset, newest_first.order) == (50, 0, "desc")
    oldest_first = events(order="asc")
    assert [e.message for e in oldest_first.events] == [e.message for e in reversed(newest_first.events)]
    times = [event.time for event in oldest_first.events]
    assert times == sorted(times)
    page = events(order="asc", offset=1, limit=1)
    assert (page.total, [e.message for e in page.events]) == (
        newest_first.total,
        [oldest_first.events[1].message],
    )
    wrong = events(level="Error")
    assert wrong.total >= 1
    assert {event.level for event in wrong.events} == {"Error"}
    assert events(pattern="submitted by").total == 1
    assert events(pattern="no event says this").events == []
    within = events(start_time=times[0], end_time=times[-1])
    assert within.total == newest_first.total
    assert events(start_time="0", end_time="1").total == 0
    assert events(start_time="0", end_time="9999999999999").total == newest_first.total


def test_stages_of_a_job(client: Any, finished: str) -> None:
    found = client.list_training_job_stages(sdk.ListTrainingJobStagesRequest(training_job_id=finished))
    assert found.total_count == 1
    (record,) = found.running_records
    assert record.record_order == 1
    assert [(stage.name, stage.stage_order) for stage in record.stages] == [
        ("scheduling", 1),
        ("preparing", 2),
        ("running", 3),
        ("end", 4),
    ]
    for stage in record.stages:
        assert stage.job_id == finished
        assert stage.start_time <= stage.end_time
        assert stage.en_message
        assert stage.zh_message


def test_tasks_of_a_job(client: Any, finished: str) -> None:
    def tasks(**given: Any) -> Any:
        return client.list_training_job_tasks(
            sdk.ListTrainingJobTasksRequest(training_job_id=finished, **given)
        ).body

    found = tasks()
    assert [(task.task, task.schedule_count) for task in found] == [("worker-0", 1), ("worker-1", 1)]
    assert all(task.ip and task.host_ip for task in found)
    assert len(tasks(schedule_count=1)) == 2
    assert not tasks(schedule_count=2)


def test_a_task_reports_an_event(client: Any, finished: str) -> None:
    client.notify_training_job_information(
        sdk.NotifyTrainingJobInformationRequest(
            training_job_id=finished,
            task_id="worker-1",
            report_type="training-event",
            body=sdk.ReportEventBody(type="checkpoint saved"),
        )
    )
    found = client.list_training_job_events(
        sdk.ListTrainingJobEventsRequest(training_job_id=finished, pattern="checkpoint saved")
    )
    assert found.total == 1
    assert "worker-1" in found.events[0].message


# Changing and choosing


def test_a_job_is_changed(client: Any) -> None:
    job_id = submit(client, "true", name=unique("changing"))
    wait_until(client, job_id)
    body = sdk.JobUpdateRequestBody(
        description="new words",
        spec=sdk.JobUpdateRequestBodySpec(
            notification=sdk.Notification(topic_urn="urn:x", events=["JobFailed"]),
            schedule_policy=sdk.JobUpdateRequestBodySpecSchedulePolicy(preemptible=True),
        ),
        endpoints=sdk.JobEndpointsReq(ssh=sdk.SSHReq(key_pair_names=["mine"])),
        metadata=sdk.JobUpdateRequestBodyMetadata(annotation={"jupyter-lab/enable": "true"}),
    )
    client.change_training_job_description(
        sdk.ChangeTrainingJobDescriptionRequest(training_job_id=job_id, body=body)
    )
    found = details(client, job_id)
    assert found.metadata.description == "new words"
    assert found.metadata.annotations == {"jupyter-lab/enable": "true"}
    assert found.spec.schedule_policy.preemptible is True
    assert found.endpoints.ssh.key_pair_names == ["mine"]
    assert found.algorithm.command == "true", "what was not named stays"


def test_many_jobs_are_deleted_or_none(client: Any) -> None:
    job_ids = [submit(client, "true", name=unique("batch")) for _ in range(2)]

    def delete(*wanted: str) -> Any:
        jobs = [
            sdk.BatchDeleteJobItem(kind="job", metadata=sdk.BatchDeleteJobMetadata(id=job_id))
            for job_id in wanted
        ]
        return client.batch_delete_training_job(
            sdk.BatchDeleteTrainingJobRequest(body=sdk.BatchDeleteJobsReq(jobs=jobs))
        )

    missing = str(uuid.uuid4())
    assert missing in refused(delete, *job_ids, missing).error_msg
    assert all(details(client, job_id).metadata.id == job_id for job_id in job_ids)
    delete(*job_ids)
    for job_id in job_ids:
        assert refused(details, client, job_id).status_code == 404


def test_a_name_is_checked(client: Any) -> None:
    name = unique("named")

    def taken() -> Any:
        request = sdk.ValidateTrainingJobNameRequest(job_name=name, workspace_id="0")
        return client.validate_training_job_name(request).is_duplicate

    assert taken() is False
    submit(client, "true", name=name)
    assert taken() is True
    error = refused(
        client.validate_training_job_name, sdk.ValidateTrainingJobNameRequest(job_name="not a name")
    )
    assert "job_name" in error.error_msg


def test_flavors_and_engines_on_offer(client: Any) -> None:
    flavors = client.show_training_job_flavors(sdk.ShowTrainingJobFlavorsRequest())
    assert flavors.total_count == len(flavors.flavors) > 0
    first = flavors.flavors[0]
    assert (first.flavor_type, first.support_groups) == ("CPU", "public")
    assert first.flavor_info.cpu.core_num >= 1
    assert first.flavor_info.memory.size >= 1
    assert isinstance(json.loads(first.support_engines), list)
    only = client.show_training_job_flavors(sdk.ShowTrainingJobFlavorsRequest(flavor_type="Ascend")).flavors
    assert {flavor.flavor_type for flavor in only} <= {"Ascend"}
    engines = client.show_training_job_engines(sdk.ShowTrainingJobEnginesRequest())
    assert engines.total == len(engines.items)

    job_id = submit_flavor(client, first.flavor_id)
    resource = wait_until(client, job_id).spec.resource
    assert (resource.flavor_id, resource.flavor_name) == (first.flavor_id, first.flavor_name)
    assert resource.flavor_detail.flavor_type == "CPU"
    given = resource.main_container_allocated_resources
    assert given.cpu_core_num == first.flavor_info.cpu.core_num
    assert (given.accelerator_num, given.accelerator_type) == (0, None)


def submit_flavor(client: Any, flavor_id: str | None, **algorithm: Any) -> str:
    body = sdk.Job(
        kind="job",
        metadata=sdk.JobMetadata(name=unique("sized")),
        algorithm=sdk.JobAlgorithm(**({"command": "true"} | algorithm)),
        spec=sdk.Spec(resource=sdk.SpecResource(flavor_id=flavor_id)),
    )
    return str(client.create_training_job(sdk.CreateTrainingJobRequest(body=body)).metadata.id)


# Refusals are typed exceptions


@pytest.mark.parametrize(
    ("call", "request_of"),
    [
        ("show_training_job_details", sdk.ShowTrainingJobDetailsRequest),
        ("delete_training_job", sdk.DeleteTrainingJobRequest),
        ("list_training_job_events", sdk.ListTrainingJobEventsRequest),
        ("list_training_job_stages", sdk.ListTrainingJobStagesRequest),
        ("list_training_job_tasks", sdk.ListTrainingJobTasksRequest),
    ],
)
def test_a_job_that_is_not_there(client: Any, call: str, request_of: Any) -> None:
    error = refused(getattr(client, call), request_of(training_job_id=str(uuid.uuid4())))
    assert (error.status_code, error.error_code) == (404, "ModelArts.JobNotFound")


@pytest.mark.parametrize(
    ("call", "request_of"),
    [
        ("show_training_job_metrics", sdk.ShowTrainingJobMetricsRequest),
        ("show_training_job_logs_from_aom", sdk.ShowTrainingJobLogsFromAomRequest),
        ("show_training_job_logs_preview", sdk.ShowTrainingJobLogsPreviewRequest),
    ],
)
def test_a_task_that_is_not_there_says_which_are(
    client: Any, finished: str, call: str, request_of: Any
) -> None:
    error = refused(getattr(client, call), request_of(training_job_id=finished, task_id="worker-9"))
    assert (error.status_code, error.error_code) == (404, "ModelArts.TaskNotFound")
    assert "worker-0" in error.error_msg


def test_a_job_id_that_was_left_out_is_not_found(client: Any) -> None:
    assert refused(details, client, None).status_code == 404  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("algorithm", "flavor_id", "code", "said"),
    [
        ({}, "no-such-flavor", "ModelArts.2781", "no-such-flavor"),
        ({"engine": {"engine_id": "no-such"}}, None, "ModelArts.EngineNotFound", "no-such"),
        ({"id": "some-algorithm"}, None, "ModelArts.2788", "algorithm management"),
        ({"command": None}, None, "ModelArts.2788", "say what to run"),
        (
            {"command": None, "code_dir": "obs://nothing/here", "boot_file": "train.py"},
            None,
            "ModelArts.ObjectNotFound",
            "obs://nothing/here",
        ),
        ({"environments": {"1BAD": "x"}}, None, "ModelArts.2788", "environments"),
    ],
)
def test_a_job_that_cannot_be(
    client: Any, algorithm: dict[str, Any], flavor_id: str | None, code: str, said: str
) -> None:
    error = refused(lambda: submit_flavor(client, flavor_id, **algorithm))
    assert (error.status_code, error.error_code) == (400, code)
    assert said in error.error_msg


def test_an_action_that_is_not_known_says_which_are(client: Any, finished: str) -> None:
    request = sdk.StopTrainingJobRequest(
        training_job_id=finished, body=sdk.JobActionType(action_type="restart")
    )
    error = refused(client.stop_training_job, request)
    assert (error.status_code, error.error_code) == (400, "ModelArts.2788")
    assert "action_type must be one of [terminate]" in error.error_msg


def test_queries_that_are_not_valid(client: Any, finished: str) -> None:
    def events(**given: Any) -> str:
        request = sdk.ListTrainingJobEventsRequest(training_job_id=finished, **given)
        return str(refused(client.list_training_job_events, request).error_msg)

    assert "start_time and end_time" in events(start_time="0")
    assert "limit" in events(limit=101)
    assert "level" in events(level="Loud")
    assert "start_time" in events(start_time="soon", end_time="later")
    request = sdk.ShowTrainingJobLogsFromAomRequest(
        training_job_id=finished, task_id="worker-0", base_line="many"
    )
    assert "base_line" in refused(client.show_training_job_logs_from_aom, request).error_msg
    report = sdk.NotifyTrainingJobInformationRequest(
        training_job_id=finished,
        task_id="worker-0",
        report_type="gossip",
        body=sdk.ReportEventBody(type="x"),
    )
    assert "training-event" in refused(client.notify_training_job_information, report).error_msg


def test_a_wrong_secret_is_refused(server: LiveServer) -> None:
    credentials = BasicCredentials(server.access_key, "not the secret", server.project_id)
    stranger = (
        sdk.ModelArtsClient.new_builder().with_credentials(credentials).with_endpoint(server.endpoint).build()
    )
    error = refused(stranger.show_training_job_engines, sdk.ShowTrainingJobEnginesRequest())
    assert (error.status_code, error.error_code) == (401, "APIGW.0301")
