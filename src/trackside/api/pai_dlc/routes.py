"""The operations of PAI-DLC that Trackside serves, one row each; everything else is read from here."""

from trackside.api.operation import Operation, Param
from trackside.api.pai_dlc import handlers_jobs as jobs
from trackside.api.pai_dlc import handlers_reports as reports
from trackside.api.pai_dlc import signals, tags, templates
from trackside.api.pai_dlc.checks import PAGE_NUMBER_MAX, PAGE_SIZE_MAX
from trackside.api.pai_dlc.measured import CMS_METRICS, METRIC_TYPES, NAMESPACE, PERIODS
from trackside.api.pai_dlc.phases import STATUSES
from trackside.api.pai_dlc.search import (
    NAME_MODES,
    NUMBER_MAX,
    NUMBER_OF,
    ORDERS,
    OVERSOLD,
    PAYMENT_TYPES,
    SORT_KEYS,
    TIME_FIELDS,
)
from trackside.api.pai_dlc.sizes import ACCELERATOR_TYPES
from trackside.api.pai_dlc.wire_create import ACCESSIBILITIES, JOB_TYPES, CreateJobBody, UpdateJobBody
from trackside.api.pai_dlc.wire_job import JobAnswer, JobDone, JobPageAnswer
from trackside.api.pai_dlc.wire_reports import (
    CmsMetrics,
    Dashboard,
    DefaultVersion,
    Done,
    EcsSpecList,
    JobEvents,
    JobMetrics,
    PodEvents,
    PodLogs,
    SanityCheckResult,
    SanityCheckResults,
    SignalAnswer,
    SignalBody,
    SignalPage,
    TagBody,
    TemplateAnswer,
    TemplateBody,
    TemplateChange,
    TemplateChanged,
    TemplateGone,
    TemplateMade,
    TemplatePage,
    TokenAnswer,
)

_API = "/api/v1"
_JOBS = f"{_API}/jobs"
_JOB = f"{_JOBS}/{{JobId}}"
_POD = f"{_JOB}/pods/{{PodId}}"
_SIGNALS = f"{_JOB}/signals"
_TEMPLATES = f"{_API}/jobtemplates"
_TEMPLATE = f"{_TEMPLATES}/{{TemplateId}}"
_TAGS = f"{_API}/tags"
_TEXT_MAX = 256
_LONG_TEXT_MAX = 4096

_TOKEN = Param(name="Token", max_length=_LONG_TEXT_MAX, description="A token of GetToken for this job.")
_ORDER = Param(name="Order", choices=ORDERS)
_START = Param(name="StartTime", max_length=64, description="UTC, such as 2026-01-31T12:00:00Z.")
_END = Param(name="EndTime", max_length=64, description="UTC; now when absent.")
_PAGE = (
    Param(name="PageNumber", type=int, minimum=1, maximum=PAGE_NUMBER_MAX, description="1 when absent."),
    Param(name="PageSize", type=int, minimum=1, maximum=PAGE_SIZE_MAX),
)


def _text(name: str, description: str = "") -> Param:
    return Param(name=name, max_length=_TEXT_MAX, description=description)


def _long(name: str, description: str = "") -> Param:
    return Param(name=name, max_length=_LONG_TEXT_MAX, description=description)


_LIST_JOBS = (
    *_PAGE,
    _START,
    _END,
    _ORDER,
    Param(name="Status", choices=STATUSES),
    Param(name="JobType", choices=JOB_TYPES),
    _text("DisplayName", "Contained in the name, in any case."),
    Param(name="DisplayNameSearchMode", choices=NAME_MODES),
    _text("JobId"),
    _long("JobIds", "Several, with commas; JobId counts before it."),
    _text("WorkspaceId"),
    Param(name="FromAllWorkspaces", type=bool),
    _text("ResourceId"),
    _long("ResourceIds"),
    _text("ResourceQuotaName", "Contained in the pool's name."),
    Param(name="ShowOwn", type=bool),
    Param(name="SortBy", choices=tuple(SORT_KEYS)),
    Param(name="TimeRangeField", choices=TIME_FIELDS, description="What StartTime and EndTime are about."),
    _long("Tags", "A JSON object of texts."),
    Param(name="Accessibility", choices=ACCESSIBILITIES),
    Param(name="PaymentType", choices=PAYMENT_TYPES),
    _text("UserIdForFilter"),
    _text("Username", "Contained in the owner's name."),
    _text("BusinessUserId"),
    _text("Caller"),
    _text("PipelineId"),
    _text("TemplateId"),
    _text("Description", "Contained in the description."),
    _text("ImageSearch", "Contained in an image."),
    _text("UserCommandSearch", "Contained in a command."),
    _text("ReasonSearch", "Contained in the reason."),
    Param(name="EnableAssignNode", type=bool),
    Param(name="OversoldInfo", choices=OVERSOLD),
    Param(name="NumericRangeField", choices=tuple(NUMBER_OF)),
    Param(name="NumericRangeMin", type=int, minimum=0, maximum=NUMBER_MAX),
    Param(name="NumericRangeMax", type=int, minimum=0, maximum=NUMBER_MAX),
)

_ON_JOBS: tuple[Operation, ...] = (
    Operation(
        name="CreateJob",
        method="POST",
        path=_JOBS,
        action="paidlc:CreateJob",
        handler=jobs.create_job,
        summary="Create a job",
        body=CreateJobBody,
        response=JobDone,
    ),
    Operation(
        name="ListJobs",
        method="GET",
        path=_JOBS,
        action="paidlc:ListJobs",
        handler=jobs.list_jobs,
        summary="List the jobs that match",
        response=JobPageAnswer,
        query=_LIST_JOBS,
    ),
    Operation(
        name="GetJob",
        method="GET",
        path=_JOB,
        action="paidlc:GetJob",
        handler=jobs.get_job,
        prompt=True,
        summary="Show everything about a job",
        response=JobAnswer,
        query=(Param(name="NeedDetail", type=bool, description="true when absent."), _TOKEN),
    ),
    Operation(
        name="UpdateJob",
        method="PUT",
        path=_JOB,
        action="paidlc:UpdateJob",
        handler=jobs.update_job,
        summary="Change a job's visibility, description or priority",
        body=UpdateJobBody,
        response=JobDone,
    ),
    Operation(
        name="DeleteJob",
        method="DELETE",
        path=_JOB,
        action="paidlc:DeleteJob",
        handler=jobs.delete_job,
        summary="Delete a job",
        response=JobDone,
    ),
    Operation(
        name="StopJob",
        method="POST",
        path=f"{_JOB}/stop",
        action="paidlc:StopJob",
        handler=jobs.stop_job,
        summary="Stop a job",
        response=JobDone,
    ),
    Operation(
        name="TagResources",
        method="POST",
        path=_TAGS,
        action="paidlc:TagResources",
        handler=tags.tag_resources,
        summary="Put tags on up to fifty jobs",
        body=TagBody,
        response=Done,
    ),
    Operation(
        name="UntagResources",
        method="DELETE",
        path=_TAGS,
        action="paidlc:UntagResources",
        handler=tags.untag_resources,
        summary="Take tags off jobs",
        response=Done,
        query=(
            Param(name="All", type=bool),
            _long("ResourceId", "A JSON list of job ids."),
            _text("ResourceType", "Job."),
            _long("TagKey", "A JSON list of keys."),
        ),
    ),
)

_REPORTS: tuple[Operation, ...] = (
    Operation(
        name="GetJobMetrics",
        method="GET",
        path=f"{_JOB}/metrics",
        action="paidlc:GetJobMetrics",
        handler=reports.get_job_metrics,
        prompt=True,
        summary="Show how much every pod of a job used",
        response=JobMetrics,
        query=(
            _text("MetricType", f"Required; one of {', '.join(METRIC_TYPES)}."),
            _START,
            _END,
            Param(name="TimeStep", max_length=64, description="5, 5m, 30s or 1h; 5 minutes when absent."),
            _TOKEN,
        ),
    ),
    Operation(
        name="GetMetrics",
        method="GET",
        path=f"{_API}/cms/metrics",
        action="paidlc:GetMetrics",
        handler=reports.get_metrics,
        summary="Show how much a job used, in the words of the monitoring service",
        response=CmsMetrics,
        query=(
            _text("JobId", "Or jobId in Dimensions."),
            Param(name="Namespace", choices=(NAMESPACE,)),
            _text("MetricName", f"Required; one of {', '.join(CMS_METRICS)}."),
            _long("Dimensions", "JSON: one object, or a list of one, with jobId and pod."),
            _START,
            _END,
            Param(name="Period", choices=PERIODS),
            Param(name="Length", type=int, minimum=1, maximum=reports.POINTS_MAX),
            Param(name="NextToken", type=int, minimum=0, maximum=reports.OFFSET_MAX),
            _TOKEN,
        ),
    ),
    Operation(
        name="GetPodLogs",
        method="GET",
        path=f"{_POD}/logs",
        action="paidlc:GetPodLogs",
        handler=reports.get_pod_logs,
        summary="Show the newest lines of a pod's log",
        response=PodLogs,
        query=(
            _START,
            _END,
            Param(name="MaxLines", type=int, minimum=1, maximum=reports.LINES_MAX),
            Param(name="DownloadToFile", type=bool),
            _text("Containers"),
            _text("PodUid"),
            _TOKEN,
        ),
    ),
    Operation(
        name="GetPodEvents",
        method="GET",
        path=f"{_POD}/events",
        action="paidlc:GetPodEvents",
        handler=reports.get_pod_events,
        summary="Show what happened to a pod",
        response=PodEvents,
        query=(
            _START,
            _END,
            Param(name="MaxEventsNum", type=int, minimum=1, maximum=reports.EVENTS_MAX),
            _text("PodUid"),
            _TOKEN,
        ),
    ),
    Operation(
        name="GetJobEvents",
        method="GET",
        path=f"{_JOB}/events",
        action="paidlc:GetJobEvents",
        handler=reports.get_job_events,
        summary="Show what happened to a job",
        response=JobEvents,
        query=(
            _START,
            _END,
            Param(name="MaxEventsNum", type=int, minimum=1, maximum=reports.EVENTS_MAX),
            _TOKEN,
        ),
    ),
    Operation(
        name="ListEcsSpecs",
        method="GET",
        path=f"{_API}/ecsspecs",
        action="paidlc:ListEcsSpecs",
        handler=reports.list_ecs_specs,
        summary="List the sizes on offer",
        response=EcsSpecList,
        query=(
            *_PAGE,
            _ORDER,
            Param(name="AcceleratorType", choices=ACCELERATOR_TYPES),
            Param(name="ResourceType", choices=reports.RESOURCE_TYPES),
            Param(name="SortBy", choices=reports.SPEC_SORT_KEYS),
            _long("InstanceTypes", "Several, with commas."),
        ),
    ),
    Operation(
        name="GetDashboard",
        method="GET",
        path=f"{_JOB}/dashboard",
        action="paidlc:GetDashboard",
        handler=reports.get_dashboard,
        summary="Get the address of a job's page",
        response=Dashboard,
        query=(Param(name="isShared", type=bool), _long("token", "Of GetToken, for a shared link.")),
    ),
    Operation(
        name="GetToken",
        method="GET",
        path=f"{_API}/tokens",
        action="paidlc:GetToken",
        handler=reports.get_token,
        summary="Get a token that reads one job for a while",
        response=TokenAnswer,
        query=(
            _text("TargetId"),
            Param(name="TargetType", choices=reports.TARGET_TYPES),
            Param(name="ExpireTime", type=int, minimum=0, maximum=reports.TOKEN_SECONDS_MAX),
        ),
    ),
    Operation(
        name="GetJobSanityCheckResult",
        method="GET",
        path=f"{_JOB}/sanitycheckresult",
        action="paidlc:GetJobSanityCheckResult",
        handler=reports.get_sanity_check,
        summary="Show a health check of a job: none are run here",
        response=SanityCheckResult,
        query=(
            Param(name="SanityCheckNumber", type=int, minimum=1, maximum=reports.OFFSET_MAX),
            Param(name="SanityCheckPhase", choices=reports.SANITY_PHASES),
            _TOKEN,
        ),
    ),
    Operation(
        name="ListJobSanityCheckResults",
        method="GET",
        path=f"{_JOB}/sanitycheckresults",
        action="paidlc:ListJobSanityCheckResults",
        handler=reports.list_sanity_checks,
        summary="List the health checks of a job: none are run here",
        response=SanityCheckResults,
        query=(_ORDER,),
    ),
)

_KEPT: tuple[Operation, ...] = (
    Operation(
        name="CreateSignal",
        method="POST",
        path=_SIGNALS,
        action="paidlc:CreateSignal",
        handler=signals.create_signal,
        summary="Keep a signal for pods of a job; it is not delivered",
        body=SignalBody,
        response=SignalAnswer,
    ),
    Operation(
        name="GetSignal",
        method="GET",
        path=f"{_SIGNALS}/{{SignalId}}",
        action="paidlc:GetSignal",
        handler=signals.get_signal,
        summary="Show a signal of a job",
        response=SignalAnswer,
        query=(_TOKEN,),
    ),
    Operation(
        name="ListSignals",
        method="GET",
        path=_SIGNALS,
        action="paidlc:ListSignals",
        handler=signals.list_signals,
        summary="List the signals of a job",
        response=SignalPage,
        query=(
            *_PAGE,
            _ORDER,
            Param(name="SortBy", choices=signals.SORT_KEYS),
            Param(name="Status", choices=signals.STATUSES),
            _TOKEN,
        ),
    ),
    Operation(
        name="CreateJobTemplate",
        method="POST",
        path=_TEMPLATES,
        action="paidlc:CreateJobTemplate",
        handler=templates.create_template,
        summary="Keep the body of a CreateJob as a template",
        body=TemplateBody,
        response=TemplateMade,
    ),
    Operation(
        name="ListJobTemplates",
        method="GET",
        path=_TEMPLATES,
        action="paidlc:ListJobTemplates",
        handler=templates.list_templates,
        summary="List the templates that match",
        response=TemplatePage,
        query=(
            *_PAGE,
            _ORDER,
            Param(name="SortBy", choices=tuple(templates.SORT_KEYS)),
            _text("TemplateId"),
            _text("TemplateName", "Contained in the name."),
            _text("Description", "Contained in the description."),
            _text("UserId"),
            _text("WorkspaceId"),
        ),
    ),
    Operation(
        name="GetJobTemplate",
        method="GET",
        path=_TEMPLATE,
        action="paidlc:GetJobTemplate",
        handler=templates.get_template,
        summary="Show a template with one or all of its versions",
        response=TemplateAnswer,
        query=(Param(name="Version", max_length=64, description="A number or all; the default version."),),
    ),
    Operation(
        name="UpdateJobTemplate",
        method="PUT",
        path=_TEMPLATE,
        action="paidlc:UpdateJobTemplate",
        handler=templates.update_template,
        summary="Change a template; new content makes a new version",
        body=TemplateChange,
        response=TemplateChanged,
    ),
    Operation(
        name="SetJobTemplateDefaultVersion",
        method="PUT",
        path=f"{_TEMPLATE}/defaultversion",
        action="paidlc:SetJobTemplateDefaultVersion",
        handler=templates.set_default_version,
        summary="Say which version of a template counts when none is named",
        body=DefaultVersion,
        response=TemplateChanged,
    ),
    Operation(
        name="DeleteJobTemplate",
        method="DELETE",
        path=_TEMPLATE,
        action="paidlc:DeleteJobTemplate",
        handler=templates.delete_template,
        summary="Delete a template",
        response=TemplateGone,
    ),
)

OPERATIONS: tuple[Operation, ...] = _ON_JOBS + _REPORTS + _KEPT
