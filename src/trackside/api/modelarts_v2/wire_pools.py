"""Knows the bodies and answers of the operations on pools, field by field; refuses to know what they mean.

Fields without a default are always there, zero included; the others are left out when there is nothing.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

Text = Annotated[str, Meta(max_length=4096)]
Labels = Annotated[dict[Text, Text | None], Meta(max_length=200)]
Annotations = Annotated[dict[Text, Text | None], Meta(max_length=200)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]

POOL_TYPES = ("Dedicate", "Logical")
SCOPES = ("Train", "Infer", "Notebook")
NODES_MAX = 200


class PoolWire(Struct, omit_defaults=True, rename="camel"):
    """A JSON object of the pool operations; what is None is left out."""


class PoolResourceBody(PoolWire, kw_only=True):
    """So many of a flavor."""

    flavor: Text
    count: Count
    max_count: Count | None = None
    azs: list[dict[str, Any]] | None = None
    extend_params: dict[str, Any] | None = None
    os: dict[str, Any] | None = None


class PoolSpecBody(PoolWire, kw_only=True):
    """What the pool is made of."""

    type: Annotated[str, Meta(extra_json_schema={"enum": list(POOL_TYPES)})] | None = None
    scope: Annotated[list[Text], Meta(max_length=8)] | None = None
    resources: Annotated[list[PoolResourceBody], Meta(max_length=50)] | None = None
    network: dict[str, Any] | None = None
    job_flavors: Annotated[list[Text], Meta(max_length=200)] | None = None
    driver: dict[str, Any] | None = None


class PoolMetadataBody(PoolWire, kw_only=True):
    """What the pool is called."""

    name: Text | None = None
    labels: Labels | None = None
    annotations: Annotations | None = None


class CreatePoolBody(PoolWire, kw_only=True):
    """Ask for a pool."""

    api_version: Text | None = None
    kind: Text | None = None
    metadata: PoolMetadataBody
    spec: PoolSpecBody


class PatchPoolBody(PoolWire, kw_only=True):
    """Ask for a pool to be changed; what is absent stays, and null takes an annotation away."""

    metadata: PoolMetadataBody | None = None
    spec: PoolSpecBody | None = None


class NodeNamesBody(PoolWire, kw_only=True):
    """Name some nodes."""

    node_names: Annotated[list[Text], Meta(min_length=1, max_length=NODES_MAX)]
    actions: Annotated[list[Text], Meta(max_length=16)] | None = None


class PoolMetadata(PoolWire, kw_only=True):
    """What the pool is called."""

    name: str
    creation_timestamp: str
    labels: dict[str, str]
    annotations: dict[str, str]


class FlavorCount(PoolWire, kw_only=True):
    """So many of a flavor."""

    flavor: str
    count: int
    max_count: int | None = None


class PoolSpec(PoolWire, kw_only=True):
    """What the pool is made of."""

    type: str
    scope: list[str]
    resources: list[FlavorCount]
    network: dict[str, Any] | None = None
    job_flavors: list[str] | None = None
    driver: dict[str, Any] | None = None
    control_mode: int


class PoolResources(PoolWire, kw_only=True):
    """How much of the pool can be used; the SDK reads objects here, not lists."""

    available: FlavorCount | None = None
    abnormal: FlavorCount | None = None


class ScopeState(PoolWire, kw_only=True):
    """Whether a kind of job can use the pool."""

    scope_type: str
    state: str


class PoolStatus(PoolWire, kw_only=True):
    """Where the pool stands."""

    phase: str
    message: str
    resources: PoolResources
    scope: list[ScopeState]
    root: str | None = None


class PoolAnswer(PoolWire, kw_only=True):
    """One pool."""

    api_version: str
    kind: str
    metadata: PoolMetadata
    spec: PoolSpec
    status: PoolStatus


class PoolListAnswer(PoolWire, kw_only=True):
    """The pools that match."""

    api_version: str
    kind: str
    items: list[PoolAnswer]


class PoolStatusCounts(PoolWire, kw_only=True):
    """How many pools are where."""

    creating: int
    created: int
    failed: int
    pending: int


class PoolCounts(PoolWire, kw_only=True):
    """How many pools are where."""

    status: PoolStatusCounts


class PoolStatisticsAnswer(PoolWire, kw_only=True):
    """How many pools are where, and when that was."""

    statistics: PoolCounts
    operation_time: str


class WorkloadStatuses(PoolWire, rename="pascal", kw_only=True):
    """How many jobs are in which status; all nine, always."""

    queue: int
    pending: int
    abnormal: int
    terminating: int
    creating: int
    running: int
    completed: int
    terminated: int
    failed: int


class WorkloadTypeCounts(PoolWire, kw_only=True):
    """The jobs of one type."""

    type: str
    total: int
    status: WorkloadStatuses


class WorkloadCounts(PoolWire, kw_only=True):
    """The jobs of a pool."""

    total: int
    items: list[WorkloadTypeCounts]


class WorkloadStatisticsAnswer(PoolWire, kw_only=True):
    """The jobs of a pool, under both names the documents give."""

    statistics: WorkloadCounts
    statics: WorkloadCounts


class Requirement(PoolWire, rename=None, kw_only=True):
    """Amounts as Kubernetes writes them."""

    cpu: str
    memory: str
    gpu: str | None = field(name="nvidia.com/gpu", default=None)
    npu: str | None = field(name="huawei.com/ascend-1980", default=None)


class WorkloadNode(PoolWire, kw_only=True):
    """What a job holds on one machine."""

    host_ip: str
    npu_topology_placement: str | None = None
    resource_requirement: Requirement


class WorkloadAnswer(PoolWire, kw_only=True):
    """One job of a pool."""

    api_version: str
    kind: str
    type: str
    namespace: str
    name: str
    job_name: str
    uid: str
    job_uuid: str = field(name="jobUUID")
    flavor: str | None = None
    status: str
    user_name: str
    resource_requirement: Requirement
    priority: str
    running_duration: int
    pending_duration: int
    pending_position: int | None = None  # 1 is the next; only of jobs that wait
    create_time: int
    host_ips: str
    nodes: list[WorkloadNode]


class WorkloadListAnswer(PoolWire, kw_only=True):
    """The jobs of a pool that match."""

    api_version: str
    kind: str
    items: list[WorkloadAnswer]


class NodeMetadata(PoolWire, kw_only=True):
    """What a machine is called."""

    name: str
    labels: dict[str, str]
    annotations: dict[str, str]


class NodeResources(PoolWire, rename=None, kw_only=True):
    """What a machine has."""

    cpu: str
    memory: str
    gpu: str | None = field(name="nvidia.com/gpu", default=None)
    npu: str | None = field(name="huawei.com/ascend-snt9", default=None)


class NodeSpecAnswer(PoolWire, kw_only=True):
    """What a machine is made of."""

    flavor: str


class NodeStatus(PoolWire, kw_only=True):
    """Where a machine stands."""

    phase: str
    private_ip: str
    resources: NodeResources
    available_resources: NodeResources


class NodeAnswer(PoolWire, kw_only=True):
    """One machine of a pool."""

    api_version: str
    kind: str
    metadata: NodeMetadata
    spec: NodeSpecAnswer
    status: NodeStatus


class NodeListMetadata(PoolWire, kw_only=True):
    """Where the list goes on."""

    continue_: str = field(name="continue")
    remaining_item_count: int


class NodeListAnswer(PoolWire, kw_only=True):
    """Machines of a pool."""

    api_version: str
    kind: str
    metadata: NodeListMetadata
    items: list[NodeAnswer]


class NodeResult(PoolWire, kw_only=True):
    """What became of one machine."""

    name: str
    status: str


class NodeResults(PoolWire, kw_only=True):
    """What became of some machines."""

    nodes: list[NodeResult]


class Dimension(PoolWire, kw_only=True):
    """What a metric is about."""

    name: str
    value: str


class MonitorMetric(PoolWire, kw_only=True):
    """Which metric."""

    dimensions: list[Dimension]
    metric_name: str
    namespace: str


class MonitorStatistic(PoolWire, kw_only=True):
    """One number; -1 where nothing was measured."""

    statistic: str
    value: float


class DataPoint(PoolWire, kw_only=True):
    """One moment."""

    timestamp: int
    unit: str
    statistics: list[MonitorStatistic]


class MonitorSeries(PoolWire, kw_only=True):
    """One metric over time."""

    metric: MonitorMetric
    data_points: list[DataPoint]


class MonitorAnswer(PoolWire, kw_only=True):
    """What a pool's jobs used over time."""

    metrics: list[MonitorSeries]


class Amounts(PoolWire, rename=None, kw_only=True):
    """Amounts as Kubernetes writes them."""

    value: NodeResources
    timestamp: str
    window: str


class WorkloadNumbers(PoolWire, rename=None, kw_only=True):
    """How many jobs of each type."""

    infer: int
    notebook: int
    train: int
    warm_up_task: int = field(name="warmUpTask")
    x_infer: int = field(name="x-infer")
    sum: int


class RuntimeWorkload(PoolWire, kw_only=True):
    """How many jobs hold room, and how many wait."""

    allocated: WorkloadNumbers
    queue: WorkloadNumbers
    timestamp: str
    window: str


class RuntimeTable(PoolWire, kw_only=True):
    """What a pool has, what is held, what is left."""

    allocated: Amounts
    capacity: Amounts
    available: Amounts
    workload: RuntimeWorkload


class RuntimeMetadata(PoolWire, kw_only=True):
    """Which pool."""

    name: str
    labels: dict[str, str]


class RuntimeItem(PoolWire, kw_only=True):
    """One pool now."""

    metadata: RuntimeMetadata
    table: RuntimeTable


class RuntimeAnswer(PoolWire, kw_only=True):
    """All pools now."""

    api_version: str
    kind: str
    items: list[RuntimeItem]
