"""Knows how pools, machines and jobs of a pool read in the vendor's words."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from trackside.api.modelarts_v2.checks import time_text
from trackside.api.modelarts_v2.pool_words import (
    KIND_OF,
    STATUS_OF,
    STATUSES,
    TRAIN,
    annotations_of,
    cores_text,
    memory_text,
)
from trackside.api.modelarts_v2.wire_pools import (
    FlavorCount,
    NodeAnswer,
    NodeMetadata,
    NodeResources,
    NodeSpecAnswer,
    NodeStatus,
    PoolAnswer,
    PoolMetadata,
    PoolResources,
    PoolSpec,
    PoolStatus,
    Requirement,
    ScopeState,
    WorkloadAnswer,
    WorkloadCounts,
    WorkloadNode,
    WorkloadStatuses,
    WorkloadTypeCounts,
)
from trackside.domain.job import Job, NodeId, TaskState
from trackside.domain.phase import Phase
from trackside.domain.resources import Capacity
from trackside.domain.timing import running_ms
from trackside.ports import Node
from trackside.service.pool_nodes import NodeState
from trackside.service.pool_record import PoolRecord
from trackside.service.pool_use import NOTHING, left_of, plus

API_VERSION = "v2"
NODE_SILENT_MS = 60_000  # a machine that has said nothing for so long is told as abnormal
CARDS_SHOWN = 16  # places of the vendor's card picture, the rightmost is card 0


def pool_answer(record: PoolRecord, nodes: Sequence[Node], *, now_ms: int) -> PoolAnswer:
    """Describe a pool."""
    declared: Mapping[str, Any] = record.declared
    resources = _resources(record, nodes)
    alive = [node for node in nodes if now_ms - node.last_seen_ms <= NODE_SILENT_MS]
    labels = {
        **record.labels,
        "os.modelarts/name": record.name,
        "os.modelarts/workspace.id": record.workspace_id,
        "os.modelarts/resource.id": record.id,
        "os.modelarts/create-from": "trackside",
    }
    if record.project_id:
        labels["os.modelarts/tenant.project.id"] = record.project_id
    return PoolAnswer(
        api_version=API_VERSION,
        kind="Pool",
        metadata=PoolMetadata(
            name=record.id,
            creation_timestamp=time_text(record.created_at_ms),
            labels=labels,
            annotations=annotations_of(record),
        ),
        spec=PoolSpec(
            type=KIND_OF[record.kind],
            scope=declared.get("scope") or ["Train"],
            resources=resources,
            network=declared.get("network"),
            job_flavors=declared.get("jobFlavors"),
            driver=declared.get("driver"),
            control_mode=0,
        ),
        status=PoolStatus(
            phase="Running" if alive else "Abnormal",
            message="" if alive else "no machine of the pool answers",
            resources=_usable(resources, len(alive), len(nodes)),
            scope=[ScopeState(scope_type="Train", state="Enabled")],
        ),
    )


def node_answer(
    record: PoolRecord, node: Node, state: NodeState, held: Capacity, *, now_ms: int
) -> NodeAnswer:
    """Describe a machine of a pool."""
    silent = now_ms - node.last_seen_ms > NODE_SILENT_MS
    return NodeAnswer(
        api_version=API_VERSION,
        kind="Node",
        metadata=NodeMetadata(
            name=node.id,
            labels={**node.labels, "os.modelarts.node/nodepool": record.id},
            annotations={"trackside.node/state": str(state)},
        ),
        spec=NodeSpecAnswer(flavor=node_flavor(node.capacity)),
        status=NodeStatus(
            phase="Abnormal" if silent else "Available",
            private_ip=node.ip,
            resources=amounts(node.capacity),
            available_resources=amounts(
                NOTHING if silent or state is not NodeState.OPEN else left_of(node.capacity, held)
            ),
        ),
    )


def amounts(capacity: Capacity) -> NodeResources:
    """Return amounts as Kubernetes writes them."""
    return NodeResources(
        cpu=cores_text(capacity.cpu_cores),
        memory=memory_text(capacity.memory_bytes),
        gpu=str(capacity.gpus) if capacity.gpus else None,
        npu=str(capacity.npus) if capacity.npus else None,
    )


def node_flavor(capacity: Capacity) -> str:
    """Name the size of a machine."""
    cards = f".{capacity.gpus}gpu" * bool(capacity.gpus) + f".{capacity.npus}npu" * bool(capacity.npus)
    return f"node.{capacity.cpu_cores:g}c{capacity.memory_bytes // 2**30}g{cards}"


def workload_counts(counts: Mapping[tuple[str, Phase], int]) -> WorkloadCounts:
    """Add up jobs by status. Jobs of every kind are training jobs: there are no others here."""
    by_status = dict.fromkeys(STATUSES, 0)
    for (_, phase), count in counts.items():
        by_status[STATUS_OF[phase]] += count
    total = sum(by_status.values())
    statuses = WorkloadStatuses(**{name.lower(): count for name, count in by_status.items()})
    return WorkloadCounts(total=total, items=[WorkloadTypeCounts(type=TRAIN, total=total, status=statuses)])


def workload_answer(
    job: Job, *, position: int | None, addresses: Mapping[NodeId, str], now_ms: int
) -> WorkloadAnswer:
    """Describe a job as a workload of its pool."""
    nodes = _held_nodes(job, addresses)
    wanted = NOTHING
    for role in job.spec.roles:
        wanted = plus(wanted, role.resources.times(role.count))
    return WorkloadAnswer(
        api_version="v1",
        kind="Workload",
        type=TRAIN,
        namespace=job.project_id,
        name=job.id,
        job_name=job.spec.name,
        uid=job.id,
        job_uuid=job.id,
        flavor=job.spec.roles[0].flavor_id,
        status=STATUS_OF[job.phase],
        user_name=job.owner,
        resource_requirement=_requirement(wanted),
        priority=str(job.spec.priority),
        running_duration=running_ms(job, now_ms=now_ms) // 1000,
        pending_duration=_waited_ms(job, now_ms) // 1000,
        pending_position=position,
        create_time=job.created_at_ms,
        host_ips=",".join(sorted(node.host_ip for node in nodes)),
        nodes=nodes,
    )


def _resources(record: PoolRecord, nodes: Sequence[Node]) -> list[FlavorCount]:
    """Return what a pool is made of: its shares, or its machines by their sizes."""
    if record.shares:
        return [
            FlavorCount(flavor=one.flavor, count=one.count, max_count=one.max_count) for one in record.shares
        ]
    counted: dict[str, int] = defaultdict(int)
    for node in nodes:
        counted[node_flavor(node.capacity)] += 1
    return [FlavorCount(flavor=flavor, count=count) for flavor, count in sorted(counted.items())]


def _usable(resources: Sequence[FlavorCount], alive: int, known: int) -> PoolResources:
    """Say how much can be used; the SDK has room for one flavor, so the first stands for all."""
    if not resources:
        return PoolResources()
    first = resources[0]
    if alive:
        return PoolResources(available=first)
    return PoolResources(abnormal=first) if known else PoolResources()


def _held_nodes(job: Job, addresses: Mapping[NodeId, str]) -> list[WorkloadNode]:
    held: dict[NodeId, Capacity] = {}
    cards: dict[NodeId, set[int]] = defaultdict(set)
    for task in job.tasks:
        if task.state is not TaskState.ENDED or job.final:
            held[task.node_id] = plus(held.get(task.node_id, NOTHING), task.resources)
            cards[task.node_id].update(task.cards)
    return [
        WorkloadNode(
            host_ip=addresses.get(node_id, node_id),
            npu_topology_placement=_picture(cards[node_id]) if amount.npus else None,
            resource_requirement=_requirement(amount),
        )
        for node_id, amount in sorted(held.items())
    ]


def _picture(cards: set[int]) -> str:
    return "".join("1" if card in cards else "0" for card in reversed(range(CARDS_SHOWN)))


def _requirement(amount: Capacity) -> Requirement:
    return Requirement(
        cpu=cores_text(amount.cpu_cores),
        memory=memory_text(amount.memory_bytes),
        gpu=str(amount.gpus) if amount.gpus else None,
        npu=str(amount.npus) if amount.npus else None,
    )


def _waited_ms(job: Job, now_ms: int) -> int:
    """Return how long the present attempt waited for room, or has been waiting."""
    if not job.records:
        return 0
    record = job.records[-1]
    until = record.placed_at_ms or record.ended_at_ms or (job.ended_at_ms if job.final else None) or now_ms
    return max(0, until - record.queued_at_ms)
