"""A job's own metrics, from its command, its port and its log to the API and the CLI."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huaweicloudsdkmodelarts.v1 import (
    AutoSearch,
    CreateTrainingJobRequest,
    CustomMetrics,
    HttpGet,
    Job,
    JobAlgorithm,
    JobMetadata,
    JobPolicies,
    ListTrainingJobEventsRequest,
    ModelExec,
    RewardAttrs,
    Spec,
    SpecResource,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.agent_harness import AgentProcess, FakeServer, alive, launch, node, until
from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, wait_until
from tests.e2e.test_agent_unprivileged import HumbleAgent
from tests.e2e.waiting import eventually
from trackside.domain.exchange import Stop, TaskKey
from trackside.domain.job import MetricSource
from trackside.domain.metric import Sample

pytestmark = pytest.mark.e2e
WAIT_SECONDS = 60.0
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


# --- on a node


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeServer, AgentProcess]]:
    with node(tmp_path_factory.mktemp("data")) as made:
        yield made


def own_samples(server: FakeServer, of: TaskKey) -> dict[str, Sample]:
    """Return the newest of each of the task's own metrics."""
    reports = list(server.reports)
    found = [s for r in reports if r.measured for s in r.measured.each() if s.job_id == of.job_id]
    return {s.metric: s for s in found if s.metric.startswith("custom.")}


def test_a_command_runs_inside_the_task(running: tuple[FakeServer, AgentProcess], open_dir: Path) -> None:
    server, _ = running
    seen = open_dir / "seen"
    look = (
        "import json, os, sys; "
        "json.dump([os.getuid(), os.getcwd(), os.environ['TRACKSIDE_TASK_KEY'], os.environ['JOBS_OWN'], "
        "open('/proc/self/cgroup').read(), os.stat('/proc/self/ns/mnt').st_ino, os.getgroups()], "
        "open(sys.argv[1], 'w')); "
    )
    python = shlex.quote(sys.executable)
    main = f"{python} -c {shlex.quote(look)} {seen}.main; sleep 600"
    probe = MetricSource(command=("sh", "-c", f"{python} -c {shlex.quote(look)} {seen}.probe && cat loss"))
    of = server.order(
        launch(f"echo 'loss 0.25' > loss; {main}", environment={"JOBS_OWN": "yes"}, custom_metrics=(probe,))
    )
    until(lambda: "custom.loss" in own_samples(server, of), WAIT_SECONDS)
    assert own_samples(server, of)["custom.loss"].value == 0.25
    in_task, in_probe = (json.loads(Path(f"{seen}.{who}").read_text()) for who in ("main", "probe"))
    assert in_probe == in_task
    assert in_task[0] != os.getuid() or os.getuid() != 0
    server.order(Stop(key=of, grace_seconds=1))
    server.ended(of)
    until(lambda: not alive(of))


def test_a_hanging_command_holds_up_neither_the_others_nor_the_sensors(
    running: tuple[FakeServer, AgentProcess],
) -> None:
    server, _ = running
    sources = (
        MetricSource(command=("sh", "-c", "setsid sleep 700 & sleep 701")),
        MetricSource(command=("echo", "loss 1")),
    )
    of = server.order(launch("sleep 600", custom_metrics=sources))
    until(lambda: "custom.loss" in own_samples(server, of), WAIT_SECONDS)
    (note,) = until(lambda: server.notes(of), WAIT_SECONDS)
    assert note == "custom metrics: the command sh took more than 5 s and was killed"
    measured = [s for r in server.reports if r.measured for s in r.measured.each() if s.job_id == of.job_id]
    assert len({s.at_ms for s in measured if s.metric == "cpu_percent"}) >= 4
    server.order(Stop(key=of, grace_seconds=1))
    server.ended(of)
    until(lambda: not alive(of))


def test_a_job_of_a_moment_has_what_it_printed(running: tuple[FakeServer, AgentProcess]) -> None:
    server, _ = running
    ended = server.run(
        "echo 'step 1 loss=0.5'; printf 'step 2 loss=0.125'", log_patterns=(("loss", r"loss=(\S+)"),)
    )
    sample = until(lambda: own_samples(server, ended.key).get("custom.loss"), WAIT_SECONDS)
    assert (sample.value, sample.at_ms) == (0.125, ended.at_ms)


def test_what_a_task_printed_while_no_agent_was_there_is_found(tmp_path: Path, open_dir: Path) -> None:
    """The same happens to a job of a moment on a busy machine: it is over before anyone saw it run."""
    command = f"until [ -e {open_dir}/go ]; do sleep 0.02; done; echo loss=0.125"
    with node(tmp_path) as (server, agent):
        of = server.order(launch(command, log_patterns=(("loss", r"loss=(\S+)"),)))
        until(lambda: alive(of))
        agent.kill()
        (open_dir / "go").touch()
        until(lambda: not alive(of))
        agent.start()
        ended = server.ended(of)
        sample = until(lambda: own_samples(server, of).get("custom.loss"), WAIT_SECONDS)
        assert (sample.value, sample.at_ms) == (0.125, ended.at_ms)


def test_readings_go_on_after_the_agent_was_killed_and_nothing_of_them_is_left(tmp_path: Path) -> None:
    sources = (MetricSource(command=("echo", "loss 1")), MetricSource(command=("sleep", "702")))
    with node(tmp_path) as (server, agent):
        of = server.order(launch("exec sleep 600", custom_metrics=sources))
        until(lambda: "custom.loss" in own_samples(server, of), WAIT_SECONDS)
        until(lambda: len(alive(of)) == 2)  # the task and the command that hangs
        first = own_samples(server, of)["custom.loss"]
        agent.kill()
        until(lambda: len(alive(of)) == 1)
        agent.start()
        until(lambda: own_samples(server, of)["custom.loss"].at_ms > first.at_ms, WAIT_SECONDS)


def test_without_privileges_a_command_has_the_tasks_environment(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give up its privileges for this test")
    source = MetricSource(command=("sh", "-c", 'echo "user $(id -u)"; echo "own $JOBS_OWN"'))
    patterns = (("step", r"step (\d+)"),)
    with node(tmp_path, agent_class=HumbleAgent) as (server, _):
        order = launch(
            "echo step 3; sleep 600",
            environment={"JOBS_OWN": "7"},
            custom_metrics=(source,),
            log_patterns=patterns,
        )
        of = server.order(order)
        wanted = {"custom.user": 65534.0, "custom.own": 7.0, "custom.step": 3.0}
        until(lambda: {name: s.value for name, s in own_samples(server, of).items()} == wanted, WAIT_SECONDS)


# --- through the API


TRAIN = """
import http.server, threading, time
steps = 0
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        lines = ["# TYPE train_loss gauge", 'train_loss{split="train",fold="1"} 0.5',
                 "# TYPE steps_total counter", f"steps_total {steps}", ""]
        self.wfile.write(chr(10).join(lines).encode())
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", %d), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
while True:
    steps += 10
    print(f"step {steps} accuracy: {steps / 1000:.3f}", flush=True)
    time.sleep(0.1)
"""


def series_of(server: LiveServer, job_id: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]:
    """Return the job's own series through Trackside's API."""
    end_ms = int(time.time() * 1000) + 1000
    url = f"{server.endpoint}/api/trackside/v1/jobs/{job_id}/metrics"
    url += f"?start_ms={end_ms - 600_000}&end_ms={end_ms}&step_ms=1000"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {server.token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = json.load(answer)["series"]
    return {
        (one["metric"], tuple(sorted(one["labels"].items()))): [value for _, value in one["points"]]
        for one in found
        if one["metric"].startswith("custom.")
    }


def create(client: Any, command: str, *, custom_metrics: list[Any], policies: Any = None) -> str:
    flavor = {"cpu_core_num": 0.5, "mem_size": 0.25}
    body = Job(
        kind="job",
        metadata=JobMetadata(name="own-metrics"),
        algorithm=JobAlgorithm(command=command, policies=policies),
        spec=Spec(
            resource=SpecResource(node_count=1, main_container_customized_flavor=flavor),
            custom_metrics=custom_metrics,
        ),
    )
    return str(client.create_training_job(CreateTrainingJobRequest(body=body)).metadata.id)


def custom_events(client: Any, job_id: str) -> list[str]:
    """Return what the job's events say of its own metrics."""
    events = client.list_training_job_events(ListTrainingJobEventsRequest(training_job_id=job_id)).events
    return [event.message for event in events if "custom metrics" in event.message]


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_all_three_kinds_are_read_and_served_with_their_labels(server: LiveServer) -> None:
    client, port = client_of(server), free_port()
    rewards = [RewardAttrs(name="accuracy", mode="max", regex=r"accuracy: (\S+)")]
    job_id = create(
        client,
        f"{shlex.quote(sys.executable)} -c {shlex.quote(TRAIN % port)}",
        custom_metrics=[
            CustomMetrics(http_get=HttpGet(path="/metrics", port=port)),
            CustomMetrics(_exec=ModelExec(command=["sh", "-c", "echo throughput 123.5"])),
            CustomMetrics(_exec=ModelExec(command=["sh", "-c", "exit 7"])),
        ],
        policies=JobPolicies(auto_search=AutoSearch(reward_attrs=rewards)),
    )
    wait_until(client, job_id, "Running")
    loss = ("custom.train_loss", (("fold", "1"), ("split", "train")))
    wanted = {loss, ("custom.throughput", ()), ("custom.accuracy", ()), ("custom.steps_per_second", ())}
    found = eventually(
        lambda: series if wanted <= (series := series_of(server, job_id)).keys() else None,
        "the job's own metrics never came",
        seconds=WAIT_SECONDS,
    )
    assert set(found[loss]) == {0.5}
    assert set(found["custom.throughput", ()]) == {123.5}
    assert 0 < found["custom.accuracy", ()][0] < 1000
    assert 0 < found["custom.steps_per_second", ()][0] <= 101
    troubles = eventually(
        lambda: custom_events(client, job_id), "the failing command was not told of", seconds=WAIT_SECONDS
    )
    assert troubles == ["custom metrics: the command sh (custom_metrics[2]) failed: it exited with code 7"]
    shown = subprocess.run(
        [sys.executable, "-m", "trackside", "metrics", job_id, "-m", "custom."],
        env={
            **os.environ,
            "TRACKSIDE_ENDPOINT": server.endpoint,
            "TRACKSIDE_PROJECT_ID": server.project_id,
            "TRACKSIDE_ACCESS_KEY": server.access_key,
            "TRACKSIDE_SECRET_KEY": server.secret_key,
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert 'custom.train_loss{fold="1",split="train"}\t0.5' in shown.stdout
    with urllib.request.urlopen(server.endpoint + "/metrics", timeout=30) as answer:
        page = answer.read().decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    (scraped,) = families["trackside_task_custom_train_loss"].samples
    assert scraped.value == 0.5
    assert {
        "fold": "1",
        "split": "train",
        "job_id": job_id,
        "task": "worker-0",
    }.items() <= scraped.labels.items()
    assert families["trackside_task_custom_steps"].type == "counter"
    assert {"trackside_task_custom_throughput", "trackside_task_custom_accuracy"} <= families.keys()


def test_a_job_of_a_moment_is_told_that_its_port_never_opened(server: LiveServer) -> None:
    client = client_of(server)
    source = CustomMetrics(http_get=HttpGet(path="/metrics", port=free_port()))
    job_id = create(client, "sleep 4", custom_metrics=[source])
    wait_until(client, job_id, "Completed")
    (told,) = eventually(lambda: custom_events(client, job_id), "nothing was told", seconds=WAIT_SECONDS)
    assert told.endswith("is not open: no process of the task listens there")


def test_the_example_of_the_docs_works(server: LiveServer) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S)
    environment = {
        **os.environ,
        "TRACKSIDE_ENDPOINT": server.endpoint,
        "TRACKSIDE_PROJECT_ID": server.project_id,
        "TRACKSIDE_ACCESS_KEY": server.access_key,
        "TRACKSIDE_SECRET_KEY": server.secret_key,
    }
    done = subprocess.run(
        [sys.executable, "-c", example],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    job_id = done.stdout.split()[-1]
    names = {"custom.loss", "custom.samples_total", "custom.accuracy"}
    eventually(
        lambda: names <= {name for name, _ in series_of(server, job_id)},
        "the example's metrics never came",
        seconds=WAIT_SECONDS,
    )
