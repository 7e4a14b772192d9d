"""Knows which CreateTrainingJob body would have asked for a job that another dialect made."""

from collections.abc import Sequence

from trackside.api.modelarts_v2.wire_algorithm import (
    Algorithm,
    Engine,
    Input,
    InputRemote,
    Output,
    OutputRemote,
    Parameter,
    RemoteObs,
)
from trackside.api.modelarts_v2.wire_create import (
    AutoStop,
    CreateJobBody,
    CustomMetric,
    ExecMetric,
    HttpMetric,
    JobMetadata,
    JobSpecBody,
    LogExportPath,
    Resource,
    RoleTask,
    TaskResource,
)
from trackside.domain.job import DEFAULT_POOL, Channel, JobSpec, MetricSource, Role

HOUR_SECONDS = 3600


def body_from_spec(spec: JobSpec) -> CreateJobBody:
    """Return a body that says what the spec says; it is shown, never run."""
    return CreateJobBody(
        kind=spec.kind,
        metadata=JobMetadata(name=spec.name, workspace_id=spec.workspace_id, description=spec.description),
        algorithm=_algorithm(spec),
        tasks=[_role(role) for role in spec.roles] if len(spec.roles) > 1 else None,
        spec=JobSpecBody(
            resource=Resource(pool_id=spec.pool_id if spec.pool_id != DEFAULT_POOL else None),
            log_export_path=LogExportPath(obs_url=spec.log_export_url) if spec.log_export_url else None,
            auto_stop=_auto_stop(spec.max_seconds),
            custom_metrics=[_metric(source) for source in spec.custom_metrics] or None,
        ),
    )


def _algorithm(spec: JobSpec) -> Algorithm:
    runtime = spec.runtime
    engine = Engine(
        engine_id=runtime.engine_id,
        engine_name=runtime.engine_name,
        engine_version=runtime.engine_version,
        image_url=runtime.image,
    )
    return Algorithm(
        command=spec.command or next((role.command for role in spec.roles if role.command), None),
        code_dir=spec.code_dir,
        boot_file=_boot_file(spec),
        local_code_dir=spec.local_code_dir,
        working_dir=spec.working_dir,
        parameters=[Parameter(name=name, value=value) for name, value in spec.parameters] or None,
        environments=dict(spec.environments) or None,
        inputs=_inputs(spec.inputs) or None,
        outputs=_outputs(spec.outputs) or None,
        engine=engine if engine != Engine() else None,
    )


def _boot_file(spec: JobSpec) -> str | None:
    if spec.boot_file is None or spec.code_dir is None or "://" in spec.boot_file:
        return spec.boot_file
    return f"{spec.code_dir.rstrip('/')}/{spec.boot_file.lstrip('/')}"


def _inputs(channels: Sequence[Channel]) -> list[Input]:
    return [
        Input(
            name=channel.name,
            local_dir=channel.local_dir,
            access_method=channel.access.value,
            remote=InputRemote(obs=RemoteObs(obs_url=channel.url)),
        )
        for channel in channels
    ]


def _outputs(channels: Sequence[Channel]) -> list[Output]:
    return [
        Output(
            name=channel.name,
            local_dir=channel.local_dir,
            access_method=channel.access.value,
            remote=OutputRemote(obs=RemoteObs(obs_url=channel.url)),
        )
        for channel in channels
    ]


def _role(role: Role) -> RoleTask:
    return RoleTask(
        role=role.name, task_resource=TaskResource(flavor_id=role.flavor_id, node_count=role.count)
    )


def _auto_stop(seconds: int | None) -> AutoStop | None:
    if seconds is None or seconds % HOUR_SECONDS or seconds < HOUR_SECONDS:
        return None  # the vendor counts whole hours
    return AutoStop(time_unit="HOURS", duration=seconds // HOUR_SECONDS)


def _metric(source: MetricSource) -> CustomMetric:
    if source.command:
        return CustomMetric(exec_=ExecMetric(command=list(source.command)))
    return CustomMetric(http_get=HttpMetric(path=source.path, port=source.port))
