"""Knows which quantities are measured and what one sample is."""

from dataclasses import dataclass
from enum import StrEnum

from trackside.domain.job import JobId

MINUTE_MS = 60_000


class Metric(StrEnum):
    """What is measured of every task; percent are of what the task was given."""

    CPU_PERCENT = "cpu_percent"
    MEMORY_PERCENT = "memory_percent"
    DISK_READ_BYTES_PER_SECOND = "disk_read_bytes_per_second"
    DISK_WRITE_BYTES_PER_SECOND = "disk_write_bytes_per_second"
    NETWORK_RECEIVE_BYTES_PER_SECOND = "network_receive_bytes_per_second"
    NETWORK_SEND_BYTES_PER_SECOND = "network_send_bytes_per_second"
    GPU_PERCENT = "gpu_percent"
    GPU_MEMORY_PERCENT = "gpu_memory_percent"
    NPU_PERCENT = "npu_percent"
    NPU_MEMORY_PERCENT = "npu_memory_percent"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured number. `card` is set where a metric is per card, `labels` where the job's own has some."""

    job_id: JobId
    task: str
    metric: str
    at_ms: int
    value: float
    card: int | None = None
    labels: tuple[tuple[str, str], ...] = ()  # sorted by name


def minute_grid(start_ms: int, end_ms: int) -> range:
    """Return the starts of the whole clock minutes that [start, end) touches."""
    first = start_ms // MINUTE_MS * MINUTE_MS
    return range(first, max(end_ms, first + 1), MINUTE_MS)
