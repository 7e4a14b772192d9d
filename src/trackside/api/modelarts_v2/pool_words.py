"""Knows the words of the pool operations: statuses, annotations, amounts. Refuses words it does not know."""

import re
from collections.abc import Iterator, Mapping

from trackside.domain.errors import Invalid
from trackside.domain.phase import Phase
from trackside.domain.pool import Pool, QueuePolicy, Quota
from trackside.service.pool_record import EVERYBODY, Holder, PoolChange, PoolKind, PoolRecord

TRAIN = "train"
WORKLOAD_TYPES = (TRAIN, "infer", "notebook", "x-infer")

STATUS_OF: dict[Phase, str] = {
    Phase.CREATING: "Creating",
    Phase.QUEUED: "Queue",
    Phase.STARTING: "Pending",
    Phase.RUNNING: "Running",
    Phase.RESTARTING: "Running",
    Phase.LOST: "Abnormal",
    Phase.STOPPING: "Terminating",
    Phase.SUCCEEDED: "Completed",
    Phase.FAILED: "Failed",
    Phase.CREATE_FAILED: "Abnormal",
    Phase.STOPPED: "Terminated",
}
STATUSES = (
    "Queue",
    "Pending",
    "Abnormal",
    "Terminating",
    "Creating",
    "Running",
    "Completed",
    "Terminated",
    "Failed",
)
PHASES_CALLED: dict[str, frozenset[Phase]] = {
    name: frozenset(phase for phase, called in STATUS_OF.items() if called == name) for name in STATUSES
}

KIND_OF = {PoolKind.NODES: "Dedicate", PoolKind.SHARE: "Logical"}

DESCRIPTION = "os.modelarts/description"
STRATEGY = "os.modelarts.pool/scheduler.queue.strategy"
LOCK_SECONDS = "trackside.pool/lock-seconds"
NODES = "trackside.pool/nodes"
QUOTA = "trackside.pool/quota."  # followed by project or user, and for one alone by a dot and its name

_BYTES = {
    "": 1,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}
_MEMORY = re.compile(r"([0-9]{1,18})(\.[0-9]{1,6})?([KMGT]i?)?\Z")
MEMORY_BYTES_MAX = 2**60
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?\Z")
_QUOTA_KEYS = ("cpu", "memory", "cards")


def change_of(annotations: Mapping[str, str | None]) -> PoolChange:
    """Return what annotations ask for: the known ones are acted on, the others kept."""
    rest = {key: value for key, value in annotations.items() if not _known(key)}
    strategy, lock = annotations.get(STRATEGY), annotations.get(LOCK_SECONDS)
    nodes = annotations.get(NODES)
    return PoolChange(
        description=_text(annotations, DESCRIPTION),
        policy=_policy(strategy) if strategy else None,
        lock_seconds=_seconds(lock) if lock else None,
        node_ids=tuple(filter(None, re.split(r"[,\s]+", nodes))) if nodes else None,
        quotas=dict(_quotas(annotations)),
        annotations=rest,
    )


def annotations_of(record: PoolRecord) -> dict[str, str]:
    """Return all annotations of a pool."""
    pool = record.pool
    said = {**record.annotations, DESCRIPTION: record.description, STRATEGY: str(pool.policy)}
    said[LOCK_SECONDS] = str(pool.lock_seconds)
    if pool.node_ids is not None:
        said[NODES] = ",".join(pool.node_ids)
    return said | dict(_quota_annotations(pool))


def memory_text(memory_bytes: int) -> str:
    """Return an amount of memory as Kubernetes writes it."""
    for unit in ("Gi", "Mi", "Ki"):
        if memory_bytes and memory_bytes % _BYTES[unit] == 0:
            return f"{memory_bytes // _BYTES[unit]}{unit}"
    return str(memory_bytes)


def cores_text(cores: float) -> str:
    """Return an amount of cores as Kubernetes writes it."""
    return f"{cores:g}" if cores == int(cores) else f"{round(cores * 1000)}m"


def quota_text(quota: Quota) -> str:
    """Return a quota as it stands in an annotation."""
    amounts = {
        "cpu": None if quota.cpu_cores is None else f"{quota.cpu_cores:g}",
        "memory": None if quota.memory_bytes is None else memory_text(quota.memory_bytes),
        "cards": None if quota.cards is None else str(quota.cards),
    }
    return ",".join(f"{key}={value}" for key, value in amounts.items() if value is not None)


def parse_quota(place: str, text: str) -> Quota | None:
    """Return the quota a text such as cpu=4,memory=8Gi,cards=2 describes; None for an empty one."""
    amounts: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in _QUOTA_KEYS or not value or key in amounts:
            raise Invalid(f"{place} must look like cpu=4,memory=8Gi,cards=2, not {text[:64]!r}")
        amounts[key] = value
    if not amounts:
        return None
    cores, memory, cards = (amounts.get(key) for key in _QUOTA_KEYS)
    return Quota(
        cpu_cores=None if cores is None else _number(place, cores),
        memory_bytes=None if memory is None else parse_memory(place, memory),
        cards=None if cards is None else int(_number(place, cards)),
    )


def parse_memory(place: str, text: str) -> int:
    """Return an amount of memory in bytes: 512Mi, 8Gi, or a plain number."""
    found = _MEMORY.match(text)
    unit = _BYTES[found[3] or ""] if found else 0
    amount = int(found[1]) * unit + int(float(found[2] or 0) * unit) if found else None
    if amount is None or amount > MEMORY_BYTES_MAX:
        raise Invalid(f"{place}: {text[:64]!r} is not an amount of memory such as 512Mi or 8Gi")
    return amount


def _known(key: str) -> bool:
    return key in (DESCRIPTION, STRATEGY, LOCK_SECONDS, NODES) or key.startswith(QUOTA)


def _text(annotations: Mapping[str, str | None], key: str) -> str | None:
    return (annotations[key] or "") if key in annotations else None


def _policy(name: str) -> QueuePolicy:
    try:
        return QueuePolicy(name)
    except ValueError:
        valid = " ".join(QueuePolicy)
        raise Invalid(f"{STRATEGY} must be one of [{valid}], not {name[:64]!r}") from None


def _seconds(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise Invalid(f"{LOCK_SECONDS} must be a whole number of seconds, not {text[:64]!r}")
    return int(text)


def _number(place: str, text: str) -> float:
    if not _NUMBER.match(text):
        raise Invalid(f"{place}: {text[:64]!r} is not a number")
    return float(text)


def _quotas(annotations: Mapping[str, str | None]) -> Iterator[tuple[tuple[Holder, str], Quota | None]]:
    for key, value in annotations.items():
        if key.startswith(QUOTA):
            holder, _, name = key.removeprefix(QUOTA).partition(".")
            if holder not in tuple(Holder):
                raise Invalid(f"{key}: a quota is of a project or of a user")
            yield (Holder(holder), name or EVERYBODY), parse_quota(key, value or "")


def _quota_annotations(pool: Pool) -> Iterator[tuple[str, str]]:
    for holder, general, named in (
        (Holder.PROJECT, pool.project_quota, pool.project_quotas),
        (Holder.USER, pool.user_quota, pool.user_quotas),
    ):
        if general is not None:
            yield f"{QUOTA}{holder}", quota_text(general)
        for name, quota in sorted(named.items()):
            yield f"{QUOTA}{holder}.{name}", quota_text(quota)
