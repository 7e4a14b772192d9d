"""The operations of ModelArts v2 on resource pools that Trackside serves, one row each."""

from trackside.api.modelarts_v2 import handlers_pools as pools
from trackside.api.modelarts_v2 import handlers_workloads as workloads
from trackside.api.modelarts_v2.pool_monitor import PERIODS, STATISTICS
from trackside.api.modelarts_v2.pool_words import STATUSES, WORKLOAD_TYPES
from trackside.api.modelarts_v2.wire_pools import (
    CreatePoolBody,
    MonitorAnswer,
    NodeAnswer,
    NodeListAnswer,
    NodeNamesBody,
    NodeResults,
    PatchPoolBody,
    PoolAnswer,
    PoolListAnswer,
    PoolStatisticsAnswer,
    RuntimeAnswer,
    WorkloadListAnswer,
    WorkloadStatisticsAnswer,
)
from trackside.api.operation import Operation, Param
from trackside.service.pool_nodes import NodeState

_POOLS = "/v2/{project_id}/pools"
_POOL = f"{_POOLS}/{{pool_name}}"
_NODES = f"{_POOL}/nodes"
_WORKSPACE = Param(name="workspaceId", max_length=64)


def _node_row(name: str, verb: str, state: NodeState, summary: str) -> Operation:
    return Operation(
        name=name,
        method="POST",
        path=f"{_NODES}/batch-{verb}",
        action="modelarts:pool:update",
        handler=workloads.set_nodes(state),
        summary=summary,
        body=NodeNamesBody,
        response=NodeResults,
    )


POOL_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="ListPools",
        method="GET",
        path=_POOLS,
        action="modelarts:pool:list",
        handler=pools.list_pools,
        summary="List the pools that match",
        response=PoolListAnswer,
        query=(
            Param(name="workspaceId", max_length=64, description="0 when absent."),
            Param(name="labelSelector", max_length=1024, description="key=value, key!=value, key."),
            Param(name="status", choices=pools.POOL_STATUSES, description="created when absent."),
        ),
    ),
    Operation(
        name="CreatePool",
        method="POST",
        path=_POOLS,
        action="modelarts:pool:create",
        handler=pools.create_pool,
        summary="Make a pool of whole machines (Dedicate) or of a share of them (Logical)",
        body=CreatePoolBody,
        response=PoolAnswer,
        status=201,
    ),
    Operation(
        name="ShowPool",
        method="GET",
        path=_POOL,
        action="modelarts:pool:get",
        handler=pools.show_pool,
        summary="Show everything about a pool",
        response=PoolAnswer,
    ),
    Operation(
        name="PatchPool",
        method="PATCH",
        path=_POOL,
        action="modelarts:pool:update",
        handler=pools.patch_pool,
        summary="Change a pool's description, size, queue policy or quotas",
        body=PatchPoolBody,
        response=PoolAnswer,
    ),
    Operation(
        name="DeletePool",
        method="DELETE",
        path=_POOL,
        action="modelarts:pool:delete",
        handler=pools.delete_pool,
        summary="Delete a pool in which every job is over",
        response=PoolAnswer,
    ),
    Operation(
        name="ShowPoolStatistics",
        method="GET",
        path="/v2/{project_id}/statistics/pools",
        action="modelarts:pool:list",
        handler=pools.show_pool_statistics,
        summary="Tell how many pools there are",
        response=PoolStatisticsAnswer,
        query=(_WORKSPACE,),
    ),
    Operation(
        name="ShowPoolMonitor",
        method="GET",
        path=f"{_POOL}/monitor",
        action="modelarts:pool:get",
        handler=workloads.show_monitor,
        summary="Show what the jobs of a pool used over time, in percent of the pool",
        response=MonitorAnswer,
        query=(
            Param(name="time_range", max_length=64, description="startMs.endMs.minutes; -1.-1.60."),
            Param(name="statistics", choices=tuple(STATISTICS), description="maximum when absent."),
            Param(name="period", choices=PERIODS, description="Seconds; 60 when absent."),
        ),
    ),
    Operation(
        name="ShowPoolRuntimeMetrics",
        method="GET",
        path="/v2/{project_id}/metrics/runtime/pools",
        action="modelarts:pool:list",
        handler=pools.show_runtime_metrics,
        summary="Show what every pool has, what is held and how many jobs wait",
        response=RuntimeAnswer,
    ),
    Operation(
        name="ListWorkloads",
        method="GET",
        path=f"{_POOL}/workloads",
        action="modelarts:pool:get",
        handler=workloads.list_workloads,
        summary="List the jobs of a pool that match",
        response=WorkloadListAnswer,
        query=(
            Param(
                name="hostip",
                repeated=True,
                max_length=64,
                description="Jobs on these; no pages then.",
            ),
            Param(name="type", choices=WORKLOAD_TYPES, description="There are only training jobs here."),
            Param(name="status", choices=STATUSES),
            Param(name="sort", choices=workloads.WORKLOAD_SORTS),
            Param(name="ascend", type=bool, description="Oldest first; false when absent."),
            Param(name="offset", type=int, minimum=0, maximum=workloads.WORKLOADS_OFFSET_MAX),
            Param(
                name="limit",
                type=int,
                minimum=0,
                maximum=workloads.WORKLOADS_MAX,
                description="500 when absent.",
            ),
        ),
    ),
    Operation(
        name="ShowWorkloadStatistics",
        method="GET",
        path="/v2/{project_id}/statistics/pools/{pool_name}/workloads",
        action="modelarts:pool:get",
        handler=workloads.show_workload_statistics,
        summary="Tell how many jobs of a pool are in which status",
        response=WorkloadStatisticsAnswer,
    ),
    Operation(
        name="ListPoolNodes",
        method="GET",
        path=_NODES,
        action="modelarts:pool:get",
        handler=workloads.list_nodes,
        summary="List the machines of a pool",
        response=NodeListAnswer,
        query=(
            Param(name="continue", max_length=256, description="What the page before gave."),
            Param(
                name="limit",
                type=int,
                minimum=1,
                maximum=workloads.NODES_PER_PAGE_MAX,
                description="500 when absent.",
            ),
        ),
    ),
    Operation(
        name="ShowPoolNode",
        method="GET",
        path=f"{_NODES}/{{node_name}}",
        action="modelarts:pool:get",
        handler=workloads.show_node,
        summary="Show everything about one machine of a pool",
        response=NodeAnswer,
    ),
    _node_row("BatchLockPoolNodes", "lock", NodeState.LOCKED, "Let machines take nothing new"),
    _node_row("BatchUnlockPoolNodes", "unlock", NodeState.OPEN, "Let machines take jobs again"),
    _node_row("BatchDrainPoolNodes", "drain", NodeState.DRAINING, "Let machines become empty"),
)
