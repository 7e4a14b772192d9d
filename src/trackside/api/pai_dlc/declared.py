"""Knows the words a job was asked for in, and finds them for jobs that were asked for in others."""

from collections.abc import Mapping
from typing import Any

import msgspec

from trackside.api.pai_dlc.sizes import config_of
from trackside.api.pai_dlc.translate_spec import DIALECT, PRIORITY_CALLED, PRIORITY_OF, SUCCESS_OF
from trackside.api.pai_dlc.wire_create import JOB_TYPES, CreateJobBody, JobSpecBody
from trackside.domain.job import DEFAULT_POOL, JobSpec, RestartPolicy, Role

DEFAULT_ACCESSIBILITY = "PRIVATE"
OTHERS_TYPE = "PyTorchJob"  # jobs of other APIs: all get torch's variables
_POLICY_CALLED = {
    RestartPolicy.ALWAYS: "Always",
    RestartPolicy.NEVER: "Never",
    RestartPolicy.ON_FAILURE: "OnFailure",
    RestartPolicy.EXIT_CODE: "ExitCode",
}
_SUCCESS_CALLED = {policy: name for name, policy in SUCCESS_OF.items()}


def declared_body(spec: JobSpec) -> CreateJobBody:
    """Return the body a job was created with; a job of another dialect gets one that says the same."""
    declared: Mapping[str, Any] | None = spec.declared.get(DIALECT)
    if declared is None:
        return _body_from_spec(spec)
    try:
        return msgspec.convert(declared, CreateJobBody)
    except msgspec.ValidationError:  # taken by an earlier version, under bounds that were wider
        return _body_from_spec(spec)


def job_type(spec: JobSpec) -> str:
    """Return the type of a job."""
    return spec.kind if spec.kind in JOB_TYPES else OTHERS_TYPE


def types_of_roles(spec: JobSpec, body: CreateJobBody) -> dict[str, str]:
    """Return how the body calls each role."""
    called = {(item.type or "Worker").lower(): item.type or "Worker" for item in body.job_specs or ()}
    return {role.name: called.get(role.name, role.name) for role in spec.roles}


def priority(spec: JobSpec, body: CreateJobBody) -> int:
    """Return the priority as it was given, unless it was changed since."""
    if body.priority is not None and PRIORITY_OF[body.priority] == spec.priority:
        return body.priority
    return PRIORITY_CALLED.get(spec.priority, max(PRIORITY_OF))


def resource_id(spec: JobSpec) -> str | None:
    """Return the pool, unless it is the one that need not be named."""
    return None if spec.pool_id == DEFAULT_POOL else spec.pool_id


def settings(spec: JobSpec, body: CreateJobBody) -> dict[str, Any] | None:
    """Return the settings as given, with the tags of today."""
    given = {name: value for name, value in (body.settings or {}).items() if name != "Tags"}
    return {**given, "Tags": dict(spec.tags)} if spec.tags else given or None


def _body_from_spec(spec: JobSpec) -> CreateJobBody:
    return CreateJobBody(
        display_name=spec.name,
        job_type=job_type(spec),
        user_command=spec.command or _boot_command(spec),
        job_specs=[_job_spec(role, spec) for role in spec.roles],
        envs=dict(spec.environments) or None,
        job_max_running_time_minutes=-(-spec.max_seconds // 60) if spec.max_seconds else None,
        success_policy=_SUCCESS_CALLED[spec.success],
    )


def _boot_command(spec: JobSpec) -> str | None:
    return f"python {spec.boot_file}" if spec.boot_file else None


def _job_spec(role: Role, spec: JobSpec) -> JobSpecBody:
    return JobSpecBody(
        type=role.name.capitalize(),
        pod_count=role.count,
        image=role.image or spec.runtime.image,
        ecs_spec=role.flavor_id,
        resource_config=config_of(role.resources),
        restart_policy=_POLICY_CALLED[role.restart],
        user_command=role.command,
        is_chief=True if role.chief else None,
    )
