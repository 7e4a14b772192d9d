"""The official core client signs and sends every operation of ModelArts v1 to a live server."""

import json
import urllib.error
import urllib.request
import uuid
from typing import Any

import pytest
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkcore.sdk_response import SdkResponse
from huaweicloudsdkmodelarts import v1 as sdk

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, submit, wait_until
from tests.e2e.waiting import eventually
from trackside.api.modelarts_v1.metrics import KB, METRIC_OF
from trackside.api.modelarts_v1.routes import OPERATIONS

pytestmark = pytest.mark.e2e

SCRIPT = """
import argparse, pathlib, sys
parser = argparse.ArgumentParser()
for name in ("data_url", "train_url", "learning_rate"):
    parser.add_argument("--" + name)
given = parser.parse_args()
print("rate", given.learning_rate)
print("data", pathlib.Path(given.data_url, "part.txt").read_text())
pathlib.Path(given.train_url, "model.txt").write_text("trained")
for number in range(100):
    print("line", number)
"""
RUNS_SECONDS = 60
OVER = (10, 11, 12, 5)
CALLED: set[str] = set()


class Answer(SdkResponse):
    """Whatever came; tests read the raw content."""

    openapi_types: dict[str, str] = {}
    attribute_map: dict[str, str] = {}
    sensitive_list: list[str] = []


class Statistic(SdkResponse):
    """The answer of metric-statistic, as a generated SDK would parse it."""

    openapi_types = {"metrics": "list[StatisticMetric]", "interval": "int"}
    attribute_map = {"metrics": "metrics", "interval": "interval"}
    sensitive_list: list[str] = []

    def __init__(self, metrics: Any = None, interval: Any = None) -> None:
        super().__init__()
        self.metrics, self.interval = metrics, interval


class StatisticMetric:
    """One metric of it."""

    openapi_types = {"metric": "str", "value": "list[str]"}
    attribute_map = {"metric": "metric", "value": "value"}
    sensitive_list: list[str] = []

    def __init__(self, metric: Any = None, value: Any = None) -> None:
        self.metric, self.value = metric, value


class Client:
    """The SDK's client, with requests of one's own."""

    def __init__(self, server: LiveServer, secret_key: str = "") -> None:
        credentials = BasicCredentials(server.access_key, secret_key or server.secret_key, server.project_id)
        builder = sdk.ModelArtsClient.new_builder().with_credentials(credentials)
        self.sdk = builder.with_endpoint(server.endpoint).build()
        for kind in (Answer, Statistic, StatisticMetric):
            setattr(self.sdk.model_package, kind.__name__, kind)

    def send(self, name: str, body: Any = None, query: Any = None, kind: str = "Answer", **path: Any) -> Any:
        """Send an operation by its name in the table."""
        operation = next(one for one in OPERATIONS if one.name == name)
        CALLED.add(name)
        return self.sdk.do_http_request(
            operation.method,
            operation.path,
            path_params={key: str(value) for key, value in path.items()},
            query_params=list((query or {}).items()),
            header_params={"Content-Type": "application/json"},
            body=body,
            response_type=kind,
        )

    def call(self, name: str, body: Any = None, query: Any = None, **path: Any) -> Any:
        """Return the decoded answer of an operation."""
        answer = self.send(name, body, query, **path)
        assert answer.status_code == 200
        return json.loads(answer.raw_content)

    def refused(self, name: str, body: Any = None, query: Any = None, **path: Any) -> ClientRequestException:
        with pytest.raises(ClientRequestException) as caught:
            self.send(name, body, query, **path)
        error: ClientRequestException = caught.value
        assert error.request_id
        return error

    def create(self, **config: Any) -> dict[str, Any]:
        body = {"job_name": unique("v1"), "config": {"spec_id": 1, **config}}
        made: dict[str, Any] = self.call("CreateTrainingJob", body)
        return {"job_id": made["job_id"], "version_id": made["version_id"]}

    def wait(self, *statuses: int, **ids: Any) -> Any:
        """Return the detail once the version has one of the statuses (or, by default, is over)."""

        def look() -> Any:
            found = self.call("ShowTrainingJobVersion", **ids)
            wanted = statuses or OVER
            assert found["status"] in wanted or found["status"] not in OVER, found
            return found if found["status"] in wanted else None

        return eventually(look, f"{ids} never got to {statuses or OVER}")


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Client:
    return Client(server)


@pytest.fixture(scope="module")
def trained(server: LiveServer, client: Client) -> dict[str, Any]:
    """A job from a boot file that read its data, wrote its model and is over."""
    obs = server.data_dir / "obs"
    for path, text in (("v1-code/app/boot.py", SCRIPT), ("v1-data/set/part.txt", "numbers")):
        (obs / path).parent.mkdir(parents=True, exist_ok=True)
        (obs / path).write_text(text)
    ids = client.create(
        worker_server_num=1,
        app_url="/v1-code/app/",
        boot_file_url="/v1-code/app/boot.py",
        data_url="/v1-data/set/",
        train_url="/v1-out/model/",
        parameter=[{"label": "learning_rate", "value": "0.01"}],
        engine_id=1,
    )
    detail = client.wait(**ids)
    assert detail["status"] == 10, client.call("ShowTrainingJobLog", query={"log_file": "worker-0"}, **ids)
    return ids


def native(server: LiveServer, path: str) -> Any:
    """Return what Trackside's own API says."""
    url = f"{server.endpoint}/api/trackside/v1/{path}"
    request = urllib.request.Request(url, headers={"X-Auth-Token": server.token})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def pod(client: Client, ids: dict[str, Any]) -> str:
    (name,) = client.call("ListTrainingJobLogFiles", **ids)["log_file_list"]
    return str(name)


# A job from a boot file


def test_it_read_its_data_and_wrote_its_model(server: LiveServer, client: Client, trained: Any) -> None:
    assert (server.data_dir / "obs" / "v1-out" / "model" / "model.txt").read_text() == "trained"
    detail = client.call("ShowTrainingJobVersion", **trained)
    assert detail["start_time"] >= detail["create_time"]
    assert 0 < detail["duration"] < RUNS_SECONDS * 1000
    assert (detail["app_url"], detail["parameter"]) == (
        "/v1-code/app/",
        [{"label": "learning_rate", "value": "0.01"}],
    )


def test_its_log(client: Client, trained: Any) -> None:
    file = pod(client, trained)
    newest = client.call("ShowTrainingJobLog", query={"log_file": file}, **trained)
    assert newest["lines"] == 50
    assert newest["content"].endswith("line 99\n")
    oldest = client.call(
        "ShowTrainingJobLog", query={"log_file": file, "order": "asc", "lines": 2}, **trained
    )
    assert oldest["content"] == "rate 0.01\ndata numbers\n"
    before = client.call(
        "ShowTrainingJobLog",
        query={"log_file": file, "base_line": newest["start_line"], "lines": 1},
        **trained,
    )
    assert before["content"] == "line 49\n"


def test_its_metrics_as_the_source_document_asks(client: Client, trained: Any) -> None:
    asked = {"metrics": "gpuUtil"}
    found = client.send(
        "ShowPodMetricStatistic", query=asked, kind="Statistic", pod_name=pod(client, trained), **trained
    )
    assert found.interval == 1
    (metric,) = found.metrics
    assert metric.metric == "gpuUtil"
    assert metric.value
    assert all(isinstance(value, str) for value in metric.value)


def test_all_its_metrics(client: Client, trained: Any) -> None:
    answer = client.call("ShowPodMetricStatistic", pod_name=pod(client, trained), **trained)
    values = {entry["metric"]: entry["value"] for entry in answer["metrics"]}
    assert list(values) == list(METRIC_OF)
    assert len({len(row) for row in values.values()}) == 1
    for name in ("cpuUsage", "memUsage", "diskReadRate", "diskWriteRate"):
        assert float(values[name][0]) >= 0, f"{name} was measured"
    assert float(values["memUsage"][0]) > 0
    told = client.call("ShowTrainingJobVersion", **trained)["system_metric_list"]
    assert told == {**values, "interval": 1}, "one task: the version used what the task used"
    (listed,) = client.call("ListTrainingJobVersions", job_id=trained["job_id"])["versions"]
    assert json.loads(listed["system_metric_list"]) == told


def test_the_chinese_comma_is_signed_and_read(client: Client, trained: Any) -> None:
    asked = {"metrics": "CpuUsage\uff0cMemUsage", "statistic_type": "all"}
    answer = client.call("ShowPodMetricStatistic", query=asked, pod_name=pod(client, trained), **trained)
    assert [entry["metric"] for entry in answer["metrics"]] == ["cpuUsage", "memUsage"]
    error = client.refused(
        "ShowPodMetricStatistic", query={"metrics": "heat"}, pod_name="worker-0", **trained
    )
    assert (error.status_code, error.error_code) == (400, "ModelArts.2788")
    assert "GpuMemUsage" in error.error_msg


def test_v2_tells_the_same_numbers(server: LiveServer, client: Client) -> None:
    other = client_of(server)
    name = unique("both")
    uuid_of_job = submit(other, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done", name=name)
    wait_until(other, uuid_of_job, "Completed")
    (found,) = client.call("ListTrainingJobs", query={"search_content": name})["jobs"]
    ids = {"job_id": found["job_id"], "version_id": found["version_id"]}
    assert (found["job_name"], found["status"], found["version_count"]) == (name, 10, 1)
    answer = client.call("ShowPodMetricStatistic", pod_name=f"{name}.0", **ids)
    ours = {entry["metric"]: [float(v) for v in entry["value"]] for entry in answer["metrics"]}
    theirs = other.show_training_job_metrics(
        sdk.ShowTrainingJobMetricsRequest(training_job_id=uuid_of_job, task_id="worker-0")
    )
    for metric in theirs.metrics:
        if metric.metric in ours:
            assert ours[metric.metric] == metric.value
    assert max(ours["cpuUsage"]) > 0
    detail = other.show_training_job_details(sdk.ShowTrainingJobDetailsRequest(training_job_id=uuid_of_job))
    assert found["duration"] == detail.status.duration
    assert found["create_time"] == detail.metadata.create_time


def test_rates_are_kilobytes_and_percentages_percent(
    server: LiveServer, client: Client, trained: Any
) -> None:
    name = client.call("ShowTrainingJobVersion", **trained)["job_name"]
    (job,) = native(server, f"jobs?name={name}")["jobs"]
    window = f"start_ms={job['started_at_ms'] // 60_000 * 60_000}&end_ms={job['ended_at_ms'] + 1}"
    found = native(server, f"jobs/{job['id']}/metrics?{window}&step_ms=60000")["series"]
    points = {one["metric"]: [value for _, value in one["points"]] for one in found}
    told = client.call("ShowPodMetricStatistic", pod_name=f"{name}.0", **trained)["metrics"]
    compared = 0
    for entry in told:
        values = [float(value) for value in entry["value"] if value != "-1"]
        unit = KB if entry["metric"].endswith("Rate") else 1
        assert values == pytest.approx(
            [value / unit for value in points.get(METRIC_OF[entry["metric"]].metric, [])], abs=0.001
        )
        compared += len(values)
    assert compared


# Versions


def test_versions_from_creation_to_deletion(client: Client) -> None:
    ids = client.create(user_command=f"echo up; sleep {RUNS_SECONDS}")
    first = client.wait(8, **ids)
    assert "start_time" in first
    config = {"spec_id": 1, "user_command": "exit 3", "pre_version_id": ids["version_id"]}
    made = client.call("CreateTrainingJobVersion", {"config": config}, job_id=ids["job_id"])
    assert (made["job_id"], made["version_name"], made["job_name"]) == (
        ids["job_id"],
        "V0002",
        first["job_name"],
    )
    assert client.call("StopTrainingJobVersion", **ids) == {"is_success": True}
    assert client.wait(12, **ids)["status"] == 12
    second = {"job_id": ids["job_id"], "version_id": made["version_id"]}
    assert client.wait(11, **second)["pre_version_id"] == ids["version_id"]
    listed = client.call("ListTrainingJobVersions", query={"per_page": 1, "page": 1}, job_id=ids["job_id"])
    assert (listed["version_count"], [v["version_id"] for v in listed["versions"]]) == (
        2,
        [made["version_id"]],
    )
    overview = client.call("ListAllTrainingJobVersions", query={"limit": 0})
    statuses = {version["version_id"]: version["status"] for version in overview["versions"]}
    assert (statuses[ids["version_id"]], statuses[made["version_id"]]) == (12, 11)
    assert client.call("UpdateTrainingJob", {"job_desc": "anew"}, job_id=ids["job_id"])["is_success"] is True
    assert client.call("ShowTrainingJobVersion", **ids)["job_desc"] == "anew"
    assert client.call("DeleteTrainingJobVersion", **ids) == {"is_success": True}
    gone = client.refused("ShowTrainingJobVersion", **ids)
    assert (gone.status_code, gone.error_code) == (404, "ModelArts.JobNotFound")
    assert client.call("DeleteTrainingJob", job_id=ids["job_id"]) == {"is_success": True}
    assert client.refused("ListTrainingJobVersions", job_id=ids["job_id"]).status_code == 404


def test_a_name_is_taken(client: Client, trained: Any) -> None:
    name = client.call("ShowTrainingJobVersion", **trained)["job_name"]
    error = client.refused("CreateTrainingJob", {"job_name": name, "config": {"user_command": "true"}})
    assert (error.status_code, error.error_code) == (409, "ModelArts.0103")
    assert error.error_msg == f"Job name:{name} is existed"


# The rest


def test_a_node(server: LiveServer, client: Client, trained: Any) -> None:
    (node,) = native(server, "nodes")["nodes"]
    told = client.call("ShowPoolNodeMetricStatistic", pool_id="default", node_ip=node["ip"])
    assert [entry["metric"] for entry in told["metrics"]] == list(METRIC_OF)
    assert {len(entry["value"]) for entry in told["metrics"]} == {60}
    error = client.refused("ShowPoolNodeMetricStatistic", pool_id="poolabcd", node_ip=node["ip"])
    assert error.status_code == 404
    assert (
        client.refused("ShowPoolNodeMetricStatistic", pool_id="default", node_ip="0.0.0.1").status_code == 404
    )


def test_sizes_and_engines(client: Client) -> None:
    specs = client.call("ListResourceSpecs", query={"job_type": "train"})
    assert specs["spec_total_count"] == len(specs["specs"]) >= 1
    assert [spec["spec_id"] for spec in specs["specs"]] == list(range(1, len(specs["specs"]) + 1))
    assert client.call("ListAiEngines", query={"job_type": "train"}) == {"is_success": True, "engines": []}


def test_configurations(client: Client) -> None:
    name = unique("config")
    settings = {"worker_server_num": 1, "user_command": "true", "spec_id": 1}
    assert client.call("CreateTrainingJobConfig", {"config_name": name, **settings})["is_success"] is True
    listed = client.call("ListTrainingJobConfigs", query={"search_content": name})
    assert [config["config_name"] for config in listed["configs"]] == [name]
    changed = {**settings, "config_desc": "anew"}
    assert client.call("UpdateTrainingJobConfig", changed, config_name=name)["is_success"] is True
    detail = client.call("ShowTrainingJobConfig", config_name=name)
    assert (detail["config_desc"], detail["user_command"]) == ("anew", "true")
    assert client.call("DeleteTrainingJobConfig", config_name=name)["is_success"] is True
    assert client.refused("ShowTrainingJobConfig", config_name=name).status_code == 404


def test_who_does_not_prove_it_is_refused(server: LiveServer) -> None:
    error = Client(server, secret_key="not-the-key").refused("ListTrainingJobs")
    assert (error.status_code, error.error_code) == (401, "APIGW.0301")
    assert server.secret_key not in error.error_msg


def test_a_token_is_taken_and_refusals_have_both_messages(server: LiveServer, client: Client) -> None:
    url = f"{server.endpoint}/v1/{server.project_id}/training-jobs"
    request = urllib.request.Request(url, headers={"X-Auth-Token": server.token})
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["is_success"] is True
    request = urllib.request.Request(f"{url}?sortBy=colour", headers={"X-Auth-Token": server.token})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    with caught.value as refused:
        body = json.load(refused)
    assert body["is_success"] is False
    assert body["error_msg"] == body["error_message"]
    assert "version_count" in body["error_msg"]


def test_every_operation_was_called() -> None:
    assert {operation.name for operation in OPERATIONS} == CALLED
