"""Knows what a CreateJob body asks for in Trackside's words; refuses to know how it will run."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from trackside.api.pai_dlc.checks import one_of
from trackside.api.pai_dlc.monitoring import to_monitoring
from trackside.api.pai_dlc.roles import to_roles
from trackside.api.pai_dlc.sources import check_code, to_inputs, to_mounts, to_outputs
from trackside.api.pai_dlc.wire_create import (
    ACCESSIBILITIES,
    JOB_TYPES,
    SUCCESS_POLICIES,
    CreateJobBody,
)
from trackside.domain.errors import Invalid
from trackside.domain.job import DEFAULT_POOL, JobSpec, Role, RuntimeChoice, SuccessPolicy
from trackside.service.catalog import Catalog

DIALECT = "pai_dlc"
DEFAULT_WORKSPACE = "0"
DEFAULT_PRIORITY = 1
TAGS_KEPT_MAX = 100
_NAME = re.compile(r"[0-9A-Za-z_.-]{1,256}")

PRIORITY_OF: dict[int, int] = {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 2, 7: 2, 8: 3, 9: 3}
PRIORITY_CALLED: dict[int, int] = {0: 1, 1: 4, 2: 6, 3: 8}
SUCCESS_OF = {"ChiefWorker": SuccessPolicy.CHIEF, "AllWorkers": SuccessPolicy.ALL}
FRAMEWORK_OF: dict[str, str] = {"TFJob": "tensorflow"}


def to_spec(body: CreateJobBody, catalog: Catalog, *, absent: Collection[str] = ()) -> JobSpec:
    """Return what the body asks for, or say which field cannot be.

    `absent` are the places of writable data sources at which there is nothing yet.
    """
    job_type = one_of("JobType", _given("JobType", body.job_type), JOB_TYPES)
    roles = to_roles(body.job_specs or (), job_type, catalog)
    _check_command(body, roles)
    check_code(body.code_source)
    if body.accessibility:
        one_of("Accessibility", body.accessibility, ACCESSIBILITIES)
    mounts = to_mounts(body.data_sources or ())
    monitoring = to_monitoring(body.settings or {})
    minutes = body.job_max_running_time_minutes
    return JobSpec(
        name=_name(body),
        kind=job_type,
        description=body.description or "",
        workspace_id=body.workspace_id or DEFAULT_WORKSPACE,
        roles=roles,
        command=body.user_command or None,
        environments=_environments(body),
        inputs=to_inputs(mounts, absent),
        outputs=to_outputs(mounts),
        runtime=RuntimeChoice(image=next((role.image for role in roles if role.image), None)),
        pool_id=body.resource_id or DEFAULT_POOL,
        priority=PRIORITY_OF[body.priority or DEFAULT_PRIORITY],
        success=SUCCESS_OF[one_of("SuccessPolicy", body.success_policy or "AllWorkers", SUCCESS_POLICIES)],
        framework=FRAMEWORK_OF.get(job_type),
        tags=_tags(body.settings or {}),
        max_seconds=minutes * 60 if minutes else None,
        recovery=monitoring.recovery,
        hang=monitoring.hang,
        declared={DIALECT: msgspec.to_builtins(body)},
    )


def writable_urls(body: CreateJobBody) -> list[str]:
    """Return the places the job wants to write to, which need not exist yet."""
    return [mount.url for mount in to_mounts(body.data_sources or ()) if mount.writable]


def not_acted_on(body: CreateJobBody) -> Iterator[str]:
    """Say what of the body a job could miss when it runs."""
    if body.thirdparty_libs:
        yield f"ThirdpartyLibs were not installed: {', '.join(body.thirdparty_libs)[:500]}"
    if body.thirdparty_lib_dir:
        yield f"the requirements in ThirdpartyLibDir {body.thirdparty_lib_dir[:200]} were not installed"
    settings = body.settings or {}
    if settings.get("EnableSanityCheck"):
        yield "Settings.EnableSanityCheck has no effect: health checks are not run here"
    yield from to_monitoring(settings).doubts


def images_not_used(spec: JobSpec, catalog: Catalog) -> Iterator[str]:
    """Say which images of roles no engine stands for; of the job's own, the job says so itself."""
    for image in dict.fromkeys(role.image for role in spec.roles):
        if image and image != spec.runtime.image and catalog.resolve(RuntimeChoice(image=image)) is None:
            yield f"the image {image} was not used: no engine stands for it here"


def _given(field: str, value: str | None) -> str:
    if not value:
        raise Invalid(f"{field} is missing")
    return value


def _name(body: CreateJobBody) -> str:
    name = _given("DisplayName", body.display_name)
    if not _NAME.fullmatch(name):
        raise Invalid("DisplayName must be 1 to 256 letters, digits, underscores, dots and hyphens")
    return name


def _check_command(body: CreateJobBody, roles: tuple[Role, ...]) -> None:
    if not body.user_command and not all(role.command for role in roles):
        raise Invalid("UserCommand is missing: give it for the job, or for every one of its JobSpecs")


def _environments(body: CreateJobBody) -> dict[str, str]:
    environments = dict(body.envs or {})
    for index, item in enumerate(body.custom_envs or ()):
        if not item.key:
            raise Invalid(f"CustomEnvs[{index}].Key is missing")
        environments[item.key] = item.value or ""
    return environments


def _tags(settings: Mapping[str, Any]) -> dict[str, str]:
    tags = settings.get("Tags") or {}
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        raise Invalid("Settings.Tags must be an object of texts")
    if len(tags) > TAGS_KEPT_MAX:
        raise Invalid(f"Settings.Tags may have at most {TAGS_KEPT_MAX} tags")
    return dict(tags)
