"""Looks at real processes: who is left of a job, and how much memory somebody holds."""

import os
from pathlib import Path


def processes_of(job_id: str) -> list[int]:
    """Return the live processes that carry a job's mark in their environment."""
    mark = f"TRACKSIDE_JOB_ID={job_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def process_named(part: str, *more: str) -> list[int]:
    """Return the processes whose command line contains all these parts."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(piece in line for piece in (part, *more)):
            found.append(int(entry.name))
    return found


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} is gone")
