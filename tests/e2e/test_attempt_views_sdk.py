"""The official SDKs read what is told of jobs that recovered: the answers of every story, over a socket."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from huaweicloudsdkmodelarts.v1 import ListTrainingJobStagesRequest, ListTrainingJobTasksRequest

from tests.e2e import sdk
from tests.e2e.conftest import LiveServer
from tests.e2e.dlc_sdk import CURRENT, Sdk, opened, python_with_sdk
from tests.unit.domain import stories
from trackside.api.modelarts_v2.records import stage_records
from trackside.api.modelarts_v2.status import task_places
from trackside.api.modelarts_v2.translate_job import from_job
from trackside.api.pai_dlc.translate_job import job_answer
from trackside.domain.job import Job

NOW_MS = 3_000_000
STORY_OF = {story.__name__: story for story in stories.STORIES}

Story = Callable[[], Job]


class Answers(BaseHTTPRequestHandler):
    """Tells the job whose story the path names."""

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        story = next(STORY_OF[part] for part in parts if part in STORY_OF)
        content = msgspec.json.encode(_answer(story(), parts))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def teller() -> Iterator[LiveServer]:
    """A server that only tells stories."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield LiveServer(
            data_dir=Path(),
            endpoint=f"http://127.0.0.1:{server.server_port}",
            project_id="p",
            access_key="ak",
            secret_key="sk",
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def dlc(teller: LiveServer, request: pytest.FixtureRequest) -> Iterator[Sdk]:
    with opened(python_with_sdk(request.config, CURRENT), CURRENT, teller) as client:
        yield client


@pytest.mark.parametrize("story", stories.STORIES)
def test_the_modelarts_sdk_reads_it_all(teller: LiveServer, story: Story) -> None:
    client = sdk.client_of(teller)
    job = story()
    wire = msgspec.to_builtins(from_job(job, flavor_of=lambda flavor_id: None, now_ms=NOW_MS).status)
    read = sdk.details(client, story.__name__).status
    assert [_known(record) for record in read.running_records] == wire["running_records"]
    assert [_known(place) for place in read.task_ips] == wire["task_ips"]
    assert [_known(status) for status in read.task_statuses] == wire["task_statuses"]
    stages = client.list_training_job_stages(ListTrainingJobStagesRequest(training_job_id=story.__name__))
    assert _known(stages) == msgspec.to_builtins(stage_records(job))
    tasks = client.list_training_job_tasks(ListTrainingJobTasksRequest(training_job_id=story.__name__))
    assert [_known(one) for one in tasks.body] == msgspec.to_builtins(task_places(job))


@pytest.mark.parametrize("story", stories.STORIES)
def test_the_dlc_sdk_reads_it_all(dlc: Sdk, story: Story) -> None:
    wire = msgspec.to_builtins(job_answer(story(), now_ms=NOW_MS, request_id="r"))
    read = dlc("get_job", story.__name__)
    assert read["StatusHistory"] == wire["StatusHistory"]
    assert read["RestartRecord"] == wire["RestartRecord"]
    assert read["RestartTimes"] == wire["RestartTimes"]
    assert [_plain(pod) for pod in read["Pods"]] == [_plain(pod) for pod in wire["Pods"]]


def _answer(job: Job, parts: list[str]) -> object:
    if parts[0] == "api":
        return job_answer(job, now_ms=NOW_MS, request_id="r")
    told: dict[str, Callable[[Job], object]] = {"stages": stage_records, "tasks": task_places}
    if parts[-1] in told:
        return told[parts[-1]](job)
    return from_job(job, flavor_of=lambda flavor_id: None, now_ms=NOW_MS)


def _known(model: Any) -> Any:
    """Return what the SDK made of an object, in the API's own words, without what was not told."""
    if isinstance(model, list):
        return [_known(item) for item in model]
    if not hasattr(model, "attribute_map"):
        return model
    found = {name: getattr(model, attribute) for attribute, name in model.attribute_map.items()}
    return {name: _known(value) for name, value in found.items() if value is not None}


def _plain(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod without lists that the SDK fills in itself and the one address it does not know."""
    kept = {name: value for name, value in pod.items() if value != [] and name != "PodIp"}
    if "HistoryPods" in kept:
        kept["HistoryPods"] = [_plain(one) for one in kept["HistoryPods"]]
    return kept
