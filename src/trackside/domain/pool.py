"""Knows what a pool is: which machines, in which order its jobs start, and how much each may hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trackside.domain.job import NodeId

DEFAULT_LOCK_SECONDS = 300  # how long the head of a step-polling queue keeps freed room to itself at first


class QueuePolicy(StrEnum):
    """In which order waiting jobs get room; docs/scheduling.md says what each promises."""

    FIFO = "fifo"  # the head holds the lock until it starts
    TRAVERSAL = "traversal"  # skip what does not fit and go on
    STEP_POLLING = "step-polling"  # the head's lock is let go after a while, once, and taken again
    TIERED = "tiered"  # priority 3 by step polling, the others by traversal


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most that one project or one user may hold in a pool at once; None: no limit."""

    cpu_cores: float | None = None
    memory_bytes: int | None = None
    cards: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Machines with one queue."""

    id: str
    policy: QueuePolicy = QueuePolicy.FIFO
    node_ids: tuple[NodeId, ...] | None = None  # None: every machine there is
    lock_seconds: int = DEFAULT_LOCK_SECONDS
    project_quotas: Mapping[str, Quota] = field(default_factory=dict)  # by project id
    user_quotas: Mapping[str, Quota] = field(default_factory=dict)  # by user name
    cap: Quota | None = None  # the most that all its jobs together may hold: a share of the machines
    project_quota: Quota | None = None  # of every project not named above
    user_quota: Quota | None = None  # of every user not named above
