"""Knows how a job is told: GetJob and the items of ListJobs, field by field.

Fields without a default are always there; the others are left out when there is nothing to say.
"""

from msgspec import field

from trackside.api.pai_dlc.wire_create import CodeSource, CustomEnv, DataSource, JobSpecBody, Kept, Wire


class PodIp(Wire):
    """One address of a pod."""

    interface_name: str
    ip: str


class Pod(Wire):
    """One start of one task."""

    pod_id: str
    pod_uid: str
    type: str
    status: str
    sub_status: str
    resource_type: str
    gmt_create_time: str | None = None
    gmt_start_time: str | None = None
    gmt_finish_time: str | None = None
    duration: float | None = None  # seconds
    ip: str | None = None
    pod_ip: str | None = None
    pod_ips: list[PodIp] | None = None
    node_name: str | None = None
    history_pods: list["Pod"] | None = None


class StatusTransition(Wire):
    """One stretch of a job's life."""

    status: str
    start_time: str
    end_time: str | None = None
    reason_code: str | None = None
    reason_message: str | None = None


class RestartError(Wire):
    """What led to a restart."""

    error_code: str
    error_msg: str
    error_source: str
    pod: str
    trigger_restart: bool
    add_node_to_blacklist: bool
    add_job_level_blacklist: bool
    node: str | None = None
    detail_error_msg: str | None = None


class RestartRecord(Wire):
    """One try to restart a pod or the whole job."""

    job_restart_count: int
    occur_phase: str
    occur_time: str
    reason: str
    restart_level_type: str
    restart_status: str
    detail_error_info_list: list[RestartError]
    restart_duration_in_sec: int | None = None
    restart_fail_reason: str | None = None
    trigger_id: str = field(default="", name="TriggerID")


class ReplicaStatus(Wire):
    """How the pods of one role stand."""

    type: str
    active: int
    queuing: int
    dequeued: int


class UserVpcAnswer(Wire):
    """A network of the cloud; the vendor spells one key differently in requests and answers."""

    default_route: str | None = None
    extended_cidrs_asked: list[str] | None = field(default=None, name="ExtendedCIDRs")
    extended_cidrs: list[str] | None = None
    security_group_id: str | None = None
    switch_id: str | None = None
    vpc_id: str | None = None


class JobShared(Wire, kw_only=True):
    """What GetJob and ListJobs tell alike."""

    job_id: str
    display_name: str
    job_type: str
    status: str
    sub_status: str
    reason_code: str
    reason_message: str
    priority: int
    duration: int  # seconds
    accessibility: str
    job_specs: list[JobSpecBody]
    job_replica_statuses: list[ReplicaStatus]
    restart_times: str
    request_cpu: int = field(name="RequestCPU")
    resource_type: str
    enabled_debugger: bool
    user_id: str
    tenant_id: str
    workspace_id: str
    workspace_name: str
    gmt_create_time: str
    gmt_submitted_time: str | None = None
    gmt_running_time: str | None = None
    gmt_successed_time: str | None = None
    gmt_failed_time: str | None = None
    gmt_stopped_time: str | None = None
    gmt_finish_time: str | None = None
    resource_id: str | None = None
    user_command: str | None = None
    envs: dict[str, str] | None = None
    settings: Kept | None = None
    code_source: CodeSource | None = None
    credential_config: Kept | None = None
    data_sources: list[DataSource] | None = None
    elastic_spec: Kept | None = None
    scheduling_strategy: str | None = None
    thirdparty_lib_dir: str | None = None
    thirdparty_libs: list[str] | None = None
    user_vpc: UserVpcAnswer | None = None
    pods: list[Pod] | None = None
    status_history: list[StatusTransition] | None = None


class JobAnswer(JobShared, kw_only=True):
    """Everything about a job."""

    request_id: str
    request_gpu: float = field(name="RequestGPU")
    request_memory: float  # bytes
    description: str | None = None
    custom_envs: list[CustomEnv] | None = None
    restart_record: list[RestartRecord] | None = None
    # Not among the vendor's documented answers: what was given at creation comes back all the same.
    job_max_running_time_minutes: int | None = None
    success_policy: str | None = None
    options: str | None = None
    debugger_config_content: str | None = None
    template_id: str | None = None
    template_version: int | None = None


class JobItem(JobShared, kw_only=True):
    """A job within a list."""

    request_gpu: str = field(name="RequestGPU")
    request_memory: str  # bytes
    username: str
    is_deleted: bool
    node_count: str
    node_names: list[str]
    resource_name: str
    gmt_modified_time: str
    job_max_running_time_minutes: int | None = None
    template_id: str | None = None


class JobPageAnswer(Wire):
    """One page of jobs."""

    jobs: list[JobItem]
    total_count: int
    request_id: str


class JobDone(Wire):
    """What was done was done to this job."""

    job_id: str
    request_id: str
