"""Knows what a pool may be called and may have; a refusal says what would do."""

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence

from trackside.domain.errors import Invalid
from trackside.domain.resources import Capacity
from trackside.ports import Node
from trackside.service.catalog import Catalog
from trackside.service.pool_record import (
    PoolChange,
    PoolRecord,
    Share,
    share_capacity,
    with_nodes,
    with_shares,
)
from trackside.service.pool_use import total_capacity

COUNT_MAX = 100_000
DESCRIPTION_LENGTH_MAX = 1024
NAMES_SHOWN = 12
LOCK_SECONDS_MAX = 7 * 24 * 3600
_ID = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")

Wanted = Sequence[tuple[str, int, int | None]]  # flavor, count, largest count


def id_and_name(wanted: PoolChange, pool_id: str | None) -> tuple[str, str]:
    """Return what a new pool is called; refuse one that says too little about itself."""
    name = wanted.name or pool_id
    if not name or not _NAME.match(name):
        raise Invalid("a pool needs a name of 1 to 64 letters, digits, dots, underscores and hyphens")
    pool_id = pool_id or _new_id(name)
    if not _ID.match(pool_id):
        raise Invalid(
            "a pool's id has 1 to 63 lower-case letters, digits and hyphens; "
            "it begins with a letter and does not end in a hyphen"
        )
    if wanted.node_ids is None and not wanted.shares:
        raise Invalid("a pool needs either nodes, or flavors with a count")
    return pool_id, name


def sized(record: PoolRecord, wanted: PoolChange, catalog: Catalog, nodes: Sequence[Node]) -> PoolRecord:
    """Give a pool its machines, or its share of them, if it can have those."""
    _check_texts(wanted)
    if wanted.node_ids is not None:
        _check_nodes(wanted.node_ids, [node.id for node in nodes])
        return with_nodes(record, wanted.node_ids, tuple(_shares(wanted.shares or (), catalog)))
    if wanted.shares is None:
        return record
    shares = tuple(_shares(wanted.shares, catalog))
    _check_share(shares, [node.capacity for node in nodes])
    return with_shares(record, shares)


def picked(shares: Wanted, catalog: Catalog, nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return so many machines that each hold a flavor, the first ones first."""
    rest = list(nodes)
    found: list[str] = []
    for flavor_id, count, _ in shares:
        need = catalog.flavor(flavor_id).resources
        fit = [node for node in rest if node.capacity.fits(need)][:count]
        if len(fit) < count:
            raise Invalid(f"{count} nodes that hold {flavor_id} are asked for, and there are {len(fit)}")
        found += [node.id for node in fit]
        rest = [node for node in rest if node.id not in found]
    return tuple(found)


def _new_id(name: str) -> str:
    """Return a fresh id that begins with the name, as long as vendors document it: 36 to 63 characters."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:30].strip("-")
    return f"{slug if slug[:1].isalpha() else f'pool-{slug}'.strip('-')}-{uuid.uuid4().hex}"[:63]


def _shares(wanted: Wanted, catalog: Catalog) -> Iterator[Share]:
    for flavor_id, count, most in wanted:
        if not 0 <= count <= COUNT_MAX:
            raise Invalid(f"the count of flavor {flavor_id} must be from 0 to {COUNT_MAX:,}, not {count}")
        resources = catalog.flavor(flavor_id).resources
        yield Share(flavor=flavor_id, count=count, resources=resources, max_count=most)


def _check_texts(wanted: PoolChange) -> None:
    if wanted.name is not None and not _NAME.match(wanted.name):
        raise Invalid("a pool's name has 1 to 64 letters, digits, dots, underscores and hyphens")
    if wanted.description is not None and len(wanted.description) > DESCRIPTION_LENGTH_MAX:
        raise Invalid(f"a pool's description has at most {DESCRIPTION_LENGTH_MAX:,} characters")
    if wanted.lock_seconds is not None and not 1 <= wanted.lock_seconds <= LOCK_SECONDS_MAX:
        raise Invalid(f"the lock is held for 1 to {LOCK_SECONDS_MAX:,} seconds, not {wanted.lock_seconds}")


def _check_nodes(node_ids: Sequence[str], known: Sequence[str]) -> None:
    unknown = [node_id for node_id in node_ids if node_id not in known]
    if unknown or not node_ids:
        names = ", ".join(known[:NAMES_SHOWN]) or "none"
        raise Invalid(f"{', '.join(unknown) or 'no node'} cannot be in a pool; the nodes are: {names}")


def _check_share(shares: tuple[Share, ...], nodes: Sequence[Capacity]) -> None:
    if not nodes:
        return
    share, there = share_capacity(shares), total_capacity(nodes)
    pairs = (
        (share.cpu_cores, there.cpu_cores, "cores"),
        (share.memory_bytes, there.memory_bytes, "bytes of memory"),
        (share.gpus, there.gpus, "GPUs"),
        (share.npus, there.npus, "NPUs"),
    )
    for wanted, most, what in pairs:
        if wanted > most + 1e-9:
            raise Invalid(
                f"the pool would have {wanted:,.10g} {what}, and all machines together have "
                f"{most:,.10g}{_largest_count(shares, nodes)}"
            )


def _largest_count(shares: tuple[Share, ...], nodes: Sequence[Capacity]) -> str:
    if len(shares) != 1:
        return ""
    need, there, count = shares[0].resources, total_capacity(nodes), 0
    while count < shares[0].count and there.fits(need):
        there, count = there.less(need), count + 1
    return f"; at most {count} of {shares[0].flavor} fit"
