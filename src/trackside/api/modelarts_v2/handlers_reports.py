"""Knows how to tell what a job did: metrics, logs, events, stages, tasks; and what can be asked for."""

from trackside.api.modelarts_v2 import render
from trackside.api.modelarts_v2.checks import one_of, parse_time_ms, query_int, time_text
from trackside.api.modelarts_v2.records import stage_records
from trackside.api.modelarts_v2.sizes import FLAVOR_TYPE_OF, flavor_answer
from trackside.api.modelarts_v2.status import task_places
from trackside.api.modelarts_v2.wire_request import OFFSET_MAX, ORDERS, ReportBody
from trackside.api.modelarts_v2.wire_response import (
    EngineAnswer,
    EngineImages,
    EngineList,
    EventPageAnswer,
    FlavorList,
    JobEvent,
    LogLines,
    LogLink,
    LogPreview,
    StageRecords,
    TaskPlace,
)
from trackside.api.operation import Call, Raw
from trackside.domain.errors import Invalid
from trackside.domain.event import Level
from trackside.domain.runtime import Runtime
from trackside.ports import EventQuery

LINES_DEFAULT, LINES_MAX = 50, 500
EVENTS_DEFAULT, EVENTS_MAX = 50, 100
PATTERN_LENGTH_MAX = 256
LINE_MAX = 2**53
METRICS = tuple(render.METRIC_OF.values())
REPORT_TYPES = ("training-event",)


async def show_metrics(call: Call) -> Raw:
    """Tell how much a task used, minute by minute."""
    job_id, task = call.path["training_job_id"], call.path["task_id"]
    service = call.services.metrics
    version = service.revision(call.caller, job_id, task)
    content = render.cached_metrics((job_id, task), version)
    if content is None:
        grid = await service.minutes(call.caller, job_id, task, METRICS)
        content = render.metrics((job_id, task), version, grid)
    return Raw(content=content)


async def show_log_lines(call: Call) -> LogLines:
    """Return some lines of a task's log."""
    order = one_of("order", call.query_one("order") or "desc", ORDERS)
    found = await call.services.logs.lines(
        call.caller,
        call.path["training_job_id"],
        call.path["task_id"],
        base_line=query_int(call, "base_line", 0, least=0, most=LINE_MAX)
        if call.query_one("base_line")
        else None,
        count=query_int(call, "lines", LINES_DEFAULT, least=1, most=LINES_MAX),
        descending=order == "desc",
    )
    return LogLines(
        start_line=str(found.first_line),
        end_line=str(found.last_line),
        lines=found.lines,
        content=found.text,
    )


async def show_log_preview(call: Call) -> LogPreview:
    """Return the newest part of a task's log."""
    text, full_size = await call.services.logs.preview(
        call.caller, call.path["training_job_id"], call.path["task_id"]
    )
    return LogPreview(content=text, current_size=len(text.encode()), full_size=full_size)


async def show_log_link(call: Call) -> LogLink:
    """Return where a task's log can be downloaded for a while."""
    return LogLink(
        obs_url=call.services.logs.link(call.caller, call.path["training_job_id"], call.path["task_id"])
    )


async def list_events(call: Call) -> EventPageAnswer:
    """Return the events of a job."""
    query, order = _event_query(call), one_of("order", call.query_one("order") or "desc", ORDERS)
    page = await call.services.jobs.events(call.caller, query)
    return EventPageAnswer(
        total=page.matching,
        limit=query.limit,
        offset=query.offset,
        order=order,
        start_time=call.query_one("start_time"),
        end_time=call.query_one("end_time"),
        events=[
            JobEvent(
                message=event.message,
                level=event.level.value,
                time=time_text(event.at_ms),
                source=event.source,
            )
            for event in page.events
        ],
    )


async def list_stages(call: Call) -> StageRecords:
    """Return the stages of every attempt of a job."""
    return stage_records(call.services.jobs.show(call.caller, call.path["training_job_id"]))


async def list_tasks(call: Call) -> list[TaskPlace]:
    """Return where the tasks of a job ran, attempt by attempt."""
    job = call.services.jobs.show(call.caller, call.path["training_job_id"])
    given = query_int(call, "schedule_count", 0, least=0, most=OFFSET_MAX)
    return task_places(job, schedule_count=given or None)


async def list_flavors(call: Call) -> FlavorList:
    """Return the flavors on offer."""
    wanted = call.query_one("flavor_type")
    if wanted is not None:
        one_of("flavor_type", wanted, list(FLAVOR_TYPE_OF.values()))
    engine_ids = [runtime.id for runtime in call.services.catalog.runtimes()]
    flavors = [
        flavor_answer(flavor, engine_ids)
        for flavor in call.services.catalog.flavors()
        if wanted in (None, FLAVOR_TYPE_OF[flavor.resources.accelerator])
    ]
    return FlavorList(total_count=len(flavors), flavors=flavors)


async def list_engines(call: Call) -> EngineList:
    """Return the engines on offer."""
    items = [_engine(runtime) for runtime in call.services.catalog.runtimes()]
    return EngineList(total=len(items), items=items)


async def report_event(call: Call) -> None:
    """Take down what a task says of itself as an event."""
    assert isinstance(call.body, ReportBody)
    one_of("report_type", call.path["report_type"], REPORT_TYPES)
    task = call.path["task_id"]
    await call.services.jobs.note(
        call.caller, call.path["training_job_id"], task, f"{task} reported {call.body.type}", Level.INFO
    )


def _event_query(call: Call) -> EventQuery:
    start, end = call.query_one("start_time"), call.query_one("end_time")
    if (start is None) != (end is None):
        raise Invalid("start_time and end_time must be given together")
    level, pattern = call.query_one("level"), call.query_one("pattern")
    if pattern is not None and len(pattern) > PATTERN_LENGTH_MAX:
        raise Invalid(f"pattern may have at most {PATTERN_LENGTH_MAX} characters")
    job = call.services.jobs.show(call.caller, call.path["training_job_id"])
    return EventQuery(
        job_id=job.id,
        levels=(one_of("level", level, [known.value for known in Level]),) if level else (),
        contains=pattern,
        from_ms=parse_time_ms("start_time", start) if start else None,
        to_ms=parse_time_ms("end_time", end) if end else None,
        descending=one_of("order", call.query_one("order") or "desc", ORDERS) == "desc",
        offset=query_int(call, "offset", 0, least=0, most=OFFSET_MAX),
        limit=query_int(call, "limit", EVENTS_DEFAULT, least=1, most=EVENTS_MAX),
    )


def _engine(runtime: Runtime) -> EngineAnswer:
    image = next(iter(runtime.images), None)
    return EngineAnswer(
        engine_id=runtime.id,
        engine_name=runtime.name,
        engine_version=runtime.version,
        v1_compatible=False,
        image_info=EngineImages(cpu_image_url=image, gpu_image_url=image) if image else None,
    )
