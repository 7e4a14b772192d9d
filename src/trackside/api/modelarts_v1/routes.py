"""The operations of ModelArts v1 that Trackside serves, one row each; everything else is read from here."""

from collections.abc import Sequence

from trackside.api.modelarts_v1 import handlers_configs as configs
from trackside.api.modelarts_v1 import handlers_jobs as jobs
from trackside.api.modelarts_v1 import handlers_reports as reports
from trackside.api.modelarts_v1 import listing
from trackside.api.modelarts_v1.metrics import STATISTIC_TYPES
from trackside.api.modelarts_v1.wire_request import (
    ChangeConfigBody,
    ChangeJobBody,
    CreateConfigBody,
    CreateJobBody,
    CreateVersionBody,
)
from trackside.api.modelarts_v1.wire_response import (
    Answer,
    ConfigDetail,
    ConfigList,
    Created,
    Engines,
    JobList,
    LogFiles,
    LogLines,
    Overview,
    ResourceSpecs,
    Statistic,
    VersionDetail,
    VersionList,
)
from trackside.api.operation import Operation, Param
from trackside.ports import Node

_JOBS = "/v1/{project_id}/training-jobs"
_JOB = f"{_JOBS}/{{job_id}}"
_VERSIONS = f"{_JOB}/versions"
_VERSION = f"{_VERSIONS}/{{version_id}}"
_CONFIGS = "/v1/{project_id}/training-job-configs"
_CONFIG = f"{_CONFIGS}/{{config_name}}"

_METRICS = (
    Param(
        name="metrics",
        max_length=512,
        description="Names such as CpuUsage,MemUsage in any case; all eight when absent.",
    ),
    Param(
        name="statistic_type",
        choices=STATISTIC_TYPES,
        description="The mean (all, the default) or one entry per card (each), of GPU metrics.",
    ),
)
_JOB_TYPE = Param(name="job_type", choices=reports.JOB_TYPES, description="train when absent.")
_CONFIG_TYPE = Param(name="config_type", choices=configs.CONFIG_TYPES, description="custom when absent.")


def _order(default: str) -> Param:
    return Param(name="order", choices=listing.ORDERS, description=f"{default} when absent.")


_JOB_ROWS = (
    Operation(
        name="CreateTrainingJob",
        method="POST",
        path=_JOBS,
        action="modelarts:trainJob:create",
        handler=jobs.create_job,
        summary="Create a training job and its first version",
        body=CreateJobBody,
        response=Created,
    ),
    Operation(
        name="ListTrainingJobs",
        method="GET",
        path=_JOBS,
        action="modelarts:trainJob:list",
        handler=jobs.list_jobs,
        summary="List training jobs that match, each by its newest version",
        response=JobList,
        query=(
            listing.STATUS,
            listing.PER_PAGE,
            listing.PAGE,
            Param(name="sortBy", choices=tuple(listing.SORT_OF), description="job_name when absent."),
            _order("asc"),
            listing.SEARCH,
            listing.WORKSPACE,
        ),
    ),
    Operation(
        name="ListAllTrainingJobVersions",
        method="GET",
        path=f"{_JOBS}/versions",
        action="modelarts:trainJobVersion:list",
        handler=jobs.list_all_versions,
        summary="List the versions of all training jobs, with their statuses and cards",
        response=Overview,
        query=(
            Param(name="offset", type=int, minimum=0, maximum=listing.OFFSET_MAX),
            Param(
                name="limit",
                type=int,
                minimum=0,
                maximum=listing.PER_PAGE_MAX,
                description="20 when absent; 0: all.",
            ),
            listing.STATUS,
            Param(name="sort_by", choices=listing.OVERVIEW_SORTS, description="create_time when absent."),
            _order("desc"),
            Param(name="pool_id", max_length=64),
            listing.WORKSPACE,
        ),
    ),
    Operation(
        name="UpdateTrainingJob",
        method="PUT",
        path=_JOB,
        action="modelarts:trainJob:update",
        handler=jobs.change_job,
        summary="Change a training job's description",
        body=ChangeJobBody,
        response=Answer,
    ),
    Operation(
        name="DeleteTrainingJob",
        method="DELETE",
        path=_JOB,
        action="modelarts:trainJob:delete",
        handler=jobs.delete_job,
        summary="Delete a training job with all its versions",
        response=Answer,
    ),
    Operation(
        name="ListTrainingJobVersions",
        method="GET",
        path=_VERSIONS,
        action="modelarts:trainJobVersion:list",
        handler=jobs.list_versions,
        summary="List the versions of a training job",
        response=VersionList,
        query=(
            listing.PER_PAGE,
            Param(
                name="page",
                type=int,
                minimum=0,
                maximum=listing.PAGE_MAX,
                description="Counted from 1; 0 or absent: all versions.",
            ),
        ),
    ),
    Operation(
        name="CreateTrainingJobVersion",
        method="POST",
        path=_VERSIONS,
        action="modelarts:trainJobVersion:create",
        handler=jobs.create_version,
        summary="Create the next version of a training job",
        body=CreateVersionBody,
        response=Created,
    ),
    Operation(
        name="ShowTrainingJobVersion",
        method="GET",
        path=_VERSION,
        action="modelarts:trainJobVersion:get",
        handler=jobs.show_version,
        summary="Show everything about a version of a training job",
        response=VersionDetail,
    ),
    Operation(
        name="DeleteTrainingJobVersion",
        method="DELETE",
        path=_VERSION,
        action="modelarts:trainJobVersion:delete",
        handler=jobs.delete_version,
        summary="Delete a version of a training job",
        response=Answer,
    ),
    Operation(
        name="StopTrainingJobVersion",
        method="POST",
        path=f"{_VERSION}/stop",
        action="modelarts:trainJobVersion:stop",
        handler=jobs.stop_version,
        summary="Stop a version of a training job",
        response=Answer,
    ),
)

_REPORT_ROWS = (
    Operation(
        name="ListTrainingJobLogFiles",
        method="GET",
        path=f"{_VERSION}/log/file-names",
        action="modelarts:trainJobLog:list",
        handler=reports.list_log_files,
        summary="List the log files of a version",
        response=LogFiles,
    ),
    Operation(
        name="ShowTrainingJobLog",
        method="GET",
        path=f"{_VERSION}/aom-log",
        action="modelarts:trainJobLog:get",
        handler=reports.show_log_lines,
        summary="Show some lines of a log file",
        response=LogLines,
        query=(
            Param(name="log_file", required=True, max_length=256),
            Param(
                name="base_line",
                type=int,
                minimum=0,
                maximum=reports.LINE_MAX,
                description="Lines before it (desc) or after it (asc); absent: from the end or the start.",
            ),
            Param(
                name="lines", type=int, minimum=0, maximum=reports.LINES_MAX, description="50 when absent."
            ),
            _order("desc"),
        ),
    ),
    Operation(
        name="ShowPodMetricStatistic",
        method="GET",
        path=f"{_VERSION}/pod/{{pod_name}}/metric-statistic",
        action="modelarts:trainJobVersion:get",
        handler=reports.show_pod_metrics,
        prompt=True,
        summary="Show the per-minute metrics of one container of a version",
        response=Statistic,
        query=_METRICS,
    ),
    Operation(
        name="ListResourceSpecs",
        method="GET",
        path="/v1/{project_id}/job/resource-specs",
        action="modelarts:trainJob:list",
        handler=reports.list_resource_specs,
        summary="List the sizes on offer",
        response=ResourceSpecs,
        query=(
            _JOB_TYPE,
            Param(
                name="engine_id", type=int, minimum=0, description="Has no effect: any engine fits any size."
            ),
            Param(name="project_type", type=int, minimum=0, description="Has no effect."),
        ),
    ),
    Operation(
        name="ListAiEngines",
        method="GET",
        path="/v1/{project_id}/job/ai-engines",
        action="modelarts:trainJob:list",
        handler=reports.list_engines,
        summary="List the engines on offer",
        response=Engines,
        query=(_JOB_TYPE,),
    ),
)

_CONFIG_ROWS = (
    Operation(
        name="CreateTrainingJobConfig",
        method="POST",
        path=_CONFIGS,
        action="modelarts:trainConfig:create",
        handler=configs.create_config,
        summary="Keep a job configuration",
        body=CreateConfigBody,
        response=Answer,
    ),
    Operation(
        name="ListTrainingJobConfigs",
        method="GET",
        path=_CONFIGS,
        action="modelarts:trainConfig:list",
        handler=configs.list_configs,
        summary="List job configurations that match",
        response=ConfigList,
        query=(
            listing.PER_PAGE,
            listing.PAGE,
            Param(name="sortBy", choices=configs.SORTS, description="config_name when absent."),
            _order("desc"),
            listing.SEARCH,
            _CONFIG_TYPE,
        ),
    ),
    Operation(
        name="ShowTrainingJobConfig",
        method="GET",
        path=_CONFIG,
        action="modelarts:trainConfig:get",
        handler=configs.show_config,
        summary="Show a job configuration",
        response=ConfigDetail,
        query=(_CONFIG_TYPE,),
    ),
    Operation(
        name="UpdateTrainingJobConfig",
        method="PUT",
        path=_CONFIG,
        action="modelarts:trainConfig:update",
        handler=configs.change_config,
        summary="Write a job configuration anew",
        body=ChangeConfigBody,
        response=Answer,
    ),
    Operation(
        name="DeleteTrainingJobConfig",
        method="DELETE",
        path=_CONFIG,
        action="modelarts:trainConfig:delete",
        handler=configs.delete_config,
        summary="Delete a job configuration",
        response=Answer,
    ),
)


def operations(nodes: reports.Nodes) -> tuple[Operation, ...]:
    """Return all rows; `nodes` tells which machines there are, for the metrics of a pool's node."""
    node_row = Operation(
        name="ShowPoolNodeMetricStatistic",
        method="GET",
        path="/v1/{project_id}/pools/{pool_id}/nodes/{node_ip}/metric-statistic",
        action="modelarts:pool:get",
        handler=reports.show_node_metrics(nodes),
        summary="Show the per-minute metrics of one node of a pool, over the last hour",
        response=Statistic,
        query=_METRICS,
    )
    return (*_JOB_ROWS, *_REPORT_ROWS, node_row, *_CONFIG_ROWS)


def _no_nodes() -> Sequence[Node]:
    return ()


OPERATIONS = operations(_no_nodes)
