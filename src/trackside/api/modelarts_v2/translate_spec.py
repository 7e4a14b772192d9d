"""Knows what a CreateTrainingJob body asks for in Trackside's words; refuses to know how it will run."""

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from trackside.api.modelarts_v2.checks import check_job_name, one_of
from trackside.api.modelarts_v2.hang import to_hang
from trackside.api.modelarts_v2.recovery import recovery_policy
from trackside.api.modelarts_v2.sizes import resources_for
from trackside.api.modelarts_v2.translate_affinity import to_affinity
from trackside.api.modelarts_v2.wire_algorithm import (
    ACCESS_METHODS,
    Algorithm,
    Engine,
    Input,
    InputRemote,
    Output,
)
from trackside.api.modelarts_v2.wire_create import (
    JOB_KINDS,
    TIME_UNITS,
    CreateJobBody,
    CustomMetric,
    JobSpecBody,
    Resource,
    RoleTask,
    TaskAlgorithm,
    TaskJobConfig,
    TaskResource,
)
from trackside.domain.errors import Invalid
from trackside.domain.job import (
    DEFAULT_POOL,
    Access,
    Channel,
    JobSpec,
    MetricSource,
    Role,
    RuntimeChoice,
)
from trackside.service.catalog import Catalog

DIALECT = "modelarts_v2"
HOUR_SECONDS = 3600
REWARD_NAME_CHARS_MAX = 100

T = TypeVar("T")


def to_spec(body: CreateJobBody, catalog: Catalog) -> JobSpec:
    """Return what the body asks for, or say which field cannot be."""
    algorithm = whole_algorithm(body)
    spec = body.spec or JobSpecBody()
    policy = spec.schedule_policy
    log_export = spec.log_export_path
    return JobSpec(
        name=check_job_name("metadata.name", body.metadata.name),
        kind=one_of("kind", body.kind or "job", JOB_KINDS),
        description=body.metadata.description or "",
        workspace_id=body.metadata.workspace_id or "0",
        annotations=body.metadata.annotations or {},
        recovery=recovery_policy(body.metadata.annotations or {}),
        roles=_roles(body, catalog),
        command=algorithm.command or None,
        code_dir=_url(algorithm.code_dir),
        boot_file=_boot_file(algorithm),
        local_code_dir=algorithm.local_code_dir or None,
        working_dir=algorithm.working_dir or None,
        parameters=tuple((item.name, item.value or "") for item in algorithm.parameters or ()),
        environments=algorithm.environments or {},
        inputs=tuple(
            _channel(item, f"algorithm.inputs[{i}]") for i, item in enumerate(algorithm.inputs or ())
        ),
        outputs=tuple(
            _channel(item, f"algorithm.outputs[{i}]") for i, item in enumerate(algorithm.outputs or ())
        ),
        runtime=_runtime(algorithm.engine),
        pool_id=_pool_id(body),
        priority=1 if policy is None or policy.priority is None else policy.priority,
        preemptible=bool(policy and policy.preemptible),
        affinity=to_affinity(policy.required_affinity if policy else None),
        max_seconds=_max_seconds(spec),
        log_export_url=_url(log_export.obs_url) if log_export else None,
        custom_metrics=tuple(
            _metric_source(item, f"spec.custom_metrics[{i}]")
            for i, item in enumerate(spec.custom_metrics or ())
        ),
        log_patterns=_log_patterns(algorithm),
        hang=to_hang(algorithm.environments or {}),
        declared={DIALECT: msgspec.to_builtins(body)},
    )


def whole_algorithm(body: CreateJobBody) -> Algorithm:
    """Return what all tasks run: the job's algorithm, completed by what every role says alike."""
    algorithm = body.algorithm or Algorithm()
    if algorithm.id or algorithm.subscription_id or algorithm.item_version_id:
        raise Invalid(
            "algorithm.id and algorithm.subscription_id name algorithms kept by algorithm management, which "
            "is not offered here; use algorithm.command, or algorithm.code_dir with algorithm.boot_file"
        )
    if body.tasks:
        algorithm = _joined(algorithm, body.tasks)
    _check_runnable(algorithm)
    return algorithm


def _joined(algorithm: Algorithm, tasks: Sequence[RoleTask]) -> Algorithm:
    said = [task.algorithm or TaskAlgorithm() for task in tasks]
    configs = [item.job_config or TaskJobConfig() for item in said]
    return msgspec.structs.replace(
        algorithm,
        code_dir=_agreed("code_dir", algorithm.code_dir, (item.code_dir for item in said)),
        boot_file=_agreed("boot_file", algorithm.boot_file, (item.boot_file for item in said)),
        local_code_dir=_agreed("local_code_dir", algorithm.local_code_dir, (i.local_code_dir for i in said)),
        working_dir=_agreed("working_dir", algorithm.working_dir, (item.working_dir for item in said)),
        environments=_agreed("environments", algorithm.environments, (item.environments for item in said)),
        inputs=_agreed("inputs", algorithm.inputs, (*(i.inputs for i in said), *(c.inputs for c in configs))),
        outputs=_agreed(
            "outputs", algorithm.outputs, (*(i.outputs for i in said), *(c.outputs for c in configs))
        ),
        parameters=_agreed("parameters", algorithm.parameters, (item.parameters for item in configs)),
    )


def _agreed(field: str, own: T | None, others: Iterable[T | None]) -> T | None:
    """Return the one value that is given; two different ones cannot be had in one job."""
    given = [value for value in (own, *others) if value]
    if any(value != given[0] for value in given):
        raise Invalid(
            f"tasks[].algorithm.{field} differs between roles; all roles of a job run the same algorithm: "
            "give it once, and let the command look at MA_TASK_NAME to tell the roles apart"
        )
    return given[0] if given else own


def _check_runnable(algorithm: Algorithm) -> None:
    if algorithm.command and algorithm.boot_file:
        raise Invalid("give either algorithm.command or algorithm.boot_file, not both")
    if algorithm.boot_file and not algorithm.code_dir:
        raise Invalid("algorithm.boot_file needs algorithm.code_dir, the directory it lies in")
    if not algorithm.command and not algorithm.boot_file:
        raise Invalid("say what to run: algorithm.command, or algorithm.code_dir with algorithm.boot_file")


def _roles(body: CreateJobBody, catalog: Catalog) -> tuple[Role, ...]:
    resource = (body.spec.resource if body.spec else None) or Resource()
    if not body.tasks:
        return (_role("worker", resource, catalog),)
    roles = []
    for task in body.tasks:
        own = task.task_resource or TaskResource()
        sized = msgspec.structs.replace(
            resource, flavor_id=own.flavor_id or resource.flavor_id, node_count=own.node_count
        )
        roles.append(_role(task.role or "worker", sized, catalog, image=_image(task)))
    names = [role.name for role in roles]
    if len(set(names)) < len(names):
        raise Invalid("tasks[].role must differ from role to role")
    return tuple(roles)


def _role(name: str, resource: Resource, catalog: Catalog, *, image: str | None = None) -> Role:
    flavor, resources = resources_for(
        resource.flavor_id or None, resource.main_container_customized_flavor, catalog
    )
    return Role(
        name=name, count=resource.node_count or 1, resources=resources, flavor_id=flavor.id, image=image
    )


def _image(task: RoleTask) -> str | None:
    algorithm = task.algorithm or TaskAlgorithm()
    config = algorithm.job_config or TaskJobConfig()
    return next((e.image_url for e in (algorithm.engine, config.engine) if e and e.image_url), None)


def _boot_file(algorithm: Algorithm) -> str | None:
    """Return the boot file as a path below code_dir; it may be given whole or already relative."""
    boot, code = _url(algorithm.boot_file), _url(algorithm.code_dir)
    if boot is None or code is None:
        return None
    if "://" in boot:
        base = code.rstrip("/") + "/"
        if not boot.startswith(base):
            raise Invalid("algorithm.boot_file must lie below algorithm.code_dir")
        boot = boot[len(base) :]
    path = posixpath.normpath(boot)
    if path in (".", "..") or path.startswith("../") or boot.endswith("/"):
        raise Invalid("algorithm.boot_file must name a file below algorithm.code_dir")
    return path


def _url(given: str | None) -> str | None:
    """Return a place in the object store as obs://bucket/key; the vendor also writes /bucket/key."""
    if not given:
        return None
    return f"obs:/{given}" if given.startswith("/") and not given.startswith("//") else given


def _channel(item: Input | Output, field: str) -> Channel:
    access = one_of(f"{field}.access_method", item.access_method or "parameter", ACCESS_METHODS)
    url = _remote_url(item)
    if url is None:
        raise Invalid(f"{field}.remote.obs.obs_url is missing")
    if access == "env" and not item.name.replace("_", "a").isalnum():
        raise Invalid(f"{field}.name must be letters, digits and underscores when access_method is env")
    return Channel(name=item.name, url=url, local_dir=item.local_dir or None, access=Access(access))


def _remote_url(item: Input | Output) -> str | None:
    remote = item.remote
    if remote is None:
        return None
    if remote.obs and remote.obs.obs_url:
        return _url(remote.obs.obs_url)
    if isinstance(remote, InputRemote) and remote.dataset:
        return _url(remote.dataset.obs_url)
    return None


def _runtime(engine: Engine | None) -> RuntimeChoice:
    if engine is None:
        return RuntimeChoice()
    return RuntimeChoice(
        engine_id=engine.engine_id or None,
        engine_name=engine.engine_name or None,
        engine_version=engine.engine_version or None,
        image=engine.image_url or None,
    )


def _pool_id(body: CreateJobBody) -> str:
    resource = body.spec.resource if body.spec else None
    roles = [task.task_resource.pool_id for task in body.tasks or () if task.task_resource]
    given = [pool for pool in (resource.pool_id if resource else None, *roles) if pool]
    if any(pool != given[0] for pool in given):
        raise Invalid("tasks[].task_resource.pool_id differs between roles; a job runs in one pool")
    return given[0] if given else DEFAULT_POOL


def _max_seconds(spec: JobSpecBody) -> int | None:
    if spec.auto_stop is None or spec.auto_stop.duration is None:
        return None
    one_of("spec.auto_stop.time_unit", spec.auto_stop.time_unit or "HOURS", TIME_UNITS)
    return spec.auto_stop.duration * HOUR_SECONDS


def _log_patterns(algorithm: Algorithm) -> tuple[tuple[str, str], ...]:
    """Return the numbers that a search looks for in logs: every job with such a policy has them measured."""
    search = algorithm.policies.auto_search if algorithm.policies else None
    patterns: dict[str, str] = {}
    for i, item in enumerate((search.reward_attrs if search else None) or ()):
        field = f"algorithm.policies.auto_search.reward_attrs[{i}]"
        if not item.name or not item.regex:
            continue
        if len(item.name) > REWARD_NAME_CHARS_MAX or not item.name.isprintable():
            raise Invalid(f"{field}.name must be at most {REWARD_NAME_CHARS_MAX} printable characters")
        try:
            re.compile(item.regex)
        except (re.error, RecursionError, OverflowError) as error:
            raise Invalid(f"{field}.regex is not a regular expression: {error}") from None
        patterns[item.name] = item.regex
    return tuple(patterns.items())


def _metric_source(item: CustomMetric, field: str) -> MetricSource:
    if item.exec_ and item.exec_.command:
        return MetricSource(command=tuple(item.exec_.command))
    if item.http_get is None or not item.http_get.path or item.http_get.port is None:
        raise Invalid(f"{field} needs exec.command, or http_get with both path and port")
    return MetricSource(path=item.http_get.path, port=item.http_get.port)
