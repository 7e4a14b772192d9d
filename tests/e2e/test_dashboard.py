"""Every panel of the Grafana dashboard is answered with data by a Prometheus that scraped a live server."""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huaweicloudsdkmodelarts import v1 as sdk

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of
from tests.e2e.test_exposition import SCRAPE, ask
from tests.e2e.waiting import eventually
from tests.servers.prometheus import PrometheusServer
from tests.test_deploy import DASHBOARD, expressions
from tests.unit.collect.exporter import exporter

pytestmark = pytest.mark.e2e

GIB = 1024**3
SECONDS_MAX = 90.0
CHIP = """npu_chip_info_utilization{id="0"} 60
npu_chip_info_hbm_used_memory{id="0"} 1024
npu_chip_info_hbm_total_memory{id="0"} 4096
npu_chip_info_health_status{id="0"} 1
"""
FAMILIES = ("gpu", "npu")
FLAVORS = "".join(
    f'[[flavors]]\nid = "one-{family}"\ncpu_cores = 0.2\nmemory_gib = 0.25\n{family}s = 1\n'
    for family in FAMILIES
)


@pytest.fixture
def machine(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """A server on a machine that has a GPU and an NPU, as far as their tools can tell."""
    (tmp_path / "cards").write_text(f"40 1 {GIB} {4 * GIB}\n")
    (tmp_path / "libnvidia-ml.so.1").symlink_to(library / "libnvidia-ml.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    config = tmp_path / "trackside.toml"
    with exporter(CHIP) as fake:
        own = f'sample_seconds = 1\nstop_grace_seconds = 2\nnpu_exporter_url = "{fake.url}"\n'
        config.write_text(own + FLAVORS)
        live = LiveServer(tmp_path / "data", extra=("--config", str(config)))
        try:
            yield live.start()
        finally:
            live.stop()


def submit(client: Any, name: str, flavor: str) -> str:
    body = sdk.Job(
        kind="job",
        metadata=sdk.JobMetadata(name=name),
        algorithm=sdk.JobAlgorithm(command="sleep 600"),
        spec=sdk.Spec(
            resource=sdk.SpecResource(node_count=1, flavor_id=flavor),
            custom_metrics=[sdk.CustomMetrics(_exec=sdk.ModelExec(command=["echo", "loss 0.5"]))],
        ),
    )
    return str(client.create_training_job(sdk.CreateTrainingJobRequest(body=body)).metadata.id)


def filled_in(expression: str, job_id: str) -> str:
    """Return what Grafana would ask for a job."""
    values = {"$job": job_id, "$task": ".*", "$__rate_interval": "1m", "$__range": "1h"}
    for name, value in values.items():
        expression = expression.replace(name, value)
    return expression


def unanswered(prometheus: PrometheusServer, jobs: list[str]) -> set[str]:
    """Return the queries for which there is no data, whichever of the jobs is chosen."""
    return {one for one in expressions() if not any(ask(prometheus, filled_in(one, job)) for job in jobs)}


def variable(name: str) -> dict[str, Any]:
    (found,) = [one for one in DASHBOARD["templating"]["list"] if one["name"] == name]
    return dict(found)


def jobs_to_choose(prometheus: PrometheusServer) -> dict[str, str]:
    """Return values and texts of the variable as Grafana makes them: its query's series, then its regex."""
    query = variable("job")["query"]["query"].removeprefix("query_result(").removesuffix(")")
    pattern = re.compile(variable("job")["regex"].strip("/").replace("(?<", "(?P<"))
    lines = [
        ",".join(f'{name}="{value}"' for name, value in sorted(one["metric"].items()))
        for one in ask(prometheus, filled_in(query, ""))
    ]
    return {found["value"]: found["text"] for line in lines if (found := pattern.search(line))}


def tasks_to_choose(prometheus: PrometheusServer, job_id: str) -> list[str]:
    """Return the variable's values: those that a label has."""
    asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable("task")["query"]["query"])
    assert asked is not None
    match = urllib.parse.quote(filled_in(asked[1], job_id))
    url = f"{prometheus.url}/api/v1/label/{asked[2]}/values?match[]={match}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found: list[str] = json.load(answer)["data"]
    return found


def test_every_panel_and_variable_has_data(machine: LiveServer) -> None:
    target = machine.endpoint.removeprefix("http://")
    prometheus = PrometheusServer(SCRAPE.format(token=machine.token, target=target))
    try:
        client = client_of(machine)
        names = {submit(client, f"on-{family}", f"one-{family}"): f"on-{family}" for family in FAMILIES}
        jobs = list(names)
        left = set(expressions())

        def all_answered() -> bool:
            left.intersection_update(unanswered(prometheus, jobs))
            return not left

        try:
            eventually(all_answered, "some panels stay empty", seconds=SECONDS_MAX)
        finally:
            assert not left, f"no data for {left}"
        assert jobs_to_choose(prometheus) == names
        assert tasks_to_choose(prometheus, jobs[0]) == ["worker-0"]
    finally:
        prometheus.remove()
