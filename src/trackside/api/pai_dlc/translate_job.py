"""Knows how a job reads in PAI-DLC: what was asked for, word for word, and what became of it."""

import math
from typing import Any

from trackside.api.pai_dlc import declared
from trackside.api.pai_dlc.checks import maybe_time, time_text
from trackside.api.pai_dlc.history import status_history
from trackside.api.pai_dlc.ids import job_id
from trackside.api.pai_dlc.phases import CODE_OF_REASON, PLAIN_REASON_OF, STATUS_OF
from trackside.api.pai_dlc.pods import pods, replica_statuses
from trackside.api.pai_dlc.restarts import restart_records, restart_times
from trackside.api.pai_dlc.sizes import RESOURCE_TYPE
from trackside.api.pai_dlc.wire_create import CreateJobBody
from trackside.api.pai_dlc.wire_job import JobAnswer, JobItem, UserVpcAnswer
from trackside.domain.job import Job
from trackside.domain.phase import Phase
from trackside.domain.timing import running_ms

FAILED = (Phase.FAILED, Phase.CREATE_FAILED)


def job_answer(
    job: Job, *, now_ms: int, request_id: str, detail: bool = True, stopping_at_ms: int | None = None
) -> JobAnswer:
    """Return everything about a job; without detail, neither its pods nor its history."""
    body = declared.declared_body(job.spec)
    types = declared.types_of_roles(job.spec, body)
    answer = JobAnswer(
        **_shared(job, body, types, now_ms),
        request_id=request_id,
        request_gpu=float(requested(job, "cards")),
        request_memory=float(requested(job, "memory_bytes")),
        description=job.spec.description or None,
        custom_envs=body.custom_envs or None,
        job_max_running_time_minutes=body.job_max_running_time_minutes,
        success_policy=body.success_policy,
        options=body.options,
        debugger_config_content=body.debugger_config_content,
        template_id=body.template_id,
        template_version=body.template_version,
    )
    if detail:
        answer.pods = pods(job, types, now_ms=now_ms)
        answer.status_history = status_history(job, stopping_at_ms=stopping_at_ms)
        answer.restart_record = restart_records(job)
    return answer


def job_item(job: Job, *, now_ms: int) -> JobItem:
    """Return a job as lists tell it."""
    body = declared.declared_body(job.spec)
    types = declared.types_of_roles(job.spec, body)
    return JobItem(
        **_shared(job, body, types, now_ms),
        request_gpu=str(requested(job, "cards")),
        request_memory=str(requested(job, "memory_bytes")),
        username=job.owner,
        is_deleted=job.deleting,
        node_count=str(job.spec.node_count),
        node_names=sorted({task.node_id for task in job.tasks}),
        resource_name=job.spec.pool_id,
        gmt_modified_time=time_text(_changed_ms(job)),
        job_max_running_time_minutes=body.job_max_running_time_minutes,
        template_id=body.template_id,
    )


def requested(job: Job, quantity: str) -> int:
    """Return how much of cpu_cores, memory_bytes or cards all pods ask for together."""
    total: float = sum(getattr(role.resources, quantity) * role.count for role in job.spec.roles)
    return math.ceil(total)


def _shared(job: Job, body: CreateJobBody, types: dict[str, str], now_ms: int) -> dict[str, Any]:
    spec, ended = job.spec, maybe_time(job.ended_at_ms)
    reason = job.suspicion or job.reason
    return {
        "job_id": job_id(job),
        "display_name": spec.name,
        "job_type": declared.job_type(spec),
        "status": STATUS_OF[job.phase],
        "sub_status": "",
        "reason_code": CODE_OF_REASON[reason.code] if reason else PLAIN_REASON_OF[job.phase],
        "reason_message": reason.text if reason else "",
        "priority": declared.priority(spec, body),
        "duration": running_ms(job, now_ms=now_ms) // 1000,
        "accessibility": body.accessibility or declared.DEFAULT_ACCESSIBILITY,
        "job_specs": body.job_specs or [],
        "job_replica_statuses": replica_statuses(job, types),
        "restart_times": restart_times(job),
        "request_cpu": requested(job, "cpu_cores"),
        "resource_type": RESOURCE_TYPE,
        "enabled_debugger": False,
        "user_id": job.owner,
        "tenant_id": job.project_id,
        "workspace_id": spec.workspace_id,
        "workspace_name": spec.workspace_id,
        "gmt_create_time": time_text(job.created_at_ms),
        "gmt_submitted_time": maybe_time(_submitted_ms(job)),
        "gmt_running_time": maybe_time(job.started_at_ms),
        "gmt_successed_time": ended if job.phase is Phase.SUCCEEDED else None,
        "gmt_failed_time": ended if job.phase in FAILED else None,
        "gmt_stopped_time": ended if job.phase is Phase.STOPPED else None,
        "gmt_finish_time": ended if job.final else None,
        "resource_id": declared.resource_id(spec),
        "user_command": body.user_command,
        "envs": body.envs,
        "settings": declared.settings(spec, body),
        "code_source": body.code_source,
        "credential_config": body.credential_config,
        "data_sources": body.data_sources or None,
        "elastic_spec": body.elastic_spec,
        "scheduling_strategy": body.scheduling_strategy,
        "thirdparty_lib_dir": body.thirdparty_lib_dir,
        "thirdparty_libs": body.thirdparty_libs,
        "user_vpc": _vpc(body),
    }


def _vpc(body: CreateJobBody) -> UserVpcAnswer | None:
    given = body.user_vpc
    if given is None:
        return None
    return UserVpcAnswer(
        default_route=given.default_route,
        extended_cidrs_asked=given.extended_cidrs,
        extended_cidrs=given.extended_cidrs,
        security_group_id=given.security_group_id,
        switch_id=given.switch_id,
        vpc_id=given.vpc_id,
    )


def _submitted_ms(job: Job) -> int | None:
    """Return when the job got its place: what the vendor calls submitted to the cluster."""
    return next((record.placed_at_ms for record in job.records if record.placed_at_ms is not None), None)


def _changed_ms(job: Job) -> int:
    """Return the latest moment known of the job."""
    moments = [job.created_at_ms, job.started_at_ms, job.ended_at_ms]
    for record in job.records:
        moments += [record.queued_at_ms, record.placed_at_ms, record.running_at_ms, record.ended_at_ms]
        moments += [at_ms for one in record.recoveries for at_ms in (one.started_at_ms, one.ended_at_ms)]
    return max(at_ms for at_ms in moments if at_ms is not None)
