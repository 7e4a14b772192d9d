"""Knows the body of CreateTrainingJob but for its algorithm; refuses to know what any of it means."""

from typing import Annotated

from msgspec import Meta, field

from trackside.api.modelarts_v2.wire_algorithm import (
    Algorithm,
    Engine,
    Environments,
    Input,
    Output,
    Parameter,
    Text,
    Wire,
)

NODES_MAX = 1024
JOB_KINDS = ("job", "hetero_job")  # the others of the vendor's list need services Trackside does not have
TIME_UNITS = ("HOURS",)
HOURS_MAX = 24 * 365

JobName = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[0-9A-Za-z_-]+$")]
Description = Annotated[str, Meta(max_length=256)]
WorkspaceId = Annotated[str, Meta(max_length=64)]
RoleName = Annotated[str, Meta(min_length=1, max_length=31, pattern="^[A-Za-z][0-9A-Za-z_-]*$")]
NodeCount = Annotated[int, Meta(ge=1, le=NODES_MAX)]
Hours = Annotated[int, Meta(ge=1, le=HOURS_MAX)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Priority = Annotated[int, Meta(ge=0, le=3)]
AnnotationKey = Annotated[str, Meta(min_length=1, max_length=256)]
Annotations = Annotated[dict[AnnotationKey, Text], Meta(max_length=100)]


class ExperimentReference(Wire):
    """Name the experiment a job belongs to."""

    id: Text | None = None
    name: Annotated[str, Meta(max_length=64)] | None = None
    description: Description | None = None
    serial_number: Text | None = None


class JobMetadata(Wire):
    """Say what the job is called."""

    name: JobName
    workspace_id: WorkspaceId | None = None
    description: Description | None = None
    annotations: Annotations | None = None
    training_experiment_reference: ExperimentReference | None = None


class TaskJobConfig(Wire):
    """Hold what a role of a heterogeneous job says of its algorithm."""

    parameters: Annotated[list[Parameter], Meta(max_length=200)] | None = None
    inputs: Annotated[list[Input], Meta(max_length=50)] | None = None
    outputs: Annotated[list[Output], Meta(max_length=50)] | None = None
    engine: Engine | None = None


class TaskAlgorithm(Wire):
    """Say what a role of a heterogeneous job runs."""

    job_config: TaskJobConfig | None = None
    code_dir: Text | None = None
    boot_file: Text | None = None
    engine: Engine | None = None
    inputs: Annotated[list[Input], Meta(max_length=50)] | None = None
    outputs: Annotated[list[Output], Meta(max_length=50)] | None = None
    local_code_dir: Text | None = None
    working_dir: Text | None = None
    environments: Environments | None = None


class TaskResource(Wire):
    """Size a role of a heterogeneous job."""

    flavor_id: Text | None = None
    node_count: NodeCount | None = None
    pool_id: Text | None = None


class TaskLogExportPath(Wire):
    """Say where a role's logs are exported."""

    obs_url: Text | None = None


class RoleTask(Wire):
    """One role of a heterogeneous job."""

    role: RoleName | None = None
    algorithm: TaskAlgorithm | None = None
    task_resource: TaskResource | None = None
    log_export_path: TaskLogExportPath | None = None


class CustomizedFlavor(Wire):
    """Size a task freely; memory in GB."""

    cpu_core_num: Annotated[float, Meta(gt=0, le=100_000)] | None = None
    mem_size: Annotated[float, Meta(gt=0, le=10_000_000)] | None = None
    accelerator_num: Annotated[float, Meta(ge=0, le=1024)] | None = None


class Resource(Wire):
    """Size the job: a flavor or free sizes, and how many nodes."""

    flavor_id: Text | None = None
    node_count: NodeCount | None = None
    pool_id: Text | None = None
    pool_group_id: Text | None = None
    main_container_customized_flavor: CustomizedFlavor | None = None


class NfsVolume(Wire):
    """Name a shared directory."""

    nfs_server_path: Text | None = None
    local_path: Text | None = None
    read_only: bool | None = None


class PfsVolume(Wire):
    """Name a parallel file system."""

    pfs_path: Text | None = None
    local_path: Text | None = None


class ObsVolume(Wire):
    """Name a place in the object store to mount."""

    obs_path: Text | None = None
    local_path: Text | None = None


class Volume(Wire):
    """One volume: nfs, pfs or obs."""

    nfs: NfsVolume | None = None
    pfs: PfsVolume | None = None
    obs: ObsVolume | None = None


class LogExportPath(Wire):
    """Say where logs are exported."""

    obs_url: Text | None = None
    host_path: Text | None = None


class AutoStop(Wire):
    """Stop the job when it has run this long."""

    time_unit: Annotated[str, Meta(extra_json_schema={"enum": list(TIME_UNITS)})] | None = None
    duration: Hours | None = None


class Retention(Wire):
    """Say whether the job's record ages out."""

    policy: Text | None = None


class SelectorRequirement(Wire):
    """One condition on nodes."""

    key: Text | None = None
    operator: Text | None = None
    values: list[Text] | None = None


class SelectorTerm(Wire):
    """Conditions on nodes that hold together."""

    match_expressions: list[SelectorRequirement] | None = field(default=None, name="matchExpressions")
    match_fields: list[SelectorRequirement] | None = field(default=None, name="matchFields")


class NodeSelector(Wire):
    """Terms of which one must hold."""

    node_selector_terms: list[SelectorTerm] | None = field(default=None, name="nodeSelectorTerms")


class RequiredAffinity(Wire):
    """Say which nodes the job must have."""

    affinity_type: Text | None = None
    job_level: Text | None = None
    affinity_group_size: int | None = None
    affinity_group_level: Text | None = None
    node_affinity: NodeSelector | None = None


class PreferredTerm(Wire):
    """Say which nodes the job would rather have."""

    weight: Annotated[int, Meta(ge=1, le=100)] | None = None
    preference: SelectorTerm | None = None


class PreferredAffinity(Wire):
    """Hold preferences among nodes."""

    node_affinity: list[PreferredTerm] | None = None


class SchedulePolicy(Wire):
    """Say how the job queues."""

    required_affinity: RequiredAffinity | None = None
    preferred_affinity: PreferredAffinity | None = None
    priority: Priority | None = None
    preemptible: bool | None = None


class LogExportConfig(Wire):
    """Say how logs are exported."""

    version: Text | None = None
    rotation_enabled: bool | None = None


class Notification(Wire):
    """Say who is told of the job's events."""

    topic_urn: Text | None = None
    events: list[Text] | None = None


class ExecMetric(Wire):
    """Read metrics from a command's output."""

    command: list[Text] | None = None


class HttpMetric(Wire):
    """Read metrics from a port of the task."""

    path: Text | None = None
    port: Port | None = None


class CustomMetric(Wire):
    """Say where the job's own metrics are read."""

    exec_: ExecMetric | None = field(default=None, name="exec")
    http_get: HttpMetric | None = None


class OutputModelObs(Wire):
    """Say where a model is kept."""

    obs_path: Text | None = None
    local_path: Text | None = None


class OutputModel(Wire):
    """Describe the model a job makes."""

    obs: OutputModelObs | None = None


class AssetModel(Wire):
    """Describe the model asset a job makes."""

    id: Text | None = None
    name: Text | None = None
    code: Text | None = None
    version: Text | None = None
    location: Text | None = None
    desc: Text | None = None
    series: Text | None = None
    type: Text | None = None
    model_desc: Text | None = None
    parent_asset_id: Text | None = None


class JobSpecBody(Wire):
    """Say what the job needs and how it is treated."""

    resource: Resource | None = None
    volumes: Annotated[list[Volume], Meta(max_length=100)] | None = None
    log_export_path: LogExportPath | None = None
    auto_stop: AutoStop | None = None
    retention: Retention | None = None
    schedule_policy: SchedulePolicy | None = None
    log_export_config: LogExportConfig | None = None
    notification: Notification | None = None
    custom_metrics: Annotated[list[CustomMetric], Meta(max_length=32)] | None = None
    output_model: OutputModel | None = None
    asset_model: AssetModel | None = None
    asset_id: Text | None = None
    reserved_time: AutoStop | None = None


class Ssh(Wire):
    """Name the key pairs that may log in."""

    key_pair_names: list[Text] | None = None


class Endpoints(Wire):
    """Say how the job can be reached."""

    ssh: Ssh | None = None


class FineTuneVariable(Wire):
    """One variable of a fine-tuning job."""

    label: Text | None = None
    des: Text | None = None
    env_name: Text | None = None
    env_type: Text | None = None
    value: Text | None = None
    modifiable: bool | None = None
    displayable: bool | None = None
    used_steps: list[Text] | None = None


class FineTuneEnv(Wire):
    """The variables of a fine-tuning job."""

    envs: list[FineTuneVariable] | None = None


class FineTuneCheckpoint(Wire):
    """How a fine-tuning job keeps checkpoints."""

    checkpoint_id: Text | None = None
    save_checkpoints_max: int | None = None
    skipped_steps: int | None = None
    restore_training: int | None = None


class FineTuneConfig(Wire):
    """What a fine-tuning job says of itself."""

    ft_job_uuid: Text | None = None
    ft_train_type: Text | None = None
    model_type: Text | None = None
    train_output_path: Text | None = None
    train_process: float | None = None
    checkpoint_id: Text | None = None
    task_env: FineTuneEnv | None = None
    checkpoint_config: FineTuneCheckpoint | None = None


class CreateJobBody(Wire, kw_only=True):
    """Ask for a training job."""

    kind: Annotated[str, Meta(extra_json_schema={"enum": list(JOB_KINDS)})] | None = None
    metadata: JobMetadata
    algorithm: Algorithm | None = None
    tasks: Annotated[list[RoleTask], Meta(max_length=32)] | None = None
    spec: JobSpecBody | None = None
    endpoints: Endpoints | None = None
    train_type: Text | None = None
    ftjob_config: FineTuneConfig | None = None
