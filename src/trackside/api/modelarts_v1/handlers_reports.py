"""Knows how to tell what a version did: log files, log lines, metrics; and what can be asked for."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from trackside.api.modelarts_v1.checks import one_of, query_int
from trackside.api.modelarts_v1.listing import ORDERS
from trackside.api.modelarts_v1.locate import everything, log_files, task_of, version
from trackside.api.modelarts_v1.metrics import METRIC_OF, STATISTIC_TYPES, asked_names, series
from trackside.api.modelarts_v1.node_metrics import NodeUse, window
from trackside.api.modelarts_v1.sizes import engine_answer, resource_spec
from trackside.api.modelarts_v1.wire_response import (
    Engines,
    LogFiles,
    LogLines,
    ResourceSpecs,
    Series,
    Statistic,
)
from trackside.api.operation import Call
from trackside.domain.errors import Invalid, NotFound
from trackside.domain.job import Job
from trackside.domain.metric import MINUTE_MS
from trackside.domain.phase import FINAL
from trackside.domain.pool import Pool
from trackside.ports import JobQuery, Node, SeriesKey
from trackside.service.metrics import MinuteGrid

LINES_DEFAULT, LINES_MAX = 50, 500
LINE_MAX = 2**49
JOB_TYPES = ("train", "inference")
NODES_SHOWN = 8

Nodes = Callable[[], Sequence[Node]]


async def list_log_files(call: Call) -> LogFiles:
    """Return the names of a version's log files."""
    return LogFiles(log_file_list=log_files(version(call)))


async def show_log_lines(call: Call) -> LogLines:
    """Return some lines of a log file."""
    job, file = version(call), call.query_one("log_file")
    if file is None:
        raise Invalid("log_file is missing; .../log/file-names lists the names")
    task = task_of(job, file)
    order = one_of("order", call.query_one("order") or "desc", ORDERS)
    count = query_int(call, "lines", LINES_DEFAULT, least=0, most=LINES_MAX)
    base = query_int(call, "base_line", -1, least=0, most=LINE_MAX)
    if count == 0:
        return LogLines(content="", lines=0, start_line="0", end_line="0")
    found = await call.services.logs.lines(
        call.caller,
        job.id,
        task,
        base_line=base if base >= 0 else None,
        count=count,
        descending=order == "desc",
    )
    return LogLines(
        content=found.text,
        lines=found.lines,
        start_line=str(found.first_line),
        end_line=str(found.last_line),
    )


async def show_pod_metrics(call: Call) -> Statistic:
    """Tell how much one container used, minute by minute."""
    names, each = _asked(call)
    job = version(call)
    task = task_of(job, call.path["pod_name"])
    asked = [METRIC_OF[name].metric for name in names]
    grid = await call.services.metrics.minutes(call.caller, job.id, task, asked)
    shown: list[Series] = []
    for name in names:
        if each and METRIC_OF[name].per_card:
            shown += await _each_card(call, job, task, name, grid)
        else:
            shown.append(series(name, grid.told(METRIC_OF[name].metric)))
    return Statistic(metrics=shown)


def show_node_metrics(nodes: Nodes) -> Callable[[Call], Awaitable[Statistic]]:
    """Return the operation that tells how much the tasks on a node used together."""

    async def show(call: Call) -> Statistic:
        names, each = _asked(call)
        pool = call.services.pools.show(call.path["pool_id"]).pool
        minutes = window(time.time_ns() // 1_000_000)
        use = NodeUse(_node(pool, nodes(), call.path["node_ip"]), minutes)
        for job in await _recent_jobs(call, pool.id, minutes.start):
            found = await call.services.metrics.series(
                call.caller,
                job.id,
                task=None,
                start_ms=minutes.start,
                end_ms=minutes.stop,
                step_ms=MINUTE_MS,
            )
            use.add(job, found)
        return Statistic(metrics=list(use.answer(names, each=each)))

    return show


async def list_resource_specs(call: Call) -> ResourceSpecs:
    """Return the sizes on offer."""
    specs = [resource_spec(place, flavor) for place, flavor in enumerate(call.services.catalog.flavors(), 1)]
    shown = specs if _for_training(call) else []
    return ResourceSpecs(spec_total_count=len(shown), specs=shown)


async def list_engines(call: Call) -> Engines:
    """Return the engines on offer."""
    runtimes = call.services.catalog.runtimes()
    engines = [engine_answer(place, runtime) for place, runtime in enumerate(runtimes, 1)]
    return Engines(engines=engines if _for_training(call) else [])


def _asked(call: Call) -> tuple[list[str], bool]:
    kind = one_of("statistic_type", call.query_one("statistic_type") or "all", STATISTIC_TYPES)
    return asked_names(call.query_one("metrics")), kind == "each"


def _for_training(call: Call) -> bool:
    return one_of("job_type", call.query_one("job_type") or "train", JOB_TYPES) == "train"


async def _each_card(call: Call, job: Job, task: str, name: str, grid: MinuteGrid) -> list[Series]:
    """Return a metric card by card: of the cards the task held, also those that said nothing."""
    metric = METRIC_OF[name].metric
    cards = {card for run in (*job.past_tasks, *job.tasks) if run.name == task for card in run.cards}
    found: dict[SeriesKey, dict[int, float]] = {}
    minutes = range(0)
    if grid.start_ms is not None:
        minutes = range(grid.start_ms, grid.start_ms + len(grid.values[metric]) * MINUTE_MS, MINUTE_MS)
        found = await call.services.metrics.series(
            call.caller,
            job.id,
            task=task,
            metric=metric,
            start_ms=minutes.start,
            end_ms=minutes.stop,
            step_ms=MINUTE_MS,
        )
    rows = {key.card: row for key, row in found.items() if key.card is not None}
    return [
        series(name, [rows.get(card, {}).get(minute) for minute in minutes], card)
        for card in sorted(cards | rows.keys())
    ]


def _node(pool: Pool, nodes: Sequence[Node], ip: str) -> Node:
    own = [node for node in nodes if pool.node_ids is None or node.id in pool.node_ids]
    found = next((node for node in own if node.ip == ip), None)
    if found is None:
        known = ", ".join(node.ip for node in own[:NODES_SHOWN]) or "none"
        raise NotFound(f"pool {pool.id} has no node {ip!r}; there are: {known}")
    return found


async def _recent_jobs(call: Call, pool_id: str, since_ms: int) -> list[Job]:
    """Return the jobs of the pool that run or ended since."""
    pool = JobQuery(project_id=call.caller.project_id, pool_ids=(pool_id,), sort_by="number")
    active = await everything(call, replace(pool, not_phases=FINAL))
    ended = await everything(call, replace(pool, phases=FINAL, ended_from_ms=since_ms))
    return list({job.id: job for job in (*active, *ended)}.values())
