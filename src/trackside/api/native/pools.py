"""Knows the rows of Trackside's own API about pools, quotas and machines."""

import msgspec

from trackside.api.native import PREFIX
from trackside.api.operation import Call, Operation
from trackside.domain.errors import Invalid
from trackside.domain.job import NodeId
from trackside.domain.pool import Pool, QueuePolicy, Quota
from trackside.domain.resources import Capacity
from trackside.service.pool_nodes import NodeState
from trackside.service.pool_record import EVERYBODY, Holder, PoolChange, PoolRecord
from trackside.service.pools import Pools

STATE_AFTER = {"lock": NodeState.LOCKED, "drain": NodeState.DRAINING, "unlock": NodeState.OPEN}


class QuotaBody(msgspec.Struct, frozen=True, kw_only=True):
    """The most that somebody may hold at once; all absent: no limit."""

    holder: Holder
    name: str = EVERYBODY  # * stands for everybody without a quota of their own
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    cards: int | None = None


class ShareBody(msgspec.Struct, frozen=True, kw_only=True):
    """So many of a flavor."""

    flavor: str
    count: int


class PoolBody(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of a pool; absent leaves a thing as it is."""

    description: str | None = None
    shares: list[ShareBody] | None = None
    nodes: list[str] | None = None
    policy: QueuePolicy | None = None
    lock_seconds: int | None = None
    quotas: list[QuotaBody] = []


class NewPoolBody(PoolBody, frozen=True, kw_only=True):
    """A pool to make: of whole nodes, or of a share of all."""

    name: str
    workspace_id: str = "0"


class NodeAction(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with a machine."""

    action: str
    evict: bool = False  # with drain: jobs there are ended and queued again


class NodeBody(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of a machine."""

    labels: dict[str, str | None]  # null takes one away; the others stay


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """So much of a machine or of several."""

    cpu_cores: float
    memory_bytes: int
    gpus: int
    npus: int


class PoolNodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of a pool."""

    id: str
    ip: str
    state: NodeState
    labels: dict[str, str]
    capacity: Amount
    last_seen_ms: int


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, what is held of it and who waits."""

    id: str
    name: str
    description: str
    kind: str
    policy: QueuePolicy
    lock_seconds: int
    workspace_id: str
    created_at_ms: int
    shares: list[ShareBody]
    nodes: list[PoolNodeView]
    quotas: list[QuotaBody]
    capacity: Amount
    held: Amount
    running: int  # jobs of all projects that hold room
    waiting: int


class PoolList(msgspec.Struct, frozen=True, kw_only=True):
    """All pools."""

    pools: list[PoolView]


class NodeStateView(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about a machine."""

    id: str
    state: NodeState
    labels: dict[str, str]  # those it was given


async def list_pools(call: Call) -> PoolList:
    """List the pools."""
    pools = call.services.pools
    return PoolList(pools=[await _view(pools, record) for record in pools.list()])


async def show_pool(call: Call) -> PoolView:
    """Show a pool."""
    pools = call.services.pools
    return await _view(pools, pools.show(call.path["pool_name"]))


async def create_pool(call: Call) -> PoolView:
    """Make a pool."""
    body: NewPoolBody = call.body
    pools = call.services.pools
    made = await pools.create(call.caller, _change(body), pool_id=body.name, workspace_id=body.workspace_id)
    return await _view(pools, made)


async def change_pool(call: Call) -> PoolView:
    """Change a pool."""
    pools = call.services.pools
    return await _view(pools, await pools.change(call.path["pool_name"], _change(call.body)))


async def remove_pool(call: Call) -> None:
    """Remove a pool."""
    await call.services.pools.delete(call.path["pool_name"])


async def act_on_node(call: Call) -> NodeStateView:
    """Lock, drain or unlock a machine."""
    state = STATE_AFTER.get(call.body.action)
    if state is None:
        raise Invalid(f"action must be one of {', '.join(STATE_AFTER)}, not {call.body.action[:64]!r}")
    node_id = call.path["node_name"]
    pools = call.services.pools
    await pools.set_node(call.caller, node_id, state, evict=call.body.evict)
    return NodeStateView(id=node_id, state=state, labels=dict(pools.labels().get(NodeId(node_id), {})))


async def change_node(call: Call) -> NodeStateView:
    """Give a machine labels, or take some away."""
    node_id, pools = call.path["node_name"], call.services.pools
    labels = await pools.label_node(call.caller, node_id, call.body.labels)
    return NodeStateView(id=node_id, state=pools.node_state(node_id), labels=dict(labels))


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="ListPools",
        method="GET",
        path=f"{PREFIX}/pools",
        action="trackside:pool:list",
        handler=list_pools,
        summary="List the pools, what is held of them and how many jobs wait",
        response=PoolList,
    ),
    Operation(
        name="CreatePool",
        method="POST",
        path=f"{PREFIX}/pools",
        action="trackside:pool:create",
        handler=create_pool,
        summary="Make a pool of whole nodes or of a share of all",
        body=NewPoolBody,
        response=PoolView,
        status=201,
    ),
    Operation(
        name="ShowPool",
        method="GET",
        path=f"{PREFIX}/pools/{{pool_name}}",
        action="trackside:pool:get",
        handler=show_pool,
        summary="Show a pool, its nodes and its quotas",
        response=PoolView,
    ),
    Operation(
        name="ChangePool",
        method="PATCH",
        path=f"{PREFIX}/pools/{{pool_name}}",
        action="trackside:pool:update",
        handler=change_pool,
        summary="Change a pool's description, size, queue policy or quotas",
        body=PoolBody,
        response=PoolView,
    ),
    Operation(
        name="RemovePool",
        method="DELETE",
        path=f"{PREFIX}/pools/{{pool_name}}",
        action="trackside:pool:delete",
        handler=remove_pool,
        summary="Remove a pool in which every job is over",
    ),
    Operation(
        name="ActOnNode",
        method="POST",
        path=f"{PREFIX}/nodes/{{node_name}}/actions",
        action="trackside:node:update",
        handler=act_on_node,
        summary="Lock, drain or unlock a node",
        body=NodeAction,
        response=NodeStateView,
    ),
    Operation(
        name="ChangeNode",
        method="PATCH",
        path=f"{PREFIX}/nodes/{{node_name}}",
        action="trackside:node:update",
        handler=change_node,
        summary="Give a node labels, such as the cabinet it stands in, or take some away",
        body=NodeBody,
        response=NodeStateView,
    ),
)


def _change(body: PoolBody) -> PoolChange:
    return PoolChange(
        description=body.description,
        shares=None if body.shares is None else tuple((one.flavor, one.count, None) for one in body.shares),
        node_ids=None if body.nodes is None else tuple(body.nodes),
        policy=body.policy,
        lock_seconds=body.lock_seconds,
        quotas={(one.holder, one.name): _quota(one) for one in body.quotas},
    )


def _quota(body: QuotaBody) -> Quota | None:
    if body.cpu_cores is None and body.memory_bytes is None and body.cards is None:
        return None
    return Quota(cpu_cores=body.cpu_cores, memory_bytes=body.memory_bytes, cards=body.cards)


async def _view(pools: Pools, record: PoolRecord) -> PoolView:
    use = await pools.use(record)
    return PoolView(
        id=record.id,
        name=record.name,
        description=record.description,
        kind=record.kind,
        policy=record.pool.policy,
        lock_seconds=record.pool.lock_seconds,
        workspace_id=record.workspace_id,
        created_at_ms=record.created_at_ms,
        shares=[ShareBody(flavor=one.flavor, count=one.count) for one in record.shares],
        nodes=[
            PoolNodeView(
                id=node.id,
                ip=node.ip,
                state=pools.node_state(node.id),
                labels=dict(node.labels),
                capacity=_amount(node.capacity),
                last_seen_ms=node.last_seen_ms,
            )
            for node in pools.nodes(record)
        ],
        quotas=_quotas(record.pool),
        capacity=_amount(pools.capacity(record)),
        held=_amount(use.held),
        running=use.holding,
        waiting=use.waiting,
    )


def _quotas(pool: Pool) -> list[QuotaBody]:
    found = [
        (Holder.PROJECT, EVERYBODY, pool.project_quota),
        *((Holder.PROJECT, name, quota) for name, quota in sorted(pool.project_quotas.items())),
        (Holder.USER, EVERYBODY, pool.user_quota),
        *((Holder.USER, name, quota) for name, quota in sorted(pool.user_quotas.items())),
    ]
    return [
        QuotaBody(
            holder=holder,
            name=name,
            cpu_cores=quota.cpu_cores,
            memory_bytes=quota.memory_bytes,
            cards=quota.cards,
        )
        for holder, name, quota in found
        if quota is not None
    ]


def _amount(capacity: Capacity) -> Amount:
    return Amount(
        cpu_cores=round(capacity.cpu_cores, 6),
        memory_bytes=capacity.memory_bytes,
        gpus=capacity.gpus,
        npus=capacity.npus,
    )
