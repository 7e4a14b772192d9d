"""Knows the answers of the dialect, field by field; refuses to know where their content comes from.

Fields without a default are always there, zero included; the others are left out when there is nothing.
"""

from msgspec import field

from trackside.api.modelarts_v2.wire_algorithm import (
    Engine,
    Input,
    Output,
    Parameter,
    Policies,
    Summary,
    Wire,
)
from trackside.api.modelarts_v2.wire_create import (
    AssetModel,
    AutoStop,
    CustomizedFlavor,
    CustomMetric,
    Endpoints,
    ExperimentReference,
    FineTuneConfig,
    LogExportConfig,
    LogExportPath,
    Notification,
    OutputModel,
    Retention,
    SchedulePolicy,
    TaskJobConfig,
    TaskLogExportPath,
    Volume,
)


class JobMetadataAnswer(Wire):
    """Say what the job is called and whose it is."""

    id: str
    name: str
    workspace_id: str
    description: str
    create_time: int  # ms
    user_name: str
    annotations: dict[str, str]
    training_experiment_reference: ExperimentReference | None = None


class TaskStatus(Wire):
    """Say how a task ended."""

    task: str
    exit_code: int | None = None
    message: str | None = None


class RecoverRecord(Wire, kw_only=True):
    """One try to bring an attempt back; seconds. There is no recover_end_at while it goes on."""

    recover_start_at: int  # when it went wrong
    recover_end_at: int | None = None
    recover: str
    fault_scenario: str
    reason: str
    related_task: str | None = None
    recover_result: str


class RunningRecord(Wire, kw_only=True):
    """One attempt; seconds. There is no end_at while it runs."""

    start_at: int
    end_at: int | None = None
    xpu_start_at: int | None = None  # when the first task with cards began
    start_type: str
    end_reason: str | None = None
    end_related_task: str | None = None
    end_recover: str | None = None
    end_recover_before_downgrade: str | None = None
    recover_records: list[RecoverRecord] | None = None


class TaskPlace(Wire, kw_only=True):
    """Say where a task runs or ran."""

    task: str
    ip: str | None = None
    host_ip: str | None = None
    schedule_count: int


class JobStatus(Wire):
    """Say where the job stands."""

    phase: str
    secondary_phase: str
    duration: int  # ms of running
    start_time: int  # ms; 0 before it ran
    node_count_metrics: list[tuple[int, int]]
    tasks: list[str]
    task_statuses: list[TaskStatus]
    running_records: list[RunningRecord]
    task_ips: list[TaskPlace]


class AlgorithmAnswer(Wire):
    """Say what runs."""

    id: str | None = None
    name: str | None = None
    subscription_id: str | None = None
    item_version_id: str | None = None
    code_dir: str | None = None
    boot_file: str | None = None
    autosearch_config_path: str | None = None
    autosearch_framework_path: str | None = None
    command: str | None = None
    parameters: list[Parameter] | None = None
    policies: Policies | None = None
    inputs: list[Input] | None = None
    outputs: list[Output] | None = None
    engine: Engine | None = None
    local_code_dir: str | None = None
    working_dir: str | None = None
    environments: list[dict[str, str]] | None = None  # a list here, a map in the request: the vendor's way
    summary: Summary | None = None


class FlavorCpu(Wire):
    """The cores of a flavor."""

    arch: str
    core_num: int


class FlavorGpu(Wire):
    """The GPUs of a flavor."""

    unit_num: int
    product_name: str | None = None


class FlavorNpu(Wire):
    """The NPUs of a flavor; the vendor counts them in text."""

    unit_num: str
    product_name: str | None = None


class FlavorMemory(Wire):
    """The memory of a flavor."""

    size: int
    unit: str


class FlavorInfo(Wire, kw_only=True):
    """What a flavor is made of."""

    max_num: int
    cpu: FlavorCpu
    gpu: FlavorGpu | None = None
    npu: FlavorNpu | None = None
    memory: FlavorMemory


class FlavorDetail(Wire):
    """Describe the flavor a job asked for."""

    flavor_type: str
    flavor_info: FlavorInfo


class AllocatedResources(Wire):
    """Say what each task of the job is given; memory in GB."""

    cpu_arch: str
    cpu_core_num: float
    mem_size: float
    accelerator_num: float
    accelerator_type: str | None = None


class ResourceAnswer(Wire, kw_only=True):
    """Say what the job asked for and what it is given."""

    policy: str
    flavor_id: str | None = None
    flavor_name: str | None = None
    node_count: int
    pool_id: str | None = None
    pool_group_id: str | None = None
    flavor_detail: FlavorDetail | None = None
    main_container_allocated_resources: AllocatedResources
    main_container_customized_flavor: CustomizedFlavor | None = None


class JobSpecAnswer(Wire):
    """Say what the job needs and how it is treated."""

    resource: ResourceAnswer
    volumes: list[Volume] | None = None
    log_export_path: LogExportPath | None = None
    auto_stop: AutoStop | None = None
    retention: Retention | None = None
    schedule_policy: SchedulePolicy | None = None
    log_export_config: LogExportConfig | None = None
    notification: Notification | None = None
    custom_metrics: list[CustomMetric] | None = None
    output_model: OutputModel | None = None
    asset_model: AssetModel | None = None
    asset_id: str | None = None
    reserved_time: AutoStop | None = None


class TaskAlgorithmAnswer(Wire):
    """Say what a role of a heterogeneous job runs."""

    job_config: TaskJobConfig | None = None
    code_dir: str | None = None
    boot_file: str | None = None
    engine: Engine | None = None
    # The vendor's response has one object where its request has a list; several do not fit into one.
    inputs: Input | list[Input] | None = None
    outputs: Output | list[Output] | None = None
    local_code_dir: str | None = None
    working_dir: str | None = None
    environments: dict[str, str] | None = None


class TaskResourceAnswer(Wire, kw_only=True):
    """Say what a role of a heterogeneous job is given."""

    flavor_id: str | None = None
    flavor_name: str | None = None
    node_count: int
    pool_id: str | None = None
    max_num: int | None = None
    flavor_type: str | None = None
    flavor_info: FlavorInfo | None = None


class RoleTaskAnswer(Wire, kw_only=True):
    """One role of a heterogeneous job."""

    role: str
    algorithm: TaskAlgorithmAnswer | None = None
    task_resource: TaskResourceAnswer
    log_export_path: TaskLogExportPath | None = None


class TrainingJob(Wire, kw_only=True):
    """A job in full: the answer of details, create and stop, and an item of a list."""

    kind: str
    metadata: JobMetadataAnswer
    status: JobStatus
    algorithm: AlgorithmAnswer | None = None
    tasks: list[RoleTaskAnswer] | None = None
    spec: JobSpecAnswer
    endpoints: Endpoints | None = None
    train_type: str | None = None
    ftjob_config: FineTuneConfig | None = None


class JobPageHead(Wire):
    """What a page of jobs says before its items."""

    total: int
    count: int
    limit: int
    offset: int
    sort_by: str
    order: str
    group_by: str
    workspace_id: str
    ai_project: str
    train_type: str | None = None


class TrainingJobPage(JobPageHead, kw_only=True):
    """One page of jobs: total counts all of the project, count those that match."""

    items: list[TrainingJob]


class MetricSeries(Wire):
    """One metric of a task: a mean per minute, -1 where nothing was measured."""

    metric: str
    value: list[float]


class TaskMetrics(Wire):
    """The metrics of a task."""

    metrics: list[MetricSeries]


class LogPreview(Wire):
    """The newest part of a log."""

    content: str
    current_size: int
    full_size: int


class LogLines(Wire):
    """Some lines of a log."""

    start_line: str
    end_line: str
    lines: int
    content: str


class LogLink(Wire):
    """Where a log can be downloaded."""

    obs_url: str


class JobEvent(Wire):
    """One dated sentence about a job."""

    message: str
    level: str
    time: str
    source: str


class EventCategory(Wire):
    """A kind of event, and whether somebody can be told of it."""

    id: str
    name: str
    description: str
    notification: bool


class EventCategories(Wire):
    """All kinds of events."""

    event_categories: list[EventCategory] = field(name="event-categories")


class EventPageAnswer(Wire, kw_only=True):
    """One page of events; total counts those that match."""

    total: int
    limit: int
    offset: int
    order: str
    start_time: str | None = None
    end_time: str | None = None
    events: list[JobEvent]


class SubStage(Wire):
    """One step within a stage."""

    name: str
    en_message: str
    zh_message: str
    create_time: str


class Stage(Wire, kw_only=True):
    """One stage of an attempt."""

    job_id: str
    name: str
    en_message: str
    zh_message: str
    start_time: str
    end_time: str | None = None
    stage_order: int
    sub_stages: list[SubStage]


class StageRecord(Wire):
    """The stages of one attempt."""

    record_order: int
    stages: list[Stage]


class StageRecords(Wire):
    """The stages of every attempt."""

    total_count: int
    running_records: list[StageRecord]


class FlavorAnswer(Wire):
    """One flavor on offer."""

    flavor_id: str
    flavor_name: str
    support_engines: str  # a JSON list in text: the vendor's way
    support_groups: str
    max_num: int
    flavor_type: str
    flavor_info: FlavorInfo
    attributes: dict[str, str]


class FlavorList(Wire):
    """The flavors on offer."""

    total_count: int
    flavors: list[FlavorAnswer]


class EngineImages(Wire):
    """The images an engine stands for."""

    cpu_image_url: str
    gpu_image_url: str


class EngineAnswer(Wire):
    """One engine on offer."""

    engine_id: str
    engine_name: str
    engine_version: str
    v1_compatible: bool
    image_info: EngineImages | None = None


class EngineList(Wire):
    """The engines on offer."""

    total: int
    items: list[EngineAnswer]


class NameCheck(Wire):
    """Say whether a name is taken."""

    is_duplicate: bool
