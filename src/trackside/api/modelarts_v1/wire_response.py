"""Knows the shape of every ModelArts v1 answer; refuses to know where the values come from."""

from msgspec import Struct

from trackside.api.modelarts_v1.wire_request import DataSource, Parameter, Volume

INTERVAL_MINUTES = 1


class Answer(Struct, kw_only=True):
    """What every answer has that is not a refusal."""

    is_success: bool = True


class Created(Answer, kw_only=True):
    """A job or version just made."""

    job_id: int
    job_name: str
    status: int
    create_time: int
    version_id: int
    version_name: str
    resource_id: str


class JobSummary(Struct, kw_only=True):
    """One job in a list: its newest version."""

    job_id: int
    job_name: str
    version_id: int
    status: int
    create_time: int
    duration: int
    job_desc: str
    version_count: int


class JobList(Answer, kw_only=True):
    """One page of jobs."""

    job_total_count: int
    job_count_limit: int
    quotas: int
    jobs: list[JobSummary]


class Sized(Struct, kw_only=True, omit_defaults=True):
    """What a version or a configuration says and is given; what is None is left out."""

    worker_server_num: int | None = None
    app_url: str | None = None
    boot_file_url: str | None = None
    parameter: list[Parameter] | None = None
    data_url: str | None = None
    dataset_id: str | None = None
    dataset_version_id: str | None = None
    data_source: list[DataSource] | None = None
    spec_id: int | None = None
    spec_code: str | None = None
    core: str | None = None
    cpu: str | None = None
    gpu_num: int | None = None
    gpu_type: str | None = None
    npu_num: int | None = None
    engine_type: int | None = None
    engine_name: str | None = None
    engine_id: int | None = None
    engine_version: str | None = None
    model_id: int | None = None
    train_url: str | None = None
    log_url: str | None = None
    user_image_url: str | None = None
    user_command: str | None = None
    volumes: list[Volume] | None = None
    pool_id: str | None = None
    pool_name: str | None = None


class Version(Sized, kw_only=True):
    """Everything about one version but its job and its measurements."""

    version_id: int
    version_name: str
    pre_version_id: int | None = None
    status: int
    create_time: int
    start_time: int | None = None
    duration: int
    resource_id: str
    nas_type: str | None = None
    nas_share_addr: str | None = None
    nas_mount_path: str | None = None
    model_metric_list: str


class SystemMetrics(Struct, kw_only=True, rename="camel"):
    """How much a version used, one value per interval."""

    cpu_usage: list[str]
    mem_usage: list[str]
    gpu_util: list[str]
    gpu_mem_usage: list[str]
    disk_read_rate: list[str]
    disk_write_rate: list[str]
    recv_bytes_rate: list[str]
    send_bytes_rate: list[str]
    interval: int


class ListedVersion(Version, kw_only=True):
    """One version in the list of a job's versions: its measurements are a text that holds JSON."""

    system_metric_list: str


class VersionDetail(Version, kw_only=True):
    """One version, whole: its measurements are an object."""

    is_success: bool | None = None
    job_id: int
    job_name: str
    job_desc: str
    system_metric_list: SystemMetrics


class VersionList(Answer, kw_only=True):
    """The versions of one job."""

    job_id: int
    job_name: str
    job_desc: str
    version_count: int
    versions: list[ListedVersion]


class VersionOverview(Struct, kw_only=True):
    """One version among all of the project."""

    job_id: int
    version_id: int
    version_name: str
    version_desc: str | None
    status: int
    create_time: int
    start_time: int | None
    end_time: int | None
    duration: int
    pool_id: str
    flavor_code: str | None
    npu_num: int
    gpu_num: int


class Overview(Answer, kw_only=True):
    """One page of all versions of the project."""

    total_count: int
    offset: int
    limit: int
    versions: list[VersionOverview]


class LogFiles(Answer, kw_only=True):
    """The names of a version's log files."""

    log_file_list: list[str]


class LogLines(Answer, kw_only=True):
    """Some lines of a log."""

    content: str
    lines: int
    start_line: str
    end_line: str


class Series(Struct, kw_only=True, omit_defaults=True):
    """One metric: texts that hold numbers, "-1" where nothing was measured; `card` where it is per card."""

    metric: str
    value: list[str]
    card: int | None = None


class Statistic(Struct, kw_only=True):
    """The metrics of a container or of a node."""

    metrics: list[Series]
    interval: int = INTERVAL_MINUTES


class ResourceSpec(Struct, kw_only=True):
    """One size that can be asked for."""

    spec_id: int
    core: str
    cpu: str
    gpu_num: int
    gpu_type: str
    npu_num: int
    spec_code: str
    max_num: int
    unit_num: int
    storage: str
    interface_type: int
    no_resource: bool


class ResourceSpecs(Answer, kw_only=True):
    """The sizes on offer."""

    spec_total_count: int
    specs: list[ResourceSpec]


class Engine(Struct, kw_only=True, omit_defaults=True):
    """One engine that can be asked for."""

    engine_type: int | None = None
    engine_id: int
    engine_name: str
    engine_version: str


class Engines(Answer, kw_only=True):
    """The engines on offer."""

    engines: list[Engine]


class ConfigSummary(Struct, kw_only=True, omit_defaults=True):
    """One job configuration in a list."""

    config_name: str
    config_desc: str = ""
    create_time: int
    engine_type: int | None = None
    engine_name: str | None = None
    engine_id: int | None = None
    engine_version: str | None = None
    user_image_url: str | None = None
    user_command: str | None = None


class ConfigList(Answer, kw_only=True):
    """One page of job configurations."""

    config_total_count: int
    configs: list[ConfigSummary]


class ConfigDetail(Sized, kw_only=True):
    """One job configuration, whole."""

    is_success: bool | None = None
    config_name: str
    config_desc: str | None = None
    create_time: int
