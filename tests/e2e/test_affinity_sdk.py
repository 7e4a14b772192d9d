"""Required affinity through the official SDK, on two real agents: labels, cabinets, refusals, reasons."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkmodelarts.v1 import (
    CreateTrainingJobRequest,
    Job,
    JobAlgorithm,
    JobMetadata,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    RequiredAffinity,
    SchedulePolicy,
    Spec,
    SpecResource,
)

from tests.e2e.cluster import SECOND, Cluster, two_nodes
from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import wait_until
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


@pytest.fixture
def cluster(own_server: LiveServer, tmp_path: Path) -> Iterator[Cluster]:
    with two_nodes(own_server, tmp_path / "second") as found:
        yield found


def submit(
    cluster: Cluster, command: str, *, tasks: int = 1, share: float = 0.1, affinity: RequiredAffinity | None
) -> str:
    """Create a job whose tasks each need a share of a node's cores."""
    size = {"cpu_core_num": round(cluster.cores * share, 3), "mem_size": 0.25}
    body = Job(
        kind="job",
        metadata=JobMetadata(name="near"),
        algorithm=JobAlgorithm(command=command),
        spec=Spec(
            resource=SpecResource(node_count=tasks, main_container_customized_flavor=size),
            schedule_policy=SchedulePolicy(required_affinity=affinity),
        ),
    )
    return str(cluster.client.create_training_job(CreateTrainingJobRequest(body=body)).metadata.id)


def on(key: str, operator: str, *values: str) -> RequiredAffinity:
    rule = NodeSelectorRequirement(key=key, operator=operator, values=list(values))
    return RequiredAffinity(
        node_affinity=NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=[rule])])
    )


def refusal(cluster: Cluster, **asked: Any) -> Any:
    with pytest.raises(ClientRequestException) as refused:
        submit(cluster, "true", **asked)
    return refused.value


def test_nodes_are_chosen_by_their_labels(cluster: Cluster) -> None:
    cluster.label(SECOND, cabinet="B", row="7")
    path = f"/v2/{cluster.server.project_id}/pools/default/nodes/{SECOND}"  # the SDK drops labels of our own
    assert cluster.server.call("GET", path)["metadata"]["labels"]["cabinet"] == "B"
    for affinity in (on("cabinet", "In", "B"), on("row", "Gt", "6"), on("cabinet", "Exists")):
        job = submit(cluster, "true", affinity=affinity)
        wait_until(cluster.client, job, "Completed")
        assert cluster.places(job) == [SECOND]
    job = submit(cluster, "true", affinity=on("cabinet", "NotIn", "B"))
    wait_until(cluster.client, job, "Completed")
    assert cluster.places(job) == [cluster.first]
    error = refusal(cluster, affinity=on("cabinet", "In", "C"))
    assert error.status_code == 400
    assert "the labels are: cabinet=B, row=7" in error.error_msg
    assert "must be one of [In NotIn" in refusal(cluster, affinity=on("cabinet", "Like", "B")).error_msg


def test_a_gang_waits_for_one_cabinet_and_runs_there(cluster: Cluster, open_dir: Path) -> None:
    cabinet = RequiredAffinity(affinity_type="cabinet")
    cluster.label(cluster.first, cabinet="A")
    cluster.label(SECOND, cabinet="B")
    error = refusal(cluster, tasks=2, share=0.6, affinity=cabinet)
    assert error.status_code == 403
    assert "never fit into one cabinet; the largest that fits has 1 of these tasks" in error.error_msg
    holding = submit(
        cluster,
        f"while [ ! -e {open_dir}/go ]; do sleep 0.05; done",
        share=0.6,
        affinity=on("cabinet", "In", "A"),
    )
    wait_until(cluster.client, holding, "Running")
    cluster.label(SECOND, cabinet="A")
    wide = submit(cluster, "true", tasks=2, share=0.6, affinity=cabinet)
    path = f"/jobs/{wide}/explain"
    told = eventually(lambda: cluster.ask("GET", path)["pending"], "nobody says why it waits")
    assert "in one cabinet" in told["text"]
    (open_dir / "go").touch()
    wait_until(cluster.client, wide, "Completed")
    assert sorted(cluster.places(wide)) == sorted([cluster.first, SECOND])
    groups = RequiredAffinity(affinity_type="hyperinstance", affinity_group_size=2)
    assert "label hyperinstance" in refusal(cluster, tasks=2, share=0.6, affinity=groups).error_msg


def test_bad_labels_are_refused_and_good_ones_outlive_the_server(cluster: Cluster) -> None:
    assert "is not a label" in cluster.refused("PATCH", f"/nodes/{SECOND}", {"labels": {"a b": "c"}})
    assert "takes 1 to 63" in cluster.refused("PATCH", f"/nodes/{SECOND}", {"labels": {"a": "b c"}})
    assert "no node" in cluster.refused("PATCH", "/nodes/nowhere", {"labels": {"a": "b"}})
    cluster.label(SECOND, cabinet="B", slice="s1")
    cluster.label(SECOND, slice=None)
    cluster.server.kill()
    cluster.server.start()
    labels = eventually(
        lambda: {
            node["id"]: node["labels"] for node in cluster.ask("GET", "/pools")["pools"][0]["nodes"]
        }.get(SECOND),
        "the second node does not come back",
    )
    assert labels == {"cabinet": "B"}
