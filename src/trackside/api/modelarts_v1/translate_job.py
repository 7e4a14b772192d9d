"""Knows how a job reads as a version in ModelArts v1, whichever dialect made it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from trackside.api.modelarts_v1.phases import STATUS_OF
from trackside.api.modelarts_v1.sizes import engine_of, given, spec_id_of
from trackside.api.modelarts_v1.translate_spec import DIALECT
from trackside.api.modelarts_v1.wire_request import DataSource, JobConfig, Parameter, Settings
from trackside.api.modelarts_v1.wire_response import (
    Created,
    JobSummary,
    ListedVersion,
    SystemMetrics,
    VersionDetail,
    VersionOverview,
)
from trackside.domain.job import Channel, Job, JobSpec
from trackside.domain.resources import Accelerator
from trackside.domain.timing import running_ms
from trackside.service.catalog import Catalog

# What a script measures of its model is not read, so both parts are there and empty.
NO_MODEL_METRICS = (
    '{"metric":[],"total_metric":{"total_metric_meta":{},"total_reserved_data":{},"total_metric_values":{}}}'
)


def created(job: Job) -> Created:
    """Tell of a job or version just made."""
    return Created(
        job_id=job.family,
        job_name=job.spec.name,
        status=STATUS_OF[job.phase],
        create_time=job.created_at_ms,
        version_id=job.number,
        version_name=version_name(job),
        resource_id=resource_id(job),
    )


def summary(job: Job, *, version_count: int, now_ms: int) -> JobSummary:
    """Tell of a job by its newest version."""
    return JobSummary(
        job_id=job.family,
        job_name=job.spec.name,
        version_id=job.number,
        status=STATUS_OF[job.phase],
        create_time=job.created_at_ms,
        duration=running_ms(job, now_ms=now_ms),
        job_desc=job.spec.description,
        version_count=version_count,
    )


def overview(job: Job, *, now_ms: int) -> VersionOverview:
    """Tell of a version among all of the project."""
    return VersionOverview(
        job_id=job.family,
        version_id=job.number,
        version_name=job.spec.name,
        version_desc=job.spec.description or None,
        status=STATUS_OF[job.phase],
        create_time=job.created_at_ms,
        start_time=job.started_at_ms,
        end_time=job.ended_at_ms,
        duration=running_ms(job, now_ms=now_ms),
        pool_id=job.spec.pool_id,
        flavor_code=job.spec.roles[0].flavor_id,
        npu_num=_cards(job.spec, Accelerator.NPU),
        gpu_num=_cards(job.spec, Accelerator.GPU),
    )


def detail(job: Job, catalog: Catalog, *, metrics: SystemMetrics, now_ms: int) -> VersionDetail:
    """Tell everything of a version."""
    return VersionDetail(
        is_success=True,
        job_id=job.family,
        job_name=job.spec.name,
        job_desc=job.spec.description,
        system_metric_list=metrics,
        **_version(job, catalog, now_ms),
    )


def listed(job: Job, catalog: Catalog, *, metrics: SystemMetrics, now_ms: int) -> ListedVersion:
    """Tell everything of a version as it stands in the list of a job's versions."""
    return ListedVersion(
        system_metric_list=msgspec.json.encode(metrics).decode(), **_version(job, catalog, now_ms)
    )


def version_name(job: Job) -> str:
    """Return what a version is called: V0001, V0002 …"""
    return f"V{job.version:04d}"


def resource_id(job: Job) -> str:
    """Return the id by which the vendor would charge for a version."""
    return f"job{job.short_id}"


def said(settings: Settings) -> dict[str, Any]:
    """Return what settings say, under the names that answers have too."""
    names = (
        "app_url",
        "boot_file_url",
        "parameter",
        "data_url",
        "dataset_id",
        "dataset_version_id",
        "data_source",
        "train_url",
        "log_url",
        "user_image_url",
        "user_command",
        "volumes",
    )
    return {name: getattr(settings, name) for name in names} | {"model_id": whole(settings.model_id)}


def whole(value: int | str | None) -> int | None:
    """Return a whole number that may have come as text."""
    return int(value) if value not in (None, "") else None


def config_of(spec: JobSpec) -> JobConfig:
    """Return the config a job was made with, or the one that says the same in v1's words."""
    declared = spec.declared.get(DIALECT)
    return msgspec.convert(declared, JobConfig) if declared is not None else _config_from(spec)


def _version(job: Job, catalog: Catalog, now_ms: int) -> dict[str, Any]:
    spec, config, role = job.spec, config_of(job.spec), job.spec.roles[0]
    engine = engine_of(spec.runtime, catalog.runtimes())
    return {
        **said(config),
        **(msgspec.structs.asdict(engine) if engine else {"engine_id": _number(config.engine_id)}),
        **given(role.resources),
        "worker_server_num": spec.node_count,
        "spec_id": spec_id_of(role.flavor_id, catalog.flavors()),
        "spec_code": role.flavor_id,
        "pool_id": spec.pool_id,
        "pool_name": spec.pool_id,
        "version_id": job.number,
        "version_name": version_name(job),
        "pre_version_id": whole(config.pre_version_id),
        "status": STATUS_OF[job.phase],
        "create_time": job.created_at_ms,
        "start_time": job.started_at_ms,
        "duration": running_ms(job, now_ms=now_ms),
        "resource_id": resource_id(job),
        "nas_type": config.nas_type,
        "nas_share_addr": config.nas_share_addr,
        "nas_mount_path": config.nas_mount_path,
        "model_metric_list": NO_MODEL_METRICS,
    }


def _number(value: int | str | None) -> int | None:
    return int(value) if isinstance(value, int) or (value and value.isdecimal()) else None


def _cards(spec: JobSpec, family: Accelerator) -> int:
    return sum(
        role.count * role.resources.cards for role in spec.roles if role.resources.accelerator is family
    )


def _config_from(spec: JobSpec) -> JobConfig:
    """Return a config that says what the spec says; it is shown, never run."""
    labels = spec.parameters or tuple(spec.environments.items())
    return JobConfig(
        app_url=spec.code_dir,
        boot_file_url=_boot_file_url(spec),
        parameter=[Parameter(label=name, value=value) for name, value in labels] or None,
        data_url=spec.inputs[0].url if len(spec.inputs) == 1 else None,
        data_source=_sources(spec.inputs) if len(spec.inputs) > 1 else None,
        train_url=spec.outputs[0].url if spec.outputs else None,
        log_url=spec.log_export_url,
        user_image_url=spec.runtime.image,
        user_command=spec.command or next((role.command for role in spec.roles if role.command), None),
    )


def _boot_file_url(spec: JobSpec) -> str | None:
    if spec.boot_file is None or spec.code_dir is None or "://" in spec.boot_file:
        return spec.boot_file
    return f"{spec.code_dir.rstrip('/')}/{spec.boot_file.lstrip('/')}"


def _sources(channels: Sequence[Channel]) -> list[DataSource]:
    return [DataSource(type="obs", data_url=channel.url) for channel in channels]
