"""Knows how ModelArts v2 calls the phases of a job, both levels."""

from trackside.domain.phase import Phase

PHASE_OF: dict[Phase, tuple[str, str]] = {  # phase, secondary_phase
    Phase.CREATING: ("Creating", "Creating"),
    Phase.QUEUED: ("Pending", "Queuing"),
    Phase.STARTING: ("Pending", "Creating"),
    Phase.RUNNING: ("Running", "Running"),
    Phase.RESTARTING: ("Running", "Running"),
    Phase.LOST: ("Abnormal", "Lost"),
    Phase.STOPPING: ("Terminating", "Terminating"),
    Phase.SUCCEEDED: ("Completed", "Completed"),
    Phase.FAILED: ("Failed", "Failed"),
    Phase.CREATE_FAILED: ("Abnormal", "CreateFailed"),
    Phase.STOPPED: ("Terminated", "Terminated"),
}

PHASES_CALLED: dict[str, frozenset[Phase]] = {
    name: frozenset(phase for phase, (called, _) in PHASE_OF.items() if called == name)
    for name, _ in PHASE_OF.values()
}
