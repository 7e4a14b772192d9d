"""Knows how a job reads in ModelArts v2: what was asked for, word for word, and what became of it."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from trackside.api.modelarts_v2.declared import body_from_spec
from trackside.api.modelarts_v2.sizes import (
    FLAVOR_TYPE_OF,
    FlavorLookup,
    allocated,
    flavor_detail,
    flavor_info,
)
from trackside.api.modelarts_v2.status import job_status
from trackside.api.modelarts_v2.translate_spec import DIALECT
from trackside.api.modelarts_v2.wire_create import (
    CreateJobBody,
    JobSpecBody,
    Resource,
    RoleTask,
    SchedulePolicy,
    TaskAlgorithm,
    TaskResource,
)
from trackside.api.modelarts_v2.wire_response import (
    AlgorithmAnswer,
    JobMetadataAnswer,
    JobSpecAnswer,
    ResourceAnswer,
    RoleTaskAnswer,
    TaskAlgorithmAnswer,
    TaskResourceAnswer,
    TrainingJob,
)
from trackside.domain.job import Job, JobSpec, Role

POLICY = "regular"

T = TypeVar("T")


def from_job(job: Job, *, flavor_of: FlavorLookup, now_ms: int) -> TrainingJob:
    """Return the job's details."""
    body = declared_body(job.spec)
    return TrainingJob(
        kind=job.spec.kind,
        metadata=_metadata(job, body),
        status=job_status(job, now_ms=now_ms),
        algorithm=_algorithm(body),
        tasks=_tasks(body, job.spec, flavor_of),
        spec=_spec(body, job.spec, flavor_of),
        endpoints=body.endpoints,
        train_type=body.train_type,
        ftjob_config=body.ftjob_config,
    )


def declared_body(spec: JobSpec) -> CreateJobBody:
    """Return the body a job was created with; a job of another dialect gets one that says the same."""
    declared: Mapping[str, Any] | None = spec.declared.get(DIALECT)
    if declared is None:
        return body_from_spec(spec)
    try:
        return msgspec.convert(declared, CreateJobBody)
    except msgspec.ValidationError:  # taken by an earlier version, under bounds that were wider
        return body_from_spec(spec)


def _metadata(job: Job, body: CreateJobBody) -> JobMetadataAnswer:
    # Name, description and annotations come from the job itself: they may have changed since creation.
    return JobMetadataAnswer(
        id=job.id,
        name=job.spec.name,
        workspace_id=job.spec.workspace_id,
        description=job.spec.description,
        create_time=job.created_at_ms,
        user_name=job.owner,
        annotations=dict(job.spec.annotations),
        training_experiment_reference=body.metadata.training_experiment_reference,
    )


def _algorithm(body: CreateJobBody) -> AlgorithmAnswer | None:
    given = body.algorithm
    if given is None:
        return None
    fields = {name: getattr(given, name) for name in given.__struct_fields__ if name != "environments"}
    environments = None if given.environments is None else [given.environments]
    return AlgorithmAnswer(**fields, environments=environments)


def _spec(body: CreateJobBody, core: JobSpec, flavor_of: FlavorLookup) -> JobSpecAnswer:
    given = body.spec or JobSpecBody()
    fields = {
        name: getattr(given, name)
        for name in given.__struct_fields__
        if name not in ("resource", "schedule_policy")
    }
    policy = msgspec.structs.replace(
        given.schedule_policy or SchedulePolicy(), priority=core.priority, preemptible=core.preemptible
    )
    return JobSpecAnswer(
        **fields,
        schedule_policy=policy,
        resource=_resource(given.resource or Resource(), core, flavor_of),
    )


def _resource(given: Resource, core: JobSpec, flavor_of: FlavorLookup) -> ResourceAnswer:
    role = core.roles[0]
    flavor = flavor_of(role.flavor_id) if role.flavor_id else None
    return ResourceAnswer(
        policy=POLICY,
        flavor_id=role.flavor_id,
        flavor_name=flavor.name if flavor else role.flavor_id,
        node_count=core.node_count,
        pool_id=given.pool_id,
        pool_group_id=given.pool_group_id,
        flavor_detail=flavor_detail(flavor) if flavor else None,
        main_container_allocated_resources=allocated(role.resources),
        main_container_customized_flavor=given.main_container_customized_flavor,
    )


def _tasks(body: CreateJobBody, core: JobSpec, flavor_of: FlavorLookup) -> list[RoleTaskAnswer] | None:
    if not body.tasks:
        return None
    return [_task(task, role, flavor_of) for task, role in zip(body.tasks, core.roles, strict=True)]


def _task(task: RoleTask, role: Role, flavor_of: FlavorLookup) -> RoleTaskAnswer:
    given = task.task_resource or TaskResource()
    flavor = flavor_of(role.flavor_id) if role.flavor_id else None
    resources = flavor.resources if flavor else role.resources
    nodes_max = flavor.nodes_max if flavor else role.count
    return RoleTaskAnswer(
        role=role.name,
        algorithm=_task_algorithm(task.algorithm) if task.algorithm else None,
        task_resource=TaskResourceAnswer(
            flavor_id=role.flavor_id,
            flavor_name=flavor.name if flavor else role.flavor_id,
            node_count=role.count,
            pool_id=given.pool_id,
            max_num=nodes_max,
            flavor_type=FLAVOR_TYPE_OF[resources.accelerator],
            flavor_info=flavor_info(resources, nodes_max),
        ),
        log_export_path=task.log_export_path,
    )


def _task_algorithm(given: TaskAlgorithm) -> TaskAlgorithmAnswer:
    fields = {
        name: getattr(given, name) for name in given.__struct_fields__ if name not in ("inputs", "outputs")
    }
    return TaskAlgorithmAnswer(
        **fields,
        inputs=_one_or_all(given.inputs),
        outputs=_one_or_all(given.outputs),
    )


def _one_or_all(items: list[T] | None) -> T | list[T] | None:
    return items[0] if items and len(items) == 1 else items
