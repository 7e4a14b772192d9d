"""Knows what each operation on jobs asks of the services and how the answer is written."""

from dataclasses import replace

import msgspec

from trackside.api.operation import Call
from trackside.api.pai_dlc import templates
from trackside.api.pai_dlc.checks import flag, now_ms, one_of
from trackside.api.pai_dlc.declared import DEFAULT_ACCESSIBILITY, declared_body
from trackside.api.pai_dlc.history import stop_message
from trackside.api.pai_dlc.ids import job_id, path_job
from trackside.api.pai_dlc.search import Search, to_search
from trackside.api.pai_dlc.signals import forget_signals
from trackside.api.pai_dlc.translate_job import job_answer, job_item
from trackside.api.pai_dlc.translate_spec import (
    DIALECT,
    PRIORITY_OF,
    images_not_used,
    not_acted_on,
    to_spec,
    writable_urls,
)
from trackside.api.pai_dlc.turns import alone
from trackside.api.pai_dlc.wire_create import ACCESSIBILITIES, CreateJobBody, UpdateJobBody
from trackside.api.pai_dlc.wire_job import JobAnswer, JobDone, JobPageAnswer
from trackside.domain.errors import Invalid
from trackside.domain.event import Level
from trackside.domain.job import Job, JobSpec, task_names
from trackside.domain.phase import Phase
from trackside.ports import EventQuery
from trackside.service.jobs import JobChange

SCANNED_MAX = 10_000  # jobs that are looked at one by one for one list
STOPPING_WORD = "stopping: "  # how the event of a job that is asked to stop begins


async def create_job(call: Call) -> JobDone:
    """Submit a job."""
    assert isinstance(call.body, CreateJobBody)
    body = call.body
    if body.template_id:
        body = await templates.filled(call, body)
    absent = [url for url in writable_urls(body) if not await call.services.objects.list(call.caller, url)]
    spec = to_spec(body, call.services.catalog, absent=absent)
    job = await call.services.jobs.submit(call.caller, spec)
    for message in (*not_acted_on(body), *images_not_used(spec, call.services.catalog)):
        await call.services.jobs.note(call.caller, job.id, task_names(spec)[0], message, Level.WARNING)
    if body.template_id:
        await templates.used(call, body.template_id)
    return _done(call, job)


async def get_job(call: Call) -> JobAnswer:
    """Tell everything about a job."""
    job = path_job(call)
    detail = flag(call, "NeedDetail", default=True)
    return job_answer(
        job,
        now_ms=now_ms(),
        request_id=call.request_id,
        detail=detail,
        stopping_at_ms=await _stopping_at(call, job) if detail else None,
    )


async def list_jobs(call: Call) -> JobPageAnswer:
    """List the jobs that match."""
    now = now_ms()
    search = to_search(call, now=now)
    jobs, matching = await _found(call, search) if search.possible else ((), 0)
    items = [job_item(job, now_ms=now) for job in jobs]
    return JobPageAnswer(jobs=items, total_count=matching, request_id=call.request_id)


async def update_job(call: Call) -> JobDone:
    """Change a job's visibility, description or priority."""
    body = call.body
    assert isinstance(body, UpdateJobBody)
    async with alone(call):
        job = path_job(call)
        _check_unchanged(body, job.spec)
        change = JobChange(
            description=body.description,
            priority=PRIORITY_OF[body.priority] if body.priority else None,
            declared=_redeclared(body, job.spec),
        )
        return _done(call, await call.services.jobs.change(call.caller, job.id, change))


async def stop_job(call: Call) -> JobDone:
    """Ask a job to stop."""
    return _done(call, await call.services.jobs.stop(call.caller, path_job(call).id))


async def delete_job(call: Call) -> JobDone:
    """Delete a job."""
    job = path_job(call)
    await call.services.jobs.delete(call.caller, job.id)
    await forget_signals(call, job)
    return _done(call, job)


def _done(call: Call, job: Job) -> JobDone:
    return JobDone(job_id=job_id(job), request_id=call.request_id)


async def _stopping_at(call: Call, job: Job) -> int | None:
    """Return when a job that was stopped began to stop: only its events know."""
    if job.phase is not Phase.STOPPED or not job.tasks:
        return None
    query = EventQuery(job_id=job.id, contains=STOPPING_WORD, limit=10)
    page = await call.services.jobs.events(call.caller, query)
    return stop_message([(event.at_ms, event.message) for event in page.events if event.task is None])


async def _found(call: Call, search: Search) -> tuple[tuple[Job, ...], int]:
    query = search.query
    if not search.looks:
        page = await call.services.jobs.search(call.caller, query)
        return page.jobs, page.matching
    page = await call.services.jobs.search(call.caller, replace(query, offset=0, limit=SCANNED_MAX))
    if page.matching > SCANNED_MAX:
        raise Invalid(
            f"{page.matching:,} jobs would have to be looked at one by one; at most {SCANNED_MAX:,} are: "
            "narrow the list down with StartTime and EndTime, Status, DisplayName or WorkspaceId"
        )
    found = tuple(job for job in page.jobs if all(look(job) for look in search.looks))
    return found[query.offset : query.offset + query.limit], len(found)


def _check_unchanged(body: UpdateJobBody, spec: JobSpec) -> None:
    former = declared_body(spec)
    if body.user_command and body.user_command != former.user_command:
        raise Invalid("UserCommand cannot be changed once the job is created: create another job")
    if body.job_specs and body.job_specs != former.job_specs:
        raise Invalid("JobSpecs cannot be changed once the job is created: create another job")


def _redeclared(body: UpdateJobBody, spec: JobSpec) -> dict[str, object] | None:
    """Return the job's own words with what no core field holds changed; None if nothing of that changes."""
    if body.accessibility is None and body.priority is None:
        return None
    former = declared_body(spec)
    seen = former.accessibility or DEFAULT_ACCESSIBILITY
    wanted = one_of("Accessibility", body.accessibility or seen, ACCESSIBILITIES)
    if (seen, wanted) == ("PUBLIC", "PRIVATE"):
        raise Invalid("Accessibility can only be widened, from PRIVATE to PUBLIC")
    changed = msgspec.structs.replace(former, accessibility=wanted, priority=body.priority or former.priority)
    return {DIALECT: msgspec.to_builtins(changed)}
