"""Knows whether a job could ever run in its pool; a refusal says the largest that would fit."""

from collections.abc import Iterator, Sequence

from trackside.domain.errors import Exhausted
from trackside.domain.identity import Caller
from trackside.domain.job import JobSpec
from trackside.domain.pool import Pool, Quota
from trackside.ports import Node
from trackside.service.checks import check_fits, check_total_fits
from trackside.service.pool_near import allowed_nodes, check_near


def check_fits_pool(caller: Caller, spec: JobSpec, pool: Pool, nodes: Sequence[Node]) -> None:
    """Refuse a job that cannot start in its pool even when nothing else runs there."""
    allowed = allowed_nodes(spec, nodes)
    capacities = [node.capacity for node in allowed]
    check_fits(spec, capacities)
    check_total_fits(spec, capacities)
    check_near(spec, allowed)
    for whose, quota in _limits(caller, pool):
        _check_within(spec, whose, quota)


def _limits(caller: Caller, pool: Pool) -> Iterator[tuple[str, Quota]]:
    user, project = caller.user, caller.project_id
    found = (
        (f"pool {pool.id}", pool.cap),
        (f"project {project} in pool {pool.id}", pool.project_quotas.get(project, pool.project_quota)),
        (f"user {user} in pool {pool.id}", pool.user_quotas.get(user, pool.user_quota)),
    )
    return ((whose, quota) for whose, quota in found if quota is not None)


def _check_within(spec: JobSpec, whose: str, quota: Quota) -> None:
    amounts = (
        ("cores", quota.cpu_cores, sum(role.resources.cpu_cores * role.count for role in spec.roles)),
        ("bytes of memory", quota.memory_bytes, sum(r.resources.memory_bytes * r.count for r in spec.roles)),
        ("cards", quota.cards, sum(role.resources.cards * role.count for role in spec.roles)),
    )
    for what, limit, wanted in amounts:
        if limit is not None and wanted > limit + 1e-9:
            raise Exhausted(
                f"the job needs {wanted:,.10g} {what}, and {whose} may hold at most {limit:,.10g} at once"
                f"{_largest(spec, quota)}"
            )


def _largest(spec: JobSpec, quota: Quota) -> str:
    """Say how many tasks would fit, where all are alike."""
    if len(spec.roles) != 1:
        return ""
    need = spec.roles[0].resources
    pairs = (
        (quota.cpu_cores, need.cpu_cores),
        (quota.memory_bytes, need.memory_bytes),
        (quota.cards, need.cards),
    )
    count = min(int((limit + 1e-9) // each) for limit, each in pairs if limit is not None and each)
    return f"; the largest that fits has {count} of these tasks"
