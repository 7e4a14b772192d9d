"""Knows what each operation on a pool's jobs and machines asks of the services."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from trackside.api.modelarts_v2.checks import one_of, query_int
from trackside.api.modelarts_v2.pool_monitor import DEFAULT_RANGE, STATISTICS, PoolMonitor, steps
from trackside.api.modelarts_v2.pool_words import PHASES_CALLED, STATUS_OF, STATUSES, TRAIN, WORKLOAD_TYPES
from trackside.api.modelarts_v2.translate_pools import (
    API_VERSION,
    node_answer,
    workload_answer,
    workload_counts,
)
from trackside.api.modelarts_v2.wire_pools import (
    MonitorAnswer,
    NodeAnswer,
    NodeListAnswer,
    NodeListMetadata,
    NodeNamesBody,
    NodeResult,
    NodeResults,
    WorkloadListAnswer,
    WorkloadStatisticsAnswer,
)
from trackside.api.operation import Call
from trackside.domain.job import Job
from trackside.domain.metric import MINUTE_MS
from trackside.domain.phase import FINAL
from trackside.ports import JobQuery
from trackside.service.pool_nodes import NodeState
from trackside.service.pool_use import NOTHING

WORKLOADS_MAX = 500
WORKLOADS_OFFSET_MAX = 10_000_000
WORKLOAD_SORTS = ("create_time",)
NODES_PER_PAGE_MAX = 500
MONITORED_JOBS_MAX = 10_000


async def show_workload_statistics(call: Call) -> WorkloadStatisticsAnswer:
    """Tell how many jobs of a pool are in which status."""
    counts = workload_counts(await call.services.pools.counts(call.caller, call.path["pool_name"]))
    return WorkloadStatisticsAnswer(statistics=counts, statics=counts)


async def list_workloads(call: Call) -> WorkloadListAnswer:
    """List the jobs of a pool that match."""
    pool_id = call.services.pools.show(call.path["pool_name"]).id
    jobs = await _jobs(call, pool_id)
    waiting = await call.services.pools.waiting(pool_id)
    places = {job.id: place for place, job in enumerate(waiting, 1)}
    addresses, now_ms = call.services.pools.addresses(), _now_ms()
    items = [
        workload_answer(job, position=places.get(job.id), addresses=addresses, now_ms=now_ms) for job in jobs
    ]
    return WorkloadListAnswer(api_version="v1", kind="WorkloadList", items=items)


async def list_nodes(call: Call) -> NodeListAnswer:
    """List machines of a pool, page by page."""
    pools = call.services.pools
    record = pools.show(call.path["pool_name"])
    limit = query_int(call, "limit", NODES_PER_PAGE_MAX, least=1, most=NODES_PER_PAGE_MAX)
    after = call.query_one("continue") or ""
    rest = [node for node in pools.nodes(record) if node.id > after]
    shown, left = rest[:limit], len(rest[limit:])
    use = await pools.use(record)
    items = [
        node_answer(
            record,
            node,
            pools.node_state(node.id),
            use.by_node.get(node.id, NOTHING),
            now_ms=_now_ms(),
        )
        for node in shown
    ]
    token = shown[-1].id if left else ""
    return NodeListAnswer(
        api_version=API_VERSION,
        kind="NodeList",
        metadata=NodeListMetadata(continue_=token, remaining_item_count=left),
        items=items,
    )


async def show_node(call: Call) -> NodeAnswer:
    """Tell everything about one machine of a pool."""
    pools = call.services.pools
    record = pools.show(call.path["pool_name"])
    node = pools.node(record, call.path["node_name"])
    held = (await pools.use(record)).by_node.get(node.id, NOTHING)
    return node_answer(record, node, pools.node_state(node.id), held, now_ms=_now_ms())


def set_nodes(state: NodeState) -> Callable[[Call], Awaitable[NodeResults]]:
    """Return the operation that brings machines into a state: all of them, or none if one is not there."""

    async def change(call: Call) -> NodeResults:
        body: NodeNamesBody = call.body
        pools = call.services.pools
        record = pools.show(call.path["pool_name"])
        names = [pools.node(record, name).id for name in dict.fromkeys(body.node_names)]
        for name in names:
            await pools.set_node(call.caller, name, state)
        return NodeResults(nodes=[NodeResult(name=name, status="success") for name in names])

    return change


async def show_monitor(call: Call) -> MonitorAnswer:
    """Tell what the jobs of a pool used over time."""
    record = call.services.pools.show(call.path["pool_name"])
    statistic = one_of("statistics", call.query_one("statistics") or "maximum", STATISTICS)
    asked = steps(call.query_one("time_range") or DEFAULT_RANGE, call.query_one("period") or "60", _now_ms())
    pools = call.services.pools
    disks = pools.disks(record, range(asked.start, asked.stop, MINUTE_MS))
    monitor = PoolMonitor(record.id, pools.capacity(record), asked, disks)
    for job in await _recent_jobs(call, record.id, asked.start):
        means = await call.services.metrics.series(
            call.caller, job.id, task=None, start_ms=asked.start, end_ms=asked.stop, step_ms=MINUTE_MS
        )
        monitor.add(job, means)
    return MonitorAnswer(metrics=list(monitor.answer(statistic)))


async def _jobs(call: Call, pool_id: str) -> list[Job]:
    one_of("sort", call.query_one("sort") or "create_time", WORKLOAD_SORTS)
    ascending = (call.query_one("ascend") or "false").lower() == "true"
    status = call.query_one("status")
    limit = query_int(call, "limit", WORKLOADS_MAX, least=0, most=WORKLOADS_MAX)
    offset = query_int(call, "offset", 0, least=0, most=WORKLOADS_OFFSET_MAX)
    if one_of("type", call.query_one("type") or TRAIN, WORKLOAD_TYPES) != TRAIN:
        return []
    if status:
        one_of("status", status, STATUSES)
    hosts = [host for host in call.query.get("hostip", []) if host]
    if hosts:  # as documented, there are no pages then
        found = await call.services.pools.running_on(call.caller, pool_id, hosts)
        wanted = [job for job in found if status in (None, STATUS_OF[job.phase])]
        return sorted(wanted, key=lambda job: (job.created_at_ms, job.number), reverse=not ascending)
    query = JobQuery(
        project_id=call.caller.project_id,
        pool_ids=(pool_id,),
        phases=PHASES_CALLED[status] if status else frozenset(),
        descending=not ascending,
        offset=offset,
        limit=limit,
    )
    return list((await call.services.jobs.search(call.caller, query)).jobs)


async def _recent_jobs(call: Call, pool_id: str, since_ms: int) -> list[Job]:
    """Return the jobs of the pool that run or ended since, at most so many of each."""
    query = JobQuery(
        project_id=call.caller.project_id, pool_ids=(pool_id,), sort_by="number", limit=MONITORED_JOBS_MAX
    )
    active = await call.services.jobs.search(call.caller, replace(query, not_phases=FINAL))
    ended = replace(query, sort_by="ended_at", phases=FINAL, ended_from_ms=since_ms)
    over = await call.services.jobs.search(call.caller, ended)
    return list({job.id: job for job in (*active.jobs, *over.jobs)}.values())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
