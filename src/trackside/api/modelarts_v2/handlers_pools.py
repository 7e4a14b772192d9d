"""Knows what each operation on pools asks of the services and how the answer is written."""

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trackside.api.modelarts_v2.checks import one_of, time_text
from trackside.api.modelarts_v2.pool_words import KIND_OF, change_of
from trackside.api.modelarts_v2.translate_pools import API_VERSION, amounts, pool_answer
from trackside.api.modelarts_v2.wire_pools import (
    POOL_TYPES,
    SCOPES,
    Amounts,
    CreatePoolBody,
    PatchPoolBody,
    PoolAnswer,
    PoolCounts,
    PoolListAnswer,
    PoolMetadataBody,
    PoolSpecBody,
    PoolStatisticsAnswer,
    PoolStatusCounts,
    RuntimeAnswer,
    RuntimeItem,
    RuntimeMetadata,
    RuntimeTable,
    RuntimeWorkload,
    WorkloadNumbers,
)
from trackside.api.operation import Call
from trackside.domain.errors import Invalid
from trackside.domain.resources import Capacity
from trackside.service.pool_record import PoolChange, PoolKind, PoolRecord
from trackside.service.pool_use import left_of

DEFAULT_WORKSPACE = "0"
POOL_STATUSES = ("created", "failed", "creating")
NAME_LABEL = "os.modelarts/name"
WORKSPACE_LABEL = "os.modelarts/workspace.id"
WINDOW = "0s"  # amounts are those of the moment
_REQUIREMENT = re.compile(r"\s*([^=!,\s]+)\s*(?:(!=|==?)\s*([^=!,\s]*)\s*)?\Z")


async def list_pools(call: Call) -> PoolListAnswer:
    """List the pools that match."""
    status = one_of("status", call.query_one("status") or "created", POOL_STATUSES)
    workspace_id = call.query_one("workspaceId") or DEFAULT_WORKSPACE
    found = [_answer(call, one) for one in call.services.pools.list() if one.workspace_id == workspace_id]
    selector = call.query_one("labelSelector") or ""
    # A pool is made at once: there is none that is being created, or that failed to be.
    shown = [one for one in found if _selected(selector, one.metadata.labels)] if status == "created" else []
    return PoolListAnswer(api_version=API_VERSION, kind="PoolList", items=shown)


async def show_pool(call: Call) -> PoolAnswer:
    """Tell everything about a pool."""
    return _answer(call, call.services.pools.show(call.path["pool_name"]))


async def create_pool(call: Call) -> PoolAnswer:
    """Make a pool."""
    body: CreatePoolBody = call.body
    labels = {key: value for key, value in (body.metadata.labels or {}).items() if value is not None}
    kind = _kind(one_of("spec.type", body.spec.type or "Logical", POOL_TYPES))
    wanted = _change(call, body.metadata, body.spec, kind)
    record = await call.services.pools.create(
        call.caller,
        replace(wanted, name=labels.pop(NAME_LABEL, None)),
        pool_id=body.metadata.name or None,
        workspace_id=labels.pop(WORKSPACE_LABEL, "") or DEFAULT_WORKSPACE,
        labels=labels,
    )
    return _answer(call, record)


async def patch_pool(call: Call) -> PoolAnswer:
    """Change a pool."""
    body: PatchPoolBody = call.body
    record = call.services.pools.show(call.path["pool_name"])
    wanted = _change(call, body.metadata or PoolMetadataBody(), body.spec or PoolSpecBody(), record.kind)
    return _answer(call, await call.services.pools.change(record.id, wanted))


async def delete_pool(call: Call) -> PoolAnswer:
    """Remove a pool without open jobs, and tell what it was."""
    return _answer(call, await call.services.pools.delete(call.path["pool_name"]))


async def show_pool_statistics(call: Call) -> PoolStatisticsAnswer:
    """Tell how many pools there are."""
    workspace_id = call.query_one("workspaceId")
    pools = [one for one in call.services.pools.list() if workspace_id in (None, one.workspace_id)]
    counts = PoolStatusCounts(creating=0, created=len(pools), failed=0, pending=0)
    return PoolStatisticsAnswer(statistics=PoolCounts(status=counts), operation_time=time_text(_now_ms()))


async def show_runtime_metrics(call: Call) -> RuntimeAnswer:
    """Tell what every pool has, what is held, and how many jobs wait."""
    pools, now = call.services.pools, time_text(_now_ms())
    items = []
    for record in pools.list():
        use, there = await pools.use(record), pools.capacity(record)
        free = left_of(there, use.held)
        table = RuntimeTable(
            allocated=_amounts(use.held, now),
            capacity=_amounts(there, now),
            available=_amounts(free, now),
            workload=RuntimeWorkload(
                allocated=_numbers(use.holding), queue=_numbers(use.waiting), timestamp=now, window=WINDOW
            ),
        )
        labels = _answer(call, record).metadata.labels
        items.append(RuntimeItem(metadata=RuntimeMetadata(name=record.id, labels=labels), table=table))
    return RuntimeAnswer(api_version=API_VERSION, kind="PoolMetricsList", items=items)


def _change(call: Call, metadata: PoolMetadataBody, spec: PoolSpecBody, kind: PoolKind) -> PoolChange:
    """Return what metadata and specification ask for."""
    wanted = change_of(metadata.annotations or {})
    shares = None
    if spec.resources is not None:
        shares = tuple((one.flavor, one.count, one.max_count) for one in spec.resources)
    nodes = wanted.node_ids
    if nodes is None and shares and kind is PoolKind.NODES:
        nodes = call.services.pools.pick_nodes(shares)
    return replace(wanted, shares=shares, node_ids=nodes, declared=_declared(spec))


def _declared(spec: PoolSpecBody) -> dict[str, Any]:
    """Return what is kept word for word."""
    for scope in spec.scope or ():
        one_of("spec.scope[]", scope, SCOPES)
    if spec.scope is not None and "Train" not in spec.scope:
        raise Invalid("spec.scope must contain Train: pools run training jobs here")
    given = {
        "scope": spec.scope,
        "network": spec.network,
        "jobFlavors": spec.job_flavors,
        "driver": spec.driver,
    }
    return {key: value for key, value in given.items() if value is not None}


def _kind(called: str) -> PoolKind:
    return next(kind for kind, name in KIND_OF.items() if name == called)


def _selected(selector: str, labels: Mapping[str, str]) -> bool:
    """Say whether labels meet a selector: key=value, key!=value or key, all of them."""
    for part in filter(None, selector.split(",")):
        found = _REQUIREMENT.match(part)
        if not found:
            raise Invalid(f"labelSelector must look like key=value,other!=value, not {part[:64]!r}")
        key, operator, value = found.groups()
        held = key in labels if operator is None else (labels.get(key) == value) is (operator != "!=")
        if not held:
            return False
    return True


def _answer(call: Call, record: PoolRecord) -> PoolAnswer:
    return pool_answer(record, call.services.pools.nodes(record), now_ms=_now_ms())


def _amounts(capacity: Capacity, now: str) -> Amounts:
    return Amounts(value=amounts(capacity), timestamp=now, window=WINDOW)


def _numbers(train: int) -> WorkloadNumbers:
    return WorkloadNumbers(infer=0, notebook=0, train=train, warm_up_task=0, x_infer=0, sum=train)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
