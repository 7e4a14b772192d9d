"""Knows the integers by which ModelArts v1 calls the phases of a job."""

import re

from trackside.domain.errors import Invalid
from trackside.domain.phase import Phase

STATUS_NAMES = (  # the vendor's whole list, each name prefixed JOBSTAT_; the place is the status
    "UNKNOWN",
    "INIT",
    "IMAGE_CREATING",
    "IMAGE_FAILED",
    "SUBMIT_TRYING",
    "SUBMIT_FAILED",
    "DELETE_FAILED",
    "WAITING",
    "RUNNING",
    "KILLING",
    "COMPLETED",
    "FAILED",
    "KILLED",
    "CANCELED",
    "LOST",
    "SCALING",
    "SUBMIT_MODEL_FAILED",
    "DEPLOY_SERVICE_FAILED",
    "CHECK_INIT",
    "CHECK_RUNNING",
    "CHECK_RUNNING_COMPLETED",
    "CHECK_FAILED",
    "MOUNT_FAILED",
)

STATUS_OF: dict[Phase, int] = {
    Phase.CREATING: 1,
    Phase.QUEUED: 7,
    Phase.STARTING: 7,
    Phase.RUNNING: 8,
    Phase.RESTARTING: 8,
    Phase.STOPPING: 9,
    Phase.SUCCEEDED: 10,
    Phase.FAILED: 11,
    Phase.STOPPED: 12,
    Phase.LOST: 14,
    Phase.CREATE_FAILED: 5,
}

PHASES_CALLED: dict[int, frozenset[Phase]] = {
    status: frozenset(phase for phase, called in STATUS_OF.items() if called == status)
    for status in range(len(STATUS_NAMES))
}


def phases_of(text: str) -> frozenset[Phase]:
    """Return the phases that statuses such as `7|8` stand for; many a status stands for none."""
    found: frozenset[Phase] = frozenset()
    for part in filter(None, re.split(r"[|,\s]+", text)):
        if not re.fullmatch(r"[0-9]{1,4}", part) or int(part) not in PHASES_CALLED:
            raise Invalid(
                f"status must be whole numbers from 0 to {len(STATUS_NAMES) - 1}, several joined by |, "
                f"not {text[:64]!r}"
            )
        found |= PHASES_CALLED[int(part)]
    return found
