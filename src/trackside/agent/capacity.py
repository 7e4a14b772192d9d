"""Knows what this machine has to give: cores, memory, cards; the limits it runs under count."""

import contextlib
import os
import socket
from pathlib import Path

from trackside.collect.sources import count_npus
from trackside.domain.resources import Capacity

_UNLIMITED = 1 << 60  # v1 says "no limit" with a huge number
_CGROUP = Path("/sys/fs/cgroup")


def detect(npu_exporter_url: str = "") -> Capacity:
    """Return what one node's tasks can share."""
    gpus, gpu_model = _gpus()
    return Capacity(
        cpu_cores=_cores(),
        memory_bytes=_memory_bytes(),
        gpus=gpus,
        gpu_model=gpu_model,
        npus=count_npus(npu_exporter_url),
    )


def disk(directory: Path) -> tuple[int, int] | None:
    """Return the size of the disk a directory is on, and what is free for tasks; None: it cannot be told."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def host_ip() -> str:
    """Return the address other machines reach this one by; the loopback one if it is alone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address: nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _cores() -> float:
    cores = float(len(os.sched_getaffinity(0)))
    v2 = (_read(_CGROUP / "cpu.max") or "").split()
    quota, period = [*v2, "max", "max"][:2]
    if quota == "max":
        quota = (_read(_CGROUP / "cpu/cpu.cfs_quota_us") or "-1").strip()
        period = (_read(_CGROUP / "cpu/cpu.cfs_period_us") or "100000").strip()
    if quota.isdigit() and int(quota) > 0:
        cores = min(cores, int(quota) / int(period))
    return cores


def _memory_bytes() -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in (_CGROUP / "memory.max", _CGROUP / "memory/memory.limit_in_bytes"):
        limit = (_read(path) or "").strip()
        if limit.isdigit() and int(limit) < _UNLIMITED:
            total = min(total, int(limit))
    return total


def _gpus() -> tuple[int, str | None]:
    import pynvml  # here, for it is slow to import and most callers never count cards

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, no cards
        return 0, None
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)) if count else None
        return count, name.decode() if isinstance(name, bytes) else name
    finally:
        pynvml.nvmlShutdown()


def _read(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return path.read_text()
    return None
