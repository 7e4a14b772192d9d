"""Knows how PAI-DLC calls the phases of a job and of its pods, and the codes it gives reasons."""

from trackside.domain.job import Task, TaskState
from trackside.domain.phase import Phase
from trackside.domain.reason import ReasonCode

STATUS_OF: dict[Phase, str] = {
    Phase.CREATING: "Creating",
    Phase.QUEUED: "Queuing",
    Phase.STARTING: "EnvPreparing",
    Phase.RUNNING: "Running",
    Phase.RESTARTING: "Restarting",
    Phase.LOST: "Running",  # with a ReasonCode that says more
    Phase.STOPPING: "Stopping",
    Phase.SUCCEEDED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.CREATE_FAILED: "Failed",
    Phase.STOPPED: "Stopped",
}
# Valid for the vendor; no job is ever in one of them here.
NEVER_HERE = ("Bidding", "SanityChecking", "SucceededReserving", "FailedReserving")
STATUSES = (*dict.fromkeys(STATUS_OF.values()), *NEVER_HERE)
PHASES_CALLED: dict[str, frozenset[Phase]] = {
    status: frozenset(phase for phase, called in STATUS_OF.items() if called == status) for status in STATUSES
}

# Why a job is in a phase when nothing more is to be said.
PLAIN_REASON_OF: dict[Phase, str] = {
    Phase.CREATING: "JobCreating",
    Phase.QUEUED: "JobEnqueued",
    Phase.STARTING: "JobEnvPreparing",
    Phase.RUNNING: "JobRunning",
    Phase.RESTARTING: "JobRestarting",
    Phase.LOST: "NodeUnreachable",
    Phase.STOPPING: "JobStopping",
    Phase.SUCCEEDED: "JobSucceeded",
    Phase.FAILED: "JobFailed",
    Phase.CREATE_FAILED: "JobStartFailed",
    Phase.STOPPED: "JobStopped",
}

CODE_OF_REASON: dict[ReasonCode, str] = {
    ReasonCode.COMPLETED: "JobSucceeded",
    ReasonCode.EXIT_CODE: "JobFailed",
    ReasonCode.SIGNAL: "PodKilledBySignal",
    ReasonCode.KILLED_FROM_OUTSIDE: "PodKilledBySignal",
    ReasonCode.EXCEPTION: "JobFailed",
    ReasonCode.OUT_OF_MEMORY: "PodOutOfMemory",
    ReasonCode.HOST_OUT_OF_MEMORY: "NodeOutOfMemory",
    ReasonCode.SHM_FULL: "SharedMemoryFull",
    ReasonCode.DISK_FULL: "DiskFull",
    ReasonCode.DEVICE_FAULT: "DeviceFault",
    ReasonCode.HANGED: "JobHanged",
    ReasonCode.RECOVERY_TIMEOUT: "RestartTimeout",
    ReasonCode.CANNOT_START: "PodStartFailed",
    ReasonCode.STAGING_FAILED: "DataPreparationFailed",
    ReasonCode.UPLOAD_FAILED: "OutputUploadFailed",
    ReasonCode.STOPPED_BY_USER: "JobStoppedByUser",
    ReasonCode.MAX_DURATION: "JobMaxRunningTimeExceeded",
    ReasonCode.SHIM_LOST: "PodExitUnknown",
    ReasonCode.NODE_LOST: "NodeUnreachable",
    ReasonCode.PEER_FAILED: "PeerPodFailed",
    ReasonCode.PREEMPTED: "JobPreempted",
    ReasonCode.EVICTED: "JobEvicted",
    ReasonCode.WAITING_FOR_ROOM: "WaitingForResources",
    ReasonCode.WAITING_SCATTERED: "WaitingForResources",
    ReasonCode.WAITING_FOR_TURN: "WaitingInQueue",
    ReasonCode.WAITING_FOR_PREEMPTED: "WaitingForPreemption",
    ReasonCode.OVER_QUOTA: "QuotaExceeded",
    ReasonCode.TOO_LARGE: "ResourcesInsufficient",
    ReasonCode.NO_MACHINES: "ResourcesInsufficient",
    ReasonCode.NO_SUCH_POOL: "ResourceNotFound",
    ReasonCode.DELETED: "JobDeleted",
}

_POD_STATUS_OF = {
    TaskState.PLACED: "Pending",
    TaskState.STARTING: "Pending",
    TaskState.RUNNING: "Running",
    TaskState.WAITING: "Pending",
}


def pod_status(task: Task, phase: Phase) -> str:
    """Return the status of a task's pod, within a job in this phase."""
    if task.state is not TaskState.ENDED:
        return "Unknown" if phase is Phase.LOST else _POD_STATUS_OF[task.state]
    if task.exit_code is None:
        return "Unknown" if task.started_at_ms is not None else "Failed"
    return "Succeeded" if task.exit_code == 0 else "Failed"
