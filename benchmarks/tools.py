"""Finds, and as root installs, the programs that measure or are measured against."""

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence

PACKAGES = {
    "wrk": "wrk",
    "tsp": "task-spooler",
    "supervisord": "supervisor",
    "victoria-metrics": "victoria-metrics",
    "prometheus": "prometheus",
}


def have(program: str) -> bool:
    """Say whether a program is here, installing it first where that is possible."""
    if shutil.which(program):
        return True
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        print(f"   {program} is not installed (apt-get install {PACKAGES[program]}): left out")
        return False
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=environment, check=False, stdout=subprocess.DEVNULL)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGES[program]]
    subprocess.run(
        command, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return shutil.which(program) is not None


def p50(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """Return the value that 99 of 100 do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def progress(text: str) -> None:
    """Say what is being done."""
    print(f"   {text}", file=sys.stderr, flush=True)
