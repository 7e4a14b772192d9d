"""Knows the bodies of CreateJob and UpdateJob; refuses to know what any of it means.

Optional fields take null as absent, and the SDK's habitual empty arrays are fine. Objects that Trackside
does not act on are kept as they came. Fields the vendor may add later are passed over.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

PODS_MAX = 1024
JOB_SPECS_MAX = 32
MINUTES_MAX = 60 * 24 * 365 * 10
SOURCES_MAX = 20

JOB_TYPES = (
    "TFJob",
    "PyTorchJob",
    "MPIJob",
    "XGBoostJob",
    "OneFlowJob",
    "ElasticBatchJob",
    "SlurmJob",
    "RayJob",
    "DataJuicerJob",
)
RESTART_POLICIES = ("Always", "Never", "OnFailure", "ExitCode")
SUCCESS_POLICIES = ("ChiefWorker", "AllWorkers")
ACCESSIBILITIES = ("PUBLIC", "PRIVATE")
MOUNT_ACCESSES = ("RO", "RW")

Text = Annotated[str, Meta(max_length=4096)]
Quantity = Annotated[str, Meta(max_length=64)]
Command = Annotated[str, Meta(max_length=32_000)]
DisplayName = Annotated[
    str,
    Meta(max_length=256, description="1 to 256 letters, digits, underscores, dots and hyphens."),
]
Description = Annotated[str, Meta(max_length=1024)]
WorkspaceId = Annotated[str, Meta(max_length=64)]
PodCount = Annotated[int, Meta(ge=1, le=PODS_MAX)]
Priority = Annotated[int, Meta(ge=1, le=9)]
Minutes = Annotated[int, Meta(ge=1, le=MINUTES_MAX)]
EnvironmentName = Annotated[str, Meta(max_length=8192)]
EnvironmentValue = Annotated[str, Meta(max_length=4096)]
Environments = Annotated[dict[EnvironmentName, EnvironmentValue], Meta(max_length=100)]
Kept = dict[str, Any]  # given back as it came


class Wire(Struct, omit_defaults=True, rename="pascal"):
    """A JSON object of the dialect; what is None is left out."""


class ResourceConfig(Wire):
    """Size a pod freely: cores, memory such as 4Gi, cards."""

    cpu: Quantity | None = field(default=None, name="CPU")
    gpu: Quantity | None = field(default=None, name="GPU")
    gpu_type: Text | None = field(default=None, name="GPUType")
    memory: Quantity | None = None
    shared_memory: Quantity | None = None


class JobSpecBody(Wire):
    """Ask for the pods of one role."""

    type: Text | None = None
    pod_count: PodCount | None = None
    image: Text | None = None
    ecs_spec: Text | None = None
    resource_config: ResourceConfig | None = None
    restart_policy: Text | None = None
    user_command: Command | None = None
    is_chief: bool | None = None
    is_cheif: bool | None = None  # the vendor's own misspelling, still sent by old clients
    use_spot_instance: bool | None = None
    quota_id: Text | None = None
    driver: Text | None = None
    oversold_type: Text | None = None
    consider_in_success_policy: bool | None = None
    image_config: Kept | None = None
    extra_pod_spec: Kept | None = None
    spot_spec: Kept | None = None
    assign_node_spec: Kept | None = None
    auto_scaling_spec: Kept | None = None
    service_spec: Kept | None = None
    system_disk: Kept | None = None
    hyper_node_scheduling_config: Kept | None = None
    startup_dependencies: list[Kept] | None = None
    local_mount_specs: list[Kept] | None = None
    elastic_spot_specs: list[Kept] | None = None


class DataSource(Wire):
    """Name data to be had at a path."""

    uri: Text | None = None
    mount_path: Text | None = None
    mount_access: Text | None = None
    data_source_id: Text | None = None
    data_source_version: Text | None = None
    access_point_id: Text | None = None
    enable_cache: bool | None = None
    options: Text | None = None
    role_arn: Text | None = None
    role_chain: Text | None = None


class CodeSource(Wire):
    """Name code of the vendor's code management."""

    code_source_id: Text | None = None
    branch: Text | None = None
    commit: Text | None = None
    mount_path: Text | None = None
    is_shared_mount_path: bool | None = None


class CustomEnv(Wire):
    """Set one environment variable."""

    key: EnvironmentName | None = None
    value: EnvironmentValue | None = None
    visible: Text | None = None


class UserVpc(Wire):
    """Name a network of the cloud."""

    default_route: Text | None = None
    extended_cidrs: list[Text] | None = field(default=None, name="ExtendedCIDRs")
    security_group_id: Text | None = None
    switch_id: Text | None = None
    vpc_id: Text | None = None


class CreateJobBody(Wire):
    """Ask for a job. What is required may come from the template instead."""

    display_name: DisplayName | None = None
    job_type: Text | None = None
    user_command: Command | None = None
    job_specs: Annotated[list[JobSpecBody], Meta(max_length=JOB_SPECS_MAX)] | None = None
    accessibility: Text | None = None
    code_source: CodeSource | None = None
    credential_config: Kept | None = None
    custom_envs: Annotated[list[CustomEnv], Meta(max_length=100)] | None = None
    data_sources: Annotated[list[DataSource], Meta(max_length=SOURCES_MAX)] | None = None
    debugger_config_content: Text | None = None
    description: Description | None = None
    elastic_spec: Kept | None = None
    envs: Environments | None = None
    job_max_running_time_minutes: Minutes | None = None
    options: Text | None = None
    priority: Priority | None = None
    resource_id: WorkspaceId | None = None
    scheduling_strategy: Text | None = None
    settings: Kept | None = None
    success_policy: Text | None = None
    template_id: Text | None = None
    template_version: Annotated[int, Meta(ge=1)] | None = None
    thirdparty_lib_dir: Text | None = None
    thirdparty_libs: Annotated[list[Text], Meta(max_length=200)] | None = None
    user_vpc: UserVpc | None = None
    workspace_id: WorkspaceId | None = None


class UpdateJobBody(Wire):
    """Change a job."""

    accessibility: Text | None = None
    description: Description | None = None
    job_specs: Annotated[list[JobSpecBody], Meta(max_length=JOB_SPECS_MAX)] | None = None
    priority: Priority | None = None
    user_command: Command | None = None
