"""Every operation on pools through the official SDK, and a pool of which more is asked than it has."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
from huaweicloudsdkmodelarts.v1 import (
    BatchDrainPoolNodesReq,
    BatchDrainPoolNodesRequest,
    BatchLockPoolNodesRequest,
    BatchLockPoolNodesRequestBody,
    BatchUnlockPoolNodesRequest,
    ChangeTrainingJobDescriptionRequest,
    CreatePoolRequest,
    CreatePoolRequestBody,
    CreateTrainingJobRequest,
    DeletePoolRequest,
    DeleteTrainingJobRequest,
    Job,
    JobAlgorithm,
    JobMetadata,
    ListPoolNodesRequest,
    ListPoolsRequest,
    ListTrainingJobsRequest,
    ListWorkloadsRequest,
    PatchPoolRequest,
    PoolAnnotationsCreation,
    PoolLabelsCreation,
    PoolMetadataCreation,
    PoolMetadataUpdate,
    PoolMetadataUpdateAnnotations,
    PoolResourceFlavor,
    PoolSpecCreation,
    PoolSpecUpdate,
    PoolSpecUpdateResources,
    PoolUpdateRequest,
    SchedulePolicy,
    ShowPoolMonitorRequest,
    ShowPoolNodeRequest,
    ShowPoolRequest,
    ShowPoolRuntimeMetricsRequest,
    ShowPoolStatisticsRequest,
    ShowWorkloadStatisticsRequest,
    Spec,
    SpecResource,
    StopTrainingJobRequest,
)

from tests.e2e.conftest import LiveServer
from tests.e2e.sdk import client_of, details, wait_until
from tests.e2e.waiting import eventually
from trackside.api.modelarts_v2.phases import PHASE_OF
from trackside.api.modelarts_v2.pool_words import STATUS_OF, STATUSES

FLAVOR = "tiny"
CONFIG = f"""
stop_grace_seconds = 2
[[flavors]]
id = "{FLAVOR}"
cpu_cores = 0.1
memory_gib = 0.125
"""
STATUS_OF_PHASE = {PHASE_OF[phase]: status for phase, status in STATUS_OF.items()}
LISTED_MAX = 50


@pytest.fixture(scope="module")
def pools_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with a flavor small enough for many jobs at once."""
    directory = tmp_path_factory.mktemp("pools")
    config = directory / "trackside.toml"
    config.write_text(CONFIG)
    live = LiveServer(directory / "data", extra=("--config", str(config)))
    try:
        yield live.start()
    finally:
        live.stop()


@pytest.fixture
def client(pools_server: LiveServer) -> Any:
    return client_of(pools_server)


def create(
    client: Any, name: str, count: int = 2, kind: str = "Logical", flavor: str = FLAVOR, **labels: str
) -> Any:
    """Make a pool as the SDK's documentation says."""
    body = CreatePoolRequestBody(
        api_version="v2",
        kind="Pool",
        metadata=PoolMetadataCreation(
            labels=PoolLabelsCreation(os_modelarts_name=name, **labels),
            annotations=PoolAnnotationsCreation(os_modelarts_description=f"for {name}"),
        ),
        spec=PoolSpecCreation(
            type=kind, scope=["Train"], resources=[PoolResourceFlavor(flavor=flavor, count=count)]
        ),
    )
    return client.create_pool(CreatePoolRequest(body=body))


def submit(client: Any, pool: str, command: str, *, name: str = "job", nodes: int = 1, **policy: Any) -> str:
    body = Job(
        kind="job",
        metadata=JobMetadata(name=name),
        algorithm=JobAlgorithm(command=command),
        spec=Spec(
            resource=SpecResource(flavor_id=FLAVOR, node_count=nodes, pool_id=pool),
            schedule_policy=SchedulePolicy(**policy) if policy else None,
        ),
    )
    return str(client.create_training_job(CreateTrainingJobRequest(body=body)).metadata.id)


def refused(call: Any, request: Any) -> ClientRequestException:
    with pytest.raises(ClientRequestException) as caught:
        call(request)
    return caught.value


def statistics(client: Any, pool: str) -> dict[str, int]:
    told = client.show_workload_statistics(ShowWorkloadStatisticsRequest(pool_name=pool)).statistics
    (item,) = told.items
    counts = {name: getattr(item.status, name.lower()) for name in STATUSES}
    assert item.type == "train"
    assert told.total == item.total == sum(counts.values())
    return counts


def counted(client: Any, pool: str) -> dict[str, int]:
    """Count every job of a pool one by one, page by page."""
    found: Counter[str] = Counter(dict.fromkeys(STATUSES, 0))
    offset, count = 0, 1
    while offset < count:
        filters = [{"key": "pool_id", "operator": "in", "value": [pool]}]
        page = client.list_training_jobs(
            ListTrainingJobsRequest(body={"offset": offset, "limit": LISTED_MAX, "filters": filters})
        )
        for item in page.items:
            found[STATUS_OF_PHASE[item.status.phase, item.status.secondary_phase]] += 1
        offset, count = offset + LISTED_MAX, page.count
    return dict(found)


def check_statistics(client: Any, pool: str, **expected: int) -> None:
    """Wait until the pool is as expected; whatever it is meanwhile, statistics and count agree."""

    def look() -> bool:
        before, mine, after = statistics(client, pool), counted(client, pool), statistics(client, pool)
        if before == after:  # nothing moved while the test counted
            assert mine == before
        return before == mine == dict.fromkeys(STATUSES, 0) | expected

    eventually(look, f"the statistics never became {expected}: {statistics(client, pool)}")


def workloads(client: Any, pool: str, **query: Any) -> list[Any]:
    return list(client.list_workloads(ListWorkloadsRequest(pool_name=pool, **query)).items)


def until(path: Path) -> str:
    return f"while [ ! -e {path} ]; do sleep 0.05; done"


def test_the_default_pool_always_is_there(client: Any, pools_server: LiveServer) -> None:
    pool = client.show_pool(ShowPoolRequest(pool_name="default"))
    assert (pool.api_version, pool.kind, pool.metadata.name) == ("v2", "Pool", "default")
    assert (pool.spec.type, pool.status.phase) == ("Dedicate", "Running")
    assert pool.spec.resources[0].count == 1
    assert pool.status.resources.available.count == 1
    assert "default" in [one.metadata.name for one in client.list_pools(ListPoolsRequest()).items]
    error = refused(client.delete_pool, DeletePoolRequest(pool_name="default"))
    assert (error.status_code, error.error_code) == (400, "ModelArts.50004000")
    assert "cannot be deleted" in error.error_msg
    body = PoolUpdateRequest(spec=PoolSpecUpdate(resources=[PoolSpecUpdateResources(flavor=FLAVOR, count=1)]))
    error = refused(client.patch_pool, PatchPoolRequest(pool_name="default", body=body))
    assert "all machines" in error.error_msg


def test_a_pool_from_its_making_to_its_end(client: Any) -> None:
    made = create(client, "team-life", count=3)
    pool_id = made.metadata.name
    assert 36 <= len(pool_id) <= 63
    shown = client.show_pool(ShowPoolRequest(pool_name=pool_id))
    assert shown.to_json_object() == made.to_json_object()
    assert (shown.metadata.labels.os_modelarts_name, shown.metadata.labels.os_modelarts_workspace_id) == (
        "team-life",
        "0",
    )
    assert shown.metadata.annotations.os_modelarts_description == "for team-life"
    assert shown.metadata.annotations.os_modelarts_pool_scheduler_queue_strategy == "fifo"
    assert (shown.spec.type, shown.spec.scope) == ("Logical", ["Train"])
    assert [(one.flavor, one.count) for one in shown.spec.resources] == [(FLAVOR, 3)]

    body = PoolUpdateRequest(
        metadata=PoolMetadataUpdate(
            annotations=PoolMetadataUpdateAnnotations(os_modelarts_description="larger")
        ),
        spec=PoolSpecUpdate(resources=[PoolSpecUpdateResources(flavor=FLAVOR, count=5)]),
    )
    patched = client.patch_pool(PatchPoolRequest(pool_name=pool_id, body=body))
    assert patched.metadata.annotations.os_modelarts_description == "larger"
    assert patched.spec.resources[0].count == 5
    words = {
        "os.modelarts.pool/scheduler.queue.strategy": "traversal",
        "trackside.pool/quota.user": "cpu=0.2,memory=1Gi",
        "trackside.pool/quota.project.p9": "cards=2",
    }
    client.patch_pool(PatchPoolRequest(pool_name=pool_id, body={"metadata": {"annotations": words}}))
    annotations = raw(client, pool_id)["metadata"]["annotations"]
    assert words.items() <= annotations.items()
    assert annotations["os.modelarts/description"] == "larger"
    gone = {"trackside.pool/quota.user": None}
    client.patch_pool(PatchPoolRequest(pool_name=pool_id, body={"metadata": {"annotations": gone}}))
    assert "trackside.pool/quota.user" not in raw(client, pool_id)["metadata"]["annotations"]

    before = client.show_pool_statistics(ShowPoolStatisticsRequest())
    assert before.statistics.status.created == len(client.list_pools(ListPoolsRequest()).items)
    deleted = client.delete_pool(DeletePoolRequest(pool_name=pool_id))
    assert deleted.metadata.name == pool_id
    after = client.show_pool_statistics(ShowPoolStatisticsRequest()).statistics.status
    assert (after.created, after.creating, after.failed, after.pending) == (
        before.statistics.status.created - 1,
        0,
        0,
        0,
    )


def raw(client: Any, pool_id: str) -> Any:
    """Return a pool as it is on the wire: the SDK leaves out what it does not know."""
    response = client.show_pool(ShowPoolRequest(pool_name=pool_id))
    return json.loads(response.raw_content)


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        ("show_pool", ShowPoolRequest(pool_name="nowhere")),
        ("patch_pool", PatchPoolRequest(pool_name="nowhere", body=PoolUpdateRequest())),
        ("delete_pool", DeletePoolRequest(pool_name="nowhere")),
        ("show_pool_monitor", ShowPoolMonitorRequest(pool_name="nowhere")),
        ("list_workloads", ListWorkloadsRequest(pool_name="nowhere")),
        ("show_workload_statistics", ShowWorkloadStatisticsRequest(pool_name="nowhere")),
        ("list_pool_nodes", ListPoolNodesRequest(pool_name="nowhere")),
        ("show_pool_node", ShowPoolNodeRequest(pool_name="nowhere", node_name="n")),
    ],
)
def test_an_unknown_pool_has_the_documented_error(client: Any, call: str, request_: Any) -> None:
    error = refused(getattr(client, call), request_)
    assert (error.status_code, error.error_code, error.error_msg) == (
        404,
        "ModelArts.50015001",
        "Pool nowhere not found.",
    )


def test_a_job_for_an_unknown_pool_is_refused(client: Any) -> None:
    with pytest.raises(ClientRequestException) as caught:
        submit(client, "nowhere", "true")
    assert (caught.value.status_code, caught.value.error_code) == (404, "ModelArts.50015001")
    assert caught.value.error_msg == "Pool nowhere not found."


def test_a_job_that_never_fits_is_refused_with_the_largest_that_would(client: Any) -> None:
    pool = create(client, "team-small", count=2).metadata.name
    with pytest.raises(ClientRequestException) as caught:
        submit(client, pool, "true", nodes=3)
    assert caught.value.status_code == 403
    assert f"pool {pool} may hold at most 0.2" in caught.value.error_msg
    assert "the largest that fits has 2 of these tasks" in caught.value.error_msg
    wait_until(client, submit(client, pool, "true", nodes=2), "Completed")
    client.delete_pool(DeletePoolRequest(pool_name=pool))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spec": {"type": "Other"}}, "spec.type must be one of [Dedicate Logical]"),
        ({"spec": {"resources": []}}, "either nodes, or flavors"),
        ({"spec": {"resources": [{"flavor": "none", "count": 1}]}}, "there are: tiny"),
        ({"spec": {"resources": [{"flavor": FLAVOR, "count": 99999}]}}, f"of {FLAVOR} fit"),
        ({"spec": {"resources": [{"flavor": FLAVOR, "count": -1}]}}, "resources[0].count: expected int >= 0"),
        ({"spec": {"type": "Dedicate", "resources": [{"flavor": FLAVOR, "count": 7}]}}, "there are 1"),
        ({"spec": {"resources": [{"flavor": FLAVOR, "count": 1}], "scope": ["Infer"]}}, "contain Train"),
        ({"metadata": {"labels": {}}}, "needs a name"),
        ({"metadata": {"labels": {"os.modelarts/name": "default"}}}, "exists already"),
        (
            {"metadata": {"annotations": {"os.modelarts.pool/scheduler.queue.strategy": "luck"}}},
            "one of [fifo traversal step-polling tiered]",
        ),
        ({"metadata": {"annotations": {"trackside.pool/quota.user.ann": "many"}}}, "cpu=4,memory=8Gi"),
        ({"metadata": {"annotations": {"trackside.pool/quota.team": "cpu=1"}}}, "of a project or of a user"),
        ({"metadata": {"annotations": {"trackside.pool/nodes": "elsewhere"}}}, "the nodes are:"),
    ],
)
def test_a_bad_pool_is_refused_with_what_would_be_good(client: Any, change: Any, says: str) -> None:
    body = {
        "metadata": {"labels": {"os.modelarts/name": "bad"}},
        "spec": {"resources": [{"flavor": FLAVOR, "count": 1}]},
    }
    for part, values in change.items():
        body[part] = {**body[part], **values}
    error = refused(client.create_pool, CreatePoolRequest(body=body))
    assert says in error.error_msg
    expected = (409, "ModelArts.0103") if "exists" in says else (400, "ModelArts.50004000")
    assert (error.status_code, error.error_code) == expected


def test_pools_are_found_by_label_workspace_and_status(client: Any) -> None:
    here = create(client, "find-here").metadata.name
    there = create(client, "find-there", os_modelarts_workspace_id="w1").metadata.name

    def names(**query: str) -> set[str]:
        return {one.metadata.name for one in client.list_pools(ListPoolsRequest(**query)).items}

    assert here in names()
    assert there not in names()
    assert names(workspace_id="w1") == {there}
    assert names(label_selector="os.modelarts/name=find-here") == {here}
    assert here not in names(label_selector="os.modelarts/name!=find-here")
    assert names(label_selector="os.modelarts/name=find-here,missing") == set()
    assert here in names(status="created")
    assert names(status="failed") == names(status="creating") == set()
    error = refused(client.list_pools, ListPoolsRequest(status="odd"))
    assert (error.status_code, error.error_code) == (400, "ModelArts.50004000")
    for pool in (here, there):
        client.delete_pool(DeletePoolRequest(pool_name=pool))


def test_nodes_are_listed_shown_locked_drained_and_opened_again(client: Any, open_dir: Path) -> None:
    page = client.list_pool_nodes(ListPoolNodesRequest(pool_name="default", limit=1))
    (node,) = page.items
    assert page.metadata.remaining_item_count == 0
    shown = client.show_pool_node(ShowPoolNodeRequest(pool_name="default", node_name=node.metadata.name))
    assert shown.status.phase == node.status.phase == "Available"
    assert shown.status.private_ip
    assert float(shown.status.resources.cpu.rstrip("m")) > 0
    names = [node.metadata.name]
    locking = BatchLockPoolNodesRequest(
        pool_name="default", body=BatchLockPoolNodesRequestBody(node_names=names, actions=[])
    )
    (result,) = client.batch_lock_pool_nodes(locking).nodes
    assert (result.name, result.status) == (names[0], "success")
    try:
        locked = client.show_pool_node(ShowPoolNodeRequest(pool_name="default", node_name=names[0]))
        assert locked.status.available_resources.cpu == "0"
        job = submit(client, "default", "true")
        eventually(lambda: workloads(client, "default", status="Queue"), "the job is not queued")
        time.sleep(1.5)  # longer than the supervisor's tick: nothing else would show that it stays
        assert details(client, job).status.secondary_phase == "Queuing"
        draining = BatchDrainPoolNodesRequest(
            pool_name="default", body=BatchDrainPoolNodesReq(node_names=names)
        )
        client.batch_drain_pool_nodes(draining)
        assert details(client, job).status.secondary_phase == "Queuing"
    finally:
        client.batch_unlock_pool_nodes(
            BatchUnlockPoolNodesRequest(
                pool_name="default", body=BatchLockPoolNodesRequestBody(node_names=names)
            )
        )
    wait_until(client, job, "Completed")
    missing = BatchLockPoolNodesRequest(
        pool_name="default", body=BatchLockPoolNodesRequestBody(node_names=[names[0], "none"])
    )
    assert refused(client.batch_lock_pool_nodes, missing).status_code == 404
    error = refused(client.show_pool_node, ShowPoolNodeRequest(pool_name="default", node_name="none"))
    assert error.status_code == 404
    assert names[0] in error.error_msg


def test_workloads_are_told_with_their_place_in_the_queue(client: Any, open_dir: Path) -> None:
    pool = create(client, "team-queue", count=2).metadata.name
    gate = open_dir / "gate"
    running = submit(client, pool, until(gate), name="runs", nodes=2)
    wait_until(client, running, "Running")
    waiting = [submit(client, pool, "true", name=f"waits-{place}") for place in (1, 2)]
    urgent = submit(client, pool, "true", name="urgent", priority=3)
    in_line = {urgent: 1, waiting[0]: 2, waiting[1]: 3}

    def look() -> dict[str, Any] | None:
        found = {one.uid: one for one in workloads(client, pool)}
        return found if {job: found[job].pending_position for job in in_line} == in_line else None

    found = eventually(look, "the queue is not in order")
    held = found[running]
    assert (held.status, held.type, held.job_name, held.priority) == ("Running", "train", "runs", "1")
    assert held.pending_position is None
    assert (held.resource_requirement.cpu, held.resource_requirement.memory) == ("200m", "256Mi")
    assert (held.flavor, held.user_name) == (FLAVOR, "admin")
    ((host, requirement),) = [(node.host_ip, node.resource_requirement.cpu) for node in held.nodes]
    assert (held.host_ips, requirement) == (host, "200m")
    assert held.running_duration >= 0
    assert found[waiting[0]].pending_duration >= 0
    assert [one.uid for one in workloads(client, pool, hostip=[host, "0.0.0.1"])] == [running]
    assert workloads(client, pool, hostip=["0.0.0.1"]) == []
    assert {one.uid for one in workloads(client, pool, status="Queue")} == {urgent, *waiting}
    in_order = [running, *waiting, urgent]
    assert [one.uid for one in workloads(client, pool, ascend=True, sort="create_time")] == in_order
    assert [one.uid for one in workloads(client, pool, ascend=True, offset="1", limit=2)] == in_order[1:3]
    assert workloads(client, pool, limit=0) == []
    assert workloads(client, pool, type="infer") == []
    for wrong in ({"status": "Odd"}, {"type": "odd"}, {"limit": 501}, {"offset": "x"}, {"sort": "name"}):
        error = refused(client.list_workloads, ListWorkloadsRequest(pool_name=pool, **wrong))
        assert (error.status_code, error.error_code) == (400, "ModelArts.50004000")
    (item,) = [
        one
        for one in client.show_pool_runtime_metrics(ShowPoolRuntimeMetricsRequest()).items
        if one.metadata.name == pool
    ]
    assert (item.table.workload.allocated.train, item.table.workload.queue.sum) == (1, 3)
    amounts = (item.table.capacity.value.cpu, item.table.allocated.value.cpu, item.table.available.value.cpu)
    assert amounts == ("200m", "200m", "0")
    gate.touch()
    check_statistics(client, pool, Completed=4)


def test_a_pool_with_jobs_is_not_deleted_and_says_which(client: Any, open_dir: Path) -> None:
    pool = create(client, "team-busy").metadata.name
    gate = open_dir / "gate"
    job = submit(client, pool, until(gate), name="keeps-it")
    error = refused(client.delete_pool, DeletePoolRequest(pool_name=pool))
    assert error.status_code == 409
    assert f"keeps-it ({job})" in error.error_msg
    assert client.show_pool(ShowPoolRequest(pool_name=pool)).metadata.name == pool
    gate.touch()
    wait_until(client, job, "Completed")
    client.delete_pool(DeletePoolRequest(pool_name=pool))
    assert details(client, job).status.phase == "Completed"


def test_the_monitor_tells_what_the_pool_used(client: Any, pools_server: LiveServer) -> None:
    pool = create(client, "team-seen", count=1).metadata.name
    burn = "python3 -c 'import time\nend = time.time() + 3\nwhile time.time() < end: pass'"
    wait_until(client, submit(client, pool, burn), "Completed")
    # Only whole steps are told: an end this far ahead has the present five minutes among them.
    soon = f"-1.{time.time_ns() // 1_000_000 + 600_000}.20"

    seen: list[float] = []

    def point(**query: Any) -> tuple[Any, Any] | None:
        asked = ShowPoolMonitorRequest(pool_name=pool, time_range=soon, **query)
        series = {one.metric.metric_name: one for one in client.show_pool_monitor(asked).metrics}
        assert set(series) == {
            "cpuUsage",
            "memUsedRate",
            "gpuUtil",
            "gpuMemUsage",
            "npuUtil",
            "npuMemUsage",
            "diskCapacity",
            "diskAvailableCapacity",
            "diskUsedRate",
        }
        values = [one.statistics[0].value for one in series["cpuUsage"].data_points]
        disks = [
            {one.statistics[0].value for one in series[name].data_points} - {-1.0}
            for name in ("diskCapacity", "diskAvailableCapacity", "diskUsedRate")
        ]
        if query.get("statistics") is None and all(disks):
            (size,), free, used = disks
            assert 0 < max(free) <= size
            assert all(0 <= rate <= 100 for rate in used)
            seen.append(size)
        known = [value for value in values if value >= 0]
        return (known, values) if known else None

    known, values = eventually(point, "nothing was measured")
    eventually(lambda: point() and seen, "no disk was told")
    there = os.statvfs(pools_server.data_dir)
    assert seen[0] == pytest.approx(there.f_blocks * there.f_frsize / 2**20, abs=0.001)
    assert max(known) > 0
    assert -1.0 in values
    whole = eventually(lambda: point(period="300", statistics="sampleCount"), "nothing in five minutes")[0]
    assert 1 <= max(whole) <= 2  # minutes
    for wrong in (
        {"time_range": "yesterday"},
        {"period": "61"},
        {"statistics": "odd"},
        {"time_range": "-1.-1.9999"},
    ):
        error = refused(client.show_pool_monitor, ShowPoolMonitorRequest(pool_name=pool, **wrong))
        assert (error.status_code, error.error_code) == (400, "ModelArts.50004000")


def test_more_is_asked_than_there_is_and_the_statistics_hold_at_every_step(
    client: Any, open_dir: Path, pools_server: LiveServer
) -> None:
    pool = create(client, "team-full", count=2).metadata.name
    gates = [open_dir / f"gate-{place}" for place in range(6)]
    check_statistics(client, pool)
    jobs = [submit(client, pool, until(gate), preemptible=True, priority=1) for gate in gates[:5]]
    check_statistics(client, pool, Running=2, Queue=3)

    watching, disagreements = threading.Event(), []
    watcher = threading.Thread(target=_watch, args=(pools_server, pool, watching, disagreements))
    watcher.start()
    try:
        gates[0].touch()
        check_statistics(client, pool, Running=2, Queue=2, Completed=1)

        urgent = submit(client, pool, until(gates[5]), priority=3, name="urgent", nodes=2)
        wait_until(client, urgent, "Running")
        check_statistics(client, pool, Running=1, Queue=4, Completed=1)
        assert {one.uid for one in workloads(client, pool, status="Running")} == {urgent}

        client.stop_training_job(
            StopTrainingJobRequest(training_job_id=jobs[4], body={"action_type": "terminate"})
        )
        check_statistics(client, pool, Running=1, Queue=3, Completed=1, Terminated=1)

        client.change_training_job_description(
            ChangeTrainingJobDescriptionRequest(
                training_job_id=jobs[3], body={"spec": {"schedule_policy": {"priority": 2}}}
            )
        )
        eventually(
            lambda: {one.uid: one.pending_position for one in workloads(client, pool)}[jobs[3]] == 1,
            "the job of higher priority is not the first",
        )

        gates[5].touch()
        wait_until(client, urgent, "Completed")
        check_statistics(client, pool, Running=2, Queue=1, Completed=2, Terminated=1)

        failing = submit(client, pool, "exit 3", name="fails")
        for gate in gates:
            gate.touch()
        wait_until(client, failing, "Failed")
        check_statistics(client, pool, Completed=5, Terminated=1, Failed=1)

        client.delete_training_job(DeleteTrainingJobRequest(training_job_id=jobs[0]))
        check_statistics(client, pool, Completed=4, Terminated=1, Failed=1)
    finally:
        watching.set()
        watcher.join()
    assert disagreements == []
    assert statistics(client, "default") == counted(client, "default")


def _watch(server: LiveServer, pool: str, done: threading.Event, disagreements: list[Any]) -> None:
    """Note every moment at which more ran than the pool has, or statistics and count disagree."""
    client = client_of(server)
    while not done.wait(0.05):
        before, mine, after = statistics(client, pool), counted(client, pool), statistics(client, pool)
        if before == after and mine != before:
            disagreements.append((before, mine))
        cores = sum(
            len(one.nodes) and float(one.nodes[0].resource_requirement.cpu.rstrip("m"))
            for one in workloads(client, pool)
            if one.status in ("Pending", "Running", "Terminating")
        )
        if cores > 200:
            disagreements.append(("more than the pool has", cores))


def test_a_user_over_its_quota_waits_and_others_do_not(client: Any, open_dir: Path) -> None:
    pool = create(client, "team-quota", count=4).metadata.name
    quota = {"trackside.pool/quota.user.admin": "cpu=0.1"}
    client.patch_pool(PatchPoolRequest(pool_name=pool, body={"metadata": {"annotations": quota}}))
    gate = open_dir / "gate"
    for _ in range(2):
        submit(client, pool, until(gate))
    check_statistics(client, pool, Running=1, Queue=1)
    with pytest.raises(ClientRequestException) as caught:
        submit(client, pool, "true", nodes=2)
    assert "user admin" in caught.value.error_msg
    assert "the largest that fits has 1" in caught.value.error_msg
    client.patch_pool(
        PatchPoolRequest(pool_name=pool, body={"metadata": {"annotations": dict.fromkeys(quota)}})
    )
    check_statistics(client, pool, Running=2)
    gate.touch()
    check_statistics(client, pool, Completed=2)


def test_pools_locks_and_statistics_outlive_the_server(own_server: LiveServer) -> None:
    config = Path(own_server.extra[1])
    config.write_text(CONFIG)
    client = client_of(own_server.start())
    pool = create(client, "team-stays", count=1).metadata.name
    wait_until(client, submit(client, pool, "true"), "Completed")
    (node,) = client.list_pool_nodes(ListPoolNodesRequest(pool_name="default")).items
    body = BatchLockPoolNodesRequestBody(node_names=[node.metadata.name])
    client.batch_lock_pool_nodes(BatchLockPoolNodesRequest(pool_name="default", body=body))
    created = client.show_pool(ShowPoolRequest(pool_name="default")).metadata.creation_timestamp
    own_server.kill()
    client = client_of(own_server.start())
    assert client.show_pool(ShowPoolRequest(pool_name=pool)).spec.resources[0].count == 1
    assert client.show_pool(ShowPoolRequest(pool_name="default")).metadata.creation_timestamp == created
    assert statistics(client, pool)["Completed"] == 1
    locked = client.show_pool_node(ShowPoolNodeRequest(pool_name="default", node_name=node.metadata.name))
    assert locked.status.available_resources.cpu == "0"


def test_the_command_line_divides_the_machine(pools_server: LiveServer, tmp_path: Path) -> None:
    environment = {
        "TRACKSIDE_ENDPOINT": pools_server.endpoint,
        "TRACKSIDE_PROJECT_ID": pools_server.project_id,
        "TRACKSIDE_ACCESS_KEY": pools_server.access_key,
        "TRACKSIDE_SECRET_KEY": pools_server.secret_key,
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trackside", *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def ok(*words: str) -> str:
        done = run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "share: 2 of tiny" in ok("pool", "create", "cli-pool", "--share", f"{FLAVOR}=2")
    told = ok("pool", "quota", "cli-pool", "--user", "ann", "--cores", "1", "--memory", "512MiB")
    assert "quota of user ann: 1 cores, 512.0 MiB" in told
    ok("pool", "set", "cli-pool", "--policy", "traversal", "--share", f"{FLAVOR}=3")
    shown = json.loads(ok("pool", "show", "cli-pool", "--json"))["pool"]
    assert (shown["policy"], shown["shares"]) == ("traversal", [{"flavor": FLAVOR, "count": 3}])
    assert (shown["quotas"][0]["cpu_cores"], shown["quotas"][0]["memory_bytes"]) == (1, 512 * 2**20)
    ok("submit", "-c", "true", "--set", "pool=cli-pool", "--flavor", FLAVOR, "--wait")
    assert "cli-pool" in ok("pool", "ls")
    node = shown["nodes"][0]["id"]
    assert ok("pool", "drain", node).strip() == f"{node} is draining"
    assert ok("pool", "lock", node).strip() == f"{node} is locked"
    assert ok("pool", "unlock", node).strip() == f"{node} is open"
    assert "no limit" not in ok("pool", "quota", "cli-pool", "--user", "ann", "--none")
    refused = run("pool", "create", "both", "--share", f"{FLAVOR}=1", "--node", node)
    assert refused.returncode == 2
    assert "Pool nowhere not found." in run("pool", "show", "nowhere").stderr
    assert ok("pool", "rm", "cli-pool").strip() == "Deleted cli-pool"
