"""Knows the answers that tell what a job did, and the small things kept beside jobs."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from trackside.api.pai_dlc.wire_create import Text, Wire, WorkspaceId

TAGS_MAX = 20
TAGGED_MAX = 50
SIGNAL_SCOPES = ("job", "roles", "pods")


class Metric(Wire):
    """The mean of one step."""

    time: int  # milliseconds since the epoch, the start of the step
    value: float


class PodMetric(Wire):
    """What one pod used."""

    pod_id: str
    metrics: list[Metric]


class JobMetrics(Wire):
    """What the pods of a job used."""

    job_id: str
    pod_metrics: list[PodMetric]
    request_id: str


class CmsMetrics(Wire):
    """What a job used, as the monitoring service writes it: the points are JSON text."""

    code: str
    success: bool
    message: str
    data_points: str
    period: str
    request_id: str
    next_token: str | None = None


class ContainerInfo(Wire):
    """Which containers a pod has."""

    main_container: str
    sidecar_containers: list[str]


class PodLogs(Wire):
    """Lines a pod printed."""

    job_id: str
    pod_id: str
    logs: list[str]
    containers: str
    container_info: ContainerInfo
    request_id: str
    pod_uid: str | None = None


class PodEvents(Wire):
    """What happened to a pod."""

    job_id: str
    pod_id: str
    events: list[str]
    request_id: str
    pod_uid: str | None = None


class JobEvents(Wire):
    """What happened to a job."""

    job_id: str
    events: list[str]
    request_id: str


class EcsSpec(Wire):
    """A size on offer."""

    instance_type: str
    cpu: int
    gpu: int
    memory: int  # GiB
    accelerator_type: str
    is_available: bool
    resource_type: str
    payment_types: list[str]
    gpu_type: str | None = None


class EcsSpecList(Wire):
    """The sizes on offer."""

    ecs_specs: list[EcsSpec]
    total_count: int
    request_id: str


class Dashboard(Struct):
    """Where a job can be looked at; the vendor's keys are lower-case here."""

    url: str


class TokenAnswer(Wire):
    """A token that reads one job."""

    token: str
    request_id: str


class SanityCheckItem(Wire):
    """One step of a health check."""

    check_number: int
    phase: str
    status: str


class SanityCheckResult(Wire):
    """The steps of one health check of a job."""

    job_id: str
    sanity_check_result: list[SanityCheckItem]
    request_id: str = field(name="RequestID")


class SanityCheckResults(Wire):
    """All health checks of a job."""

    sanity_check_results: list[list[SanityCheckItem]]
    total_count: int
    request_id: str = field(name="RequestID")


class Done(Wire):
    """It was done."""

    request_id: str


class Tag(Wire):
    """A key and its value."""

    key: Annotated[str, Meta(min_length=1, max_length=128)]
    value: Annotated[str, Meta(max_length=256)] = ""


class TagBody(Wire):
    """Ask for tags on jobs."""

    resource_id: Annotated[list[Text], Meta(max_length=TAGGED_MAX)] | None = None
    resource_type: Text | None = None
    tag: Annotated[list[Tag], Meta(max_length=TAGS_MAX)] | None = None
    region_id: Text | None = None


class SignalTarget(Wire):
    """Say which pods get a signal."""

    scope: Text | None = None
    roles: Annotated[list[Text], Meta(max_length=32)] | None = None
    pod_names: Annotated[list[Text], Meta(max_length=1024)] | None = None


class SignalBody(Wire):
    """Ask for a signal to be sent to pods."""

    signal: Text | None = None
    target: SignalTarget | None = None


class Signal(Wire, kw_only=True):
    """A signal and what became of it."""

    signal_id: str
    signal: str
    status: str
    reason: str
    message: str
    scope: str
    roles: list[str]
    pod_names: list[str]
    gmt_created: str
    gmt_modified: str


class SignalAnswer(Signal, kw_only=True):
    """One signal of a job."""

    job_id: str
    request_id: str


class SignalPage(Wire):
    """Some signals of a job."""

    job_id: str
    signals: list[Signal]
    total_count: int
    page_number: int
    page_size: int
    request_id: str


class TemplateBody(Wire):
    """Ask for a template; the content is the body of a CreateJob, as an object or as JSON text."""

    template_name: Text | None = None
    workspace_id: WorkspaceId | None = None
    content: str | dict[str, Any] | None = None
    constraints: dict[str, Any] | None = None
    description: Text | None = None
    metadata: dict[str, Any] | None = None


class TemplateChange(Wire):
    """Change a template; new content makes a new version."""

    template_name: Text | None = None
    content: str | dict[str, Any] | None = None
    constraints: dict[str, Any] | None = None
    description: Text | None = None
    metadata: dict[str, Any] | None = None
    set_as_default: bool | None = None


class DefaultVersion(Wire):
    """Say which version of a template counts when none is named."""

    version: int | None = None


class TemplateVersion(Wire):
    """One version of a template."""

    version: int
    content: dict[str, Any]
    created_by: str
    gmt_create_time: str
    constraints: dict[str, Any] | None = None


class TemplateHead(Wire, kw_only=True):
    """What all answers about a template tell."""

    template_id: str
    template_name: str
    workspace_id: str
    default_version: int
    user_id: str
    tenant_id: str
    gmt_create_time: str
    gmt_modify_time: str
    modified_by: str
    description: str | None = None
    metadata: dict[str, Any] | None = None
    last_used_time: str | None = None


class TemplateMade(TemplateHead, kw_only=True):
    """A template just made."""

    version: int
    request_id: str


class TemplateAnswer(TemplateHead, kw_only=True):
    """A template with one or all of its versions."""

    versions: list[TemplateVersion]
    total_count: int
    request_id: str


class TemplatePage(Wire):
    """Some templates."""

    job_templates: list[TemplateHead]
    total_count: int
    page_number: int
    page_size: int
    request_id: str


class TemplateChanged(Wire):
    """A template just changed."""

    default_version: int
    gmt_modify_time: str
    request_id: str
    version: int | UnsetType = UNSET
    version_created: bool | UnsetType = UNSET


class TemplateGone(Wire):
    """A template just deleted."""

    template_id: str
    request_id: str
