"""Knows which quantities are measured and what one sample is."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from trackside.domain.job import JobId

MINUTE_MS = 60_000
VALUE_MAX = 1e300  # of a sample, so that a sum of them is still a number


class Metric(StrEnum):
    """What is measured of every task; percent are of what the task was given."""

    CPU_PERCENT = "cpu_percent"
    MEMORY_PERCENT = "memory_percent"
    MEMORY_PEAK_BYTES = "memory_peak_bytes"
    SHM_USED_BYTES = "shm_used_bytes"
    DISK_READ_BYTES_PER_SECOND = "disk_read_bytes_per_second"
    DISK_WRITE_BYTES_PER_SECOND = "disk_write_bytes_per_second"
    IO_BYTES = "io_bytes"  # since its start
    LOG_BYTES = "log_bytes"  # since its start
    NETWORK_RECEIVE_BYTES_PER_SECOND = "network_receive_bytes_per_second"
    NETWORK_SEND_BYTES_PER_SECOND = "network_send_bytes_per_second"
    GPU_PERCENT = "gpu_percent"
    GPU_MEMORY_PERCENT = "gpu_memory_percent"
    GPU_MEMORY_USED_BYTES = "gpu_memory_used_bytes"
    GPU_POWER_WATTS = "gpu_power_watts"
    GPU_TEMPERATURE_CELSIUS = "gpu_temperature_celsius"
    GPU_ECC_ERRORS = "gpu_ecc_errors"
    GPU_XID = "gpu_xid"
    GPU_PROCESSES = "gpu_processes"
    GPU_FOREIGN_PROCESSES = "gpu_foreign_processes"
    NPU_PERCENT = "npu_percent"
    NPU_MEMORY_PERCENT = "npu_memory_percent"
    NPU_MEMORY_USED_BYTES = "npu_memory_used_bytes"
    NPU_POWER_WATTS = "npu_power_watts"
    NPU_TEMPERATURE_CELSIUS = "npu_temperature_celsius"
    NPU_ERROR_CODE = "npu_error_code"
    NPU_HEALTHY = "npu_healthy"


# What only grows while a task runs, and codes: the newest counts, and a mean says nothing.
WITHOUT_MEAN = frozenset(
    {
        Metric.IO_BYTES,
        Metric.LOG_BYTES,
        Metric.MEMORY_PEAK_BYTES,
        Metric.GPU_ECC_ERRORS,
        Metric.GPU_XID,
        Metric.NPU_ERROR_CODE,
    }
)
CUSTOM_PREFIX = "custom."  # of the names of a job's own metrics: they cannot be taken for ours


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured number. `card` is set where a metric is per card; the job's own may have labels."""

    job_id: JobId
    task: str
    metric: str
    at_ms: int
    value: float
    card: int | None = None
    labels: tuple[tuple[str, str], ...] = ()  # sorted by name


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as Prometheus writes them, sorted by name."""
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in sorted(labels.items())
    }
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())


def minute_grid(start_ms: int, end_ms: int) -> range:
    """Return the starts of the whole clock minutes that [start, end) touches."""
    first = start_ms // MINUTE_MS * MINUTE_MS
    return range(first, max(end_ms, first + 1), MINUTE_MS)
