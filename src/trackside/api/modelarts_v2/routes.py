"""The operations of ModelArts v2 that Trackside serves, one row each; everything else is read from here."""

from trackside.api.modelarts_v2 import handlers_jobs as jobs
from trackside.api.modelarts_v2 import handlers_reports as reports
from trackside.api.modelarts_v2 import notification
from trackside.api.modelarts_v2.quotas import QUOTA_OPERATIONS
from trackside.api.modelarts_v2.routes_pools import POOL_OPERATIONS
from trackside.api.modelarts_v2.sizes import FLAVOR_TYPE_OF
from trackside.api.modelarts_v2.wire_create import CreateJobBody
from trackside.api.modelarts_v2.wire_request import (
    OFFSET_MAX,
    ORDERS,
    ActionBody,
    BatchDeleteBody,
    ChangeJobBody,
    JobSearchBody,
    ReportBody,
)
from trackside.api.modelarts_v2.wire_response import (
    EngineList,
    EventCategories,
    EventPageAnswer,
    FlavorList,
    LogLines,
    LogLink,
    LogPreview,
    NameCheck,
    StageRecords,
    TaskMetrics,
    TaskPlace,
    TrainingJob,
    TrainingJobPage,
)
from trackside.api.operation import Operation, Param
from trackside.domain.event import Level

_JOBS = "/v2/{project_id}/training-jobs"
_JOB = f"{_JOBS}/{{training_job_id}}"
_TASK = f"{_JOB}/tasks/{{task_id}}"

_ORDER = Param(name="order", choices=ORDERS, description="Newest first (desc, the default) or oldest first.")

JOB_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="CreateTrainingJob",
        method="POST",
        path=_JOBS,
        action="modelarts:trainJob:create",
        handler=jobs.create_job,
        summary="Create a training job",
        body=CreateJobBody,
        response=TrainingJob,
        status=201,
    ),
    Operation(
        name="ListTrainingJobs",
        method="POST",
        path="/v2/{project_id}/training-job-searches",
        action="modelarts:trainJob:list",
        handler=jobs.search_jobs,
        summary="List training jobs that match",
        body=JobSearchBody,
        body_required=False,
        response=TrainingJobPage,
    ),
    Operation(
        name="BatchDeleteTrainingJob",
        method="POST",
        path=f"{_JOBS}/batch-delete",
        action="modelarts:trainJob:delete",
        handler=jobs.delete_jobs,
        summary="Delete up to a hundred training jobs, or none of them if one is not there",
        body=BatchDeleteBody,
        status=202,
    ),
    Operation(
        name="ShowTrainingJobDetails",
        method="GET",
        path=_JOB,
        action="modelarts:trainJob:get",
        handler=jobs.show_details,
        prompt=True,
        summary="Show everything about a training job",
        response=TrainingJob,
    ),
    Operation(
        name="ChangeTrainingJobDescription",
        method="PUT",
        path=_JOB,
        action="modelarts:trainJob:update",
        handler=jobs.change_job,
        summary="Change a training job's description, priority, annotations, notification or key pairs",
        body=ChangeJobBody,
        response=TrainingJob,
    ),
    Operation(
        name="StopTrainingJob",
        method="POST",
        path=f"{_JOB}/actions",
        action="modelarts:trainJob:update",
        handler=jobs.stop_job,
        summary="Stop a training job",
        body=ActionBody,
        response=TrainingJob,
        status=202,
    ),
    Operation(
        name="DeleteTrainingJob",
        method="DELETE",
        path=_JOB,
        action="modelarts:trainJob:delete",
        handler=jobs.delete_job,
        summary="Delete a training job",
        status=202,
    ),
    Operation(
        name="ShowTrainingJobMetrics",
        method="GET",
        path=f"{_JOB}/metrics/{{task_id}}",
        action="modelarts:trainJob:get",
        handler=reports.show_metrics,
        prompt=True,
        summary="Show the per-minute metrics of a task",
        response=TaskMetrics,
    ),
    Operation(
        name="ShowTrainingJobLogsFromAom",
        method="GET",
        path=f"{_JOB}/logs/{{task_id}}",
        action="modelarts:trainJob:get",
        handler=reports.show_log_lines,
        summary="Show some lines of a task's log",
        response=LogLines,
        query=(
            Param(
                name="base_line",
                type=int,
                minimum=0,
                maximum=reports.LINE_MAX,
                description="Lines before it (desc) or after it (asc); absent: from the end or the start.",
            ),
            Param(
                name="lines", type=int, minimum=1, maximum=reports.LINES_MAX, description="50 when absent."
            ),
            _ORDER,
        ),
    ),
    Operation(
        name="ShowTrainingJobLogsPreview",
        method="GET",
        path=f"{_TASK}/logs/preview",
        action="modelarts:trainJob:get",
        handler=reports.show_log_preview,
        summary="Show the newest part of a task's log, at most 5 MB",
        response=LogPreview,
    ),
    Operation(
        name="ShowObsUrlOfTrainingJobLogs",
        method="GET",
        path=f"{_TASK}/logs/url",
        action="modelarts:trainJob:logExport",
        handler=reports.show_log_link,
        summary="Get an address where a task's log can be downloaded for five minutes",
        response=LogLink,
    ),
    Operation(
        name="ListTrainingJobEvents",
        method="GET",
        path=f"{_JOB}/events",
        action="modelarts:trainJob:get",
        handler=reports.list_events,
        summary="List the events of a training job",
        response=EventPageAnswer,
        query=(
            Param(name="offset", type=int, minimum=0, maximum=OFFSET_MAX, description="Events to pass over."),
            Param(
                name="limit", type=int, minimum=1, maximum=reports.EVENTS_MAX, description="50 when absent."
            ),
            _ORDER,
            Param(name="start_time", description="Milliseconds or ISO 8601; needs end_time."),
            Param(name="end_time", description="Milliseconds or ISO 8601; needs start_time."),
            Param(name="level", choices=tuple(level.value for level in Level)),
            Param(
                name="pattern",
                max_length=reports.PATTERN_LENGTH_MAX,
                description="Text the message must contain.",
            ),
        ),
    ),
    Operation(
        name="ListEventCategories",
        method="GET",
        path="/v2/{project_id}/training-event-categories",
        action="modelarts:trainJob:list",
        handler=notification.list_event_categories,
        summary="List the kinds of events that somebody can be told of",
        response=EventCategories,
        query=(Param(name="flavor_type", choices=tuple(FLAVOR_TYPE_OF.values())),),
    ),
    Operation(
        name="ListTrainingJobStages",
        method="GET",
        path=f"{_JOB}/stages",
        action="modelarts:trainJob:get",
        handler=reports.list_stages,
        summary="List the stages of every attempt of a training job",
        response=StageRecords,
    ),
    Operation(
        name="ListTrainingJobTasks",
        method="GET",
        path=f"{_JOB}/tasks",
        action="modelarts:trainJob:get",
        handler=reports.list_tasks,
        summary="List where the tasks of a training job ran, attempt by attempt",
        response=list[TaskPlace],
        query=(
            Param(
                name="schedule_count",
                type=int,
                minimum=0,
                maximum=OFFSET_MAX,
                description="Only this attempt, counted from 1; 0 or absent: all.",
            ),
        ),
    ),
    Operation(
        name="NotifyTrainingJobInformation",
        method="POST",
        path=f"{_TASK}/reports/{{report_type}}",
        action="modelarts:trainJob:update",
        handler=reports.report_event,
        summary="Report an event from within a task",
        body=ReportBody,
    ),
    Operation(
        name="ShowTrainingJobFlavors",
        method="GET",
        path="/v2/{project_id}/training-job-flavors",
        action="modelarts:trainJob:list",
        handler=reports.list_flavors,
        summary="List the flavors on offer",
        response=FlavorList,
        query=(Param(name="flavor_type", choices=tuple(FLAVOR_TYPE_OF.values())),),
    ),
    Operation(
        name="ShowTrainingJobEngines",
        method="GET",
        path="/v2/{project_id}/training-job-engines",
        action="modelarts:trainJob:list",
        handler=reports.list_engines,
        summary="List the engines on offer",
        response=EngineList,
    ),
    Operation(
        name="ValidateTrainingJobName",
        method="GET",
        path="/v2/{project_id}/training-job-names",
        action="modelarts:trainJob:list",
        handler=jobs.check_name,
        summary="Say whether a name is taken by a training job",
        response=NameCheck,
        query=(
            Param(name="job_name", required=True, max_length=64),
            Param(name="workspace_id", max_length=64, description="0 when absent."),
        ),
    ),
    *QUOTA_OPERATIONS,
)

OPERATIONS = (*JOB_OPERATIONS, *POOL_OPERATIONS)
