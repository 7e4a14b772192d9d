"""Knows what is kept of a pool beside what scheduling needs, and how it is written down."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import msgspec

from trackside.domain.errors import Invalid
from trackside.domain.job import DEFAULT_POOL, NodeId
from trackside.domain.pool import Pool, QueuePolicy, Quota
from trackside.domain.resources import Accelerator, Capacity, Resources

EVERYBODY = "*"  # stands for each project, or each user, that has no quota of its own


class PoolKind(StrEnum):
    """What a pool is made of."""

    NODES = "nodes"  # whole machines
    SHARE = "share"  # an amount of the machines that others use, too


class Holder(StrEnum):
    """Whom a quota limits."""

    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many of a flavor."""

    flavor: str
    count: int
    resources: Resources  # of one, as the flavor was when the pool was made or changed
    max_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """A pool as people know it."""

    pool: Pool
    name: str
    kind: PoolKind = PoolKind.NODES
    shares: tuple[Share, ...] = ()
    description: str = ""
    workspace_id: str = "0"
    project_id: str = ""  # of who made it
    created_by: str = ""
    created_at_ms: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    declared: Mapping[str, Any] = field(default_factory=dict)  # a dialect's other words, given back
    policy_setting: QueuePolicy | None = None  # of `default`: what the setting said when it last counted

    @property
    def id(self) -> str:
        """Return what jobs call it."""
        return self.pool.id


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """What to make of a pool; None leaves a thing as it is."""

    name: str | None = None
    description: str | None = None
    shares: tuple[tuple[str, int, int | None], ...] | None = None  # flavor, count, most
    node_ids: tuple[str, ...] | None = None
    policy: QueuePolicy | None = None
    lock_seconds: int | None = None
    quotas: Mapping[tuple[Holder, str], Quota | None] = field(default_factory=dict)  # None: no limit any more
    annotations: Mapping[str, str | None] = field(default_factory=dict)  # None: takes it away
    declared: Mapping[str, Any] = field(default_factory=dict)


def default_record(created_at_ms: int, policy: QueuePolicy) -> PoolRecord:
    """Return the pool that always is: all machines."""
    pool = Pool(id=DEFAULT_POOL, policy=policy)
    return PoolRecord(pool=pool, name=DEFAULT_POOL, created_at_ms=created_at_ms, policy_setting=policy)


def with_policy_setting(record: PoolRecord, setting: QueuePolicy) -> PoolRecord:
    """Return `default` with the setting's policy if the setting is another than before; else as it is.

    So the setting counts once when it is changed, and a policy that the pool was given since stays.
    """
    if record.policy_setting in (None, setting):  # one of an earlier version does not know what it was
        return replace(record, policy_setting=setting)
    return replace(record, policy_setting=setting, pool=replace(record.pool, policy=setting))


def encode(record: PoolRecord) -> dict[str, Any]:
    """Return the record as plain JSON values."""
    built: dict[str, Any] = msgspec.to_builtins(record)
    return built


def decode(document: Mapping[str, Any]) -> PoolRecord:
    """Return the record that was written down."""
    return msgspec.convert(document, PoolRecord)


def changed(record: PoolRecord, change: PoolChange) -> PoolRecord:
    """Return the record with what is not about machines changed."""
    annotations = {**record.annotations, **change.annotations}
    pool = _with_quotas(record.pool, change.quotas)
    return replace(
        record,
        name=record.name if change.name is None else change.name,
        description=record.description if change.description is None else change.description,
        annotations={key: value for key, value in annotations.items() if value is not None},
        declared={**record.declared, **change.declared},
        pool=replace(
            pool,
            policy=pool.policy if change.policy is None else change.policy,
            lock_seconds=pool.lock_seconds if change.lock_seconds is None else change.lock_seconds,
        ),
    )


def with_shares(record: PoolRecord, shares: tuple[Share, ...]) -> PoolRecord:
    """Return the record as a share of the machines: what its jobs hold together is capped."""
    size = share_capacity(shares)
    cap = Quota(cpu_cores=size.cpu_cores, memory_bytes=size.memory_bytes, cards=size.gpus + size.npus)
    return replace(record, kind=PoolKind.SHARE, shares=shares, pool=replace(record.pool, cap=cap))


def with_nodes(record: PoolRecord, node_ids: tuple[str, ...], shares: tuple[Share, ...] = ()) -> PoolRecord:
    """Return the record as one of whole machines."""
    nodes = tuple(NodeId(node_id) for node_id in dict.fromkeys(node_ids))
    return replace(
        record, kind=PoolKind.NODES, shares=shares, pool=replace(record.pool, node_ids=nodes, cap=None)
    )


def share_capacity(shares: tuple[Share, ...]) -> Capacity:
    """Return what shares amount to."""
    return Capacity(
        cpu_cores=sum(one.resources.cpu_cores * one.count for one in shares),
        memory_bytes=sum(one.resources.memory_bytes * one.count for one in shares),
        gpus=_cards(shares, Accelerator.GPU),
        npus=_cards(shares, Accelerator.NPU),
    )


def _cards(shares: tuple[Share, ...], family: Accelerator) -> int:
    return sum(one.resources.cards * one.count for one in shares if one.resources.accelerator is family)


def _with_quotas(pool: Pool, quotas: Mapping[tuple[Holder, str], Quota | None]) -> Pool:
    named: dict[Holder, dict[str, Quota]] = {
        Holder.PROJECT: dict(pool.project_quotas),
        Holder.USER: dict(pool.user_quotas),
    }
    general = {Holder.PROJECT: pool.project_quota, Holder.USER: pool.user_quota}
    for (holder, name), quota in quotas.items():
        _check_quota(holder, name, quota)
        if name == EVERYBODY:
            general[holder] = quota
        elif quota is None:
            named[holder].pop(name, None)
        else:
            named[holder][name] = quota
    return replace(
        pool,
        project_quotas=named[Holder.PROJECT],
        user_quotas=named[Holder.USER],
        project_quota=general[Holder.PROJECT],
        user_quota=general[Holder.USER],
    )


def _check_quota(holder: Holder, name: str, quota: Quota | None) -> None:
    if not name:
        raise Invalid(f"a quota needs the {holder} it is for, or {EVERYBODY} for everybody else")
    amounts = () if quota is None else (quota.cpu_cores, quota.memory_bytes, quota.cards)
    if any(amount is not None and amount < 0 for amount in amounts):
        raise Invalid(f"the quota of {holder} {name} must not be less than 0")
