"""Knows what each operation on jobs asks of the services and how the answer is written."""

import time

import msgspec

from trackside.api.modelarts_v2 import render
from trackside.api.modelarts_v2.checks import check_job_name, one_of
from trackside.api.modelarts_v2.hang import hang_doubts
from trackside.api.modelarts_v2.recovery import recovery_policy
from trackside.api.modelarts_v2.search import DEFAULT_WORKSPACE, to_query
from trackside.api.modelarts_v2.sizes import FlavorLookup
from trackside.api.modelarts_v2.translate_job import declared_body
from trackside.api.modelarts_v2.translate_spec import DIALECT, to_spec
from trackside.api.modelarts_v2.wire_create import CreateJobBody, JobSpecBody
from trackside.api.modelarts_v2.wire_request import (
    ACTION_TYPES,
    BatchDeleteBody,
    ChangeJobBody,
    ChangeMetadata,
    ChangeSpec,
    JobSearchBody,
)
from trackside.api.modelarts_v2.wire_response import JobPageHead, NameCheck
from trackside.api.operation import Call, Raw
from trackside.domain.errors import Invalid
from trackside.domain.job import Job, JobSpec
from trackside.domain.resources import find_flavor
from trackside.service.jobs import JobChange


async def create_job(call: Call) -> Raw:
    """Submit a job."""
    assert isinstance(call.body, CreateJobBody)
    spec = to_spec(call.body, call.services.catalog)
    doubts = [*call.services.topics.doubts(call.caller, spec.declared), *hang_doubts(spec.environments)]
    return Raw(content=_details(call, await call.services.jobs.submit(call.caller, spec, doubts=doubts)))


async def show_details(call: Call) -> Raw:
    """Tell everything about a job."""
    return Raw(content=_details(call, call.services.jobs.show(call.caller, call.path["training_job_id"])))


async def search_jobs(call: Call) -> Raw:
    """List the jobs that match."""
    body = call.body if isinstance(call.body, JobSearchBody) else JobSearchBody()
    query = to_query(body, call.caller)
    page = await call.services.jobs.search(call.caller, query)
    head = JobPageHead(
        total=page.total,
        count=page.matching,
        limit=query.limit,
        offset=query.offset,
        sort_by=body.sort_by or "create_time",
        order="desc" if query.descending else "asc",
        group_by=body.group_by or "",
        workspace_id=query.workspace_id or DEFAULT_WORKSPACE,
        ai_project="",
        train_type=body.train_type,
    )
    items = b",".join(_details(call, job) for job in page.jobs)
    return Raw(content=b'%b,"items":[%b]}' % (msgspec.json.encode(head)[:-1], items))


async def change_job(call: Call) -> Raw:
    """Change a job's description, priority, annotations, notification or key pairs."""
    assert isinstance(call.body, ChangeJobBody)
    job = call.services.jobs.show(call.caller, call.path["training_job_id"])
    change = _change(call.body, job.spec)
    doubts = call.services.topics.doubts(call.caller, change.declared or {})
    changed = await call.services.jobs.change(call.caller, job.id, change, doubts=doubts)
    return Raw(content=_details(call, changed))


async def stop_job(call: Call) -> Raw:
    """Ask a job to stop."""
    one_of("action_type", call.body.action_type, ACTION_TYPES)
    job = await call.services.jobs.stop(call.caller, call.path["training_job_id"])
    return Raw(content=_details(call, job))


async def delete_job(call: Call) -> None:
    """Delete a job."""
    await call.services.jobs.delete(call.caller, call.path["training_job_id"])


async def delete_jobs(call: Call) -> None:
    """Delete many jobs; none of them if one is not there."""
    assert isinstance(call.body, BatchDeleteBody)
    job_ids = dict.fromkeys(item.metadata.id for item in call.body.jobs)
    for job_id in job_ids:
        call.services.jobs.show(call.caller, job_id)
    for job_id in job_ids:
        await call.services.jobs.delete(call.caller, job_id)


async def check_name(call: Call) -> NameCheck:
    """Say whether a name is taken."""
    name = call.query_one("job_name")
    if name is None:
        raise Invalid("job_name is missing")
    check_job_name("job_name", name)
    workspace_id = call.query_one("workspace_id") or DEFAULT_WORKSPACE
    return NameCheck(is_duplicate=await call.services.jobs.name_exists(call.caller, workspace_id, name))


def _change(body: ChangeJobBody, spec: JobSpec) -> JobChange:
    metadata, wanted = body.metadata or ChangeMetadata(), body.spec or ChangeSpec()
    policy = wanted.schedule_policy
    annotations = {**(metadata.annotation or {}), **(metadata.annotations or {})}
    return JobChange(
        description=body.description,
        priority=policy.priority if policy else None,
        preemptible=policy.preemptible if policy else None,
        annotations=annotations or None,
        recovery=recovery_policy({**spec.annotations, **annotations}) if annotations else None,
        declared=_redeclared(body, spec),
    )


def _redeclared(body: ChangeJobBody, spec: JobSpec) -> dict[str, object] | None:
    """Return the job's own words with what no core field holds changed; None if nothing of that changes."""
    notification = body.spec.notification if body.spec else None
    if notification is None and body.endpoints is None:
        return None
    former = declared_body(spec)
    former_spec = former.spec or JobSpecBody()
    changed = msgspec.structs.replace(
        former,
        endpoints=body.endpoints or former.endpoints,
        spec=msgspec.structs.replace(former_spec, notification=notification or former_spec.notification),
    )
    return {DIALECT: msgspec.to_builtins(changed)}


def _details(call: Call, job: Job) -> bytes:
    return render.details(job, flavor_of=_flavor_lookup(call), now_ms=time.time_ns() // 1_000_000)


def _flavor_lookup(call: Call) -> FlavorLookup:
    return lambda flavor_id: find_flavor(call.services.catalog.flavors(), flavor_id)
