"""Knows which phases a job has and which moves between them exist."""

from enum import StrEnum

from trackside.domain.errors import IllegalTransition


class Phase(StrEnum):
    """Where a job stands."""

    CREATING = "creating"  # accepted, not yet ready to queue
    QUEUED = "queued"  # waiting for room in its pool
    STARTING = "starting"  # room reserved, code and inputs being staged, processes starting
    RUNNING = "running"
    RESTARTING = "restarting"  # an attempt ended and the next one is being started
    LOST = "lost"  # its node cannot be reached; may come back
    STOPPING = "stopping"  # somebody asked; processes still draining
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CREATE_FAILED = "create_failed"  # ended before any process ran
    STOPPED = "stopped"


FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CREATE_FAILED, Phase.STOPPED})

NEXT: dict[Phase, frozenset[Phase]] = {
    Phase.CREATING: frozenset({Phase.QUEUED, Phase.CREATE_FAILED, Phase.STOPPED}),
    Phase.QUEUED: frozenset({Phase.STARTING, Phase.FAILED, Phase.CREATE_FAILED, Phase.STOPPED}),
    Phase.STARTING: frozenset(
        {
            Phase.RUNNING,
            Phase.RESTARTING,
            Phase.QUEUED,
            Phase.LOST,
            Phase.STOPPING,
            Phase.SUCCEEDED,
            Phase.FAILED,
            Phase.CREATE_FAILED,
            Phase.STOPPED,
        }
    ),
    Phase.RUNNING: frozenset(
        {
            Phase.RESTARTING,
            Phase.QUEUED,
            Phase.LOST,
            Phase.STOPPING,
            Phase.SUCCEEDED,
            Phase.FAILED,
            Phase.STOPPED,
        }
    ),
    Phase.RESTARTING: frozenset(
        {
            Phase.STARTING,
            Phase.RUNNING,
            Phase.QUEUED,
            Phase.LOST,
            Phase.STOPPING,
            Phase.SUCCEEDED,
            Phase.FAILED,
            Phase.STOPPED,
        }
    ),
    Phase.LOST: frozenset(
        {
            Phase.STARTING,
            Phase.RUNNING,
            Phase.RESTARTING,
            Phase.QUEUED,
            Phase.STOPPING,
            Phase.SUCCEEDED,
            Phase.FAILED,
            Phase.STOPPED,
        }
    ),
    Phase.STOPPING: frozenset({Phase.STOPPED, Phase.FAILED, Phase.SUCCEEDED}),
} | {final: frozenset[Phase]() for final in FINAL}


def advance(current: Phase, to: Phase) -> Phase:
    """Return `to`, or raise IllegalTransition: the only way a phase ever changes."""
    if to not in NEXT[current]:
        raise IllegalTransition(f"a {current} job cannot become {to}")
    return to
