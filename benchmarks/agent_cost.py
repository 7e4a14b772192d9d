"""What the agent costs while eight tasks of ten processes run and are read every five seconds."""

import os
import time
from pathlib import Path

from benchmarks.server import create, running_server
from benchmarks.tools import progress
from trackside.agent.control import agent_pid

TASKS = 8
PROCESSES = 10
SECONDS = 30


def run() -> None:
    """Print the agent's share of one core."""
    with running_server() as bench:
        client = bench.client()
        command = f"for i in $(seq {PROCESSES - 1}); do sleep 600 & done; sleep 600"
        jobs = [create(client, command, cores=0.1, memory_gb=0.1) for _ in range(TASKS)]
        for job_id in jobs:
            bench.wait(job_id, "Running")
        time.sleep(6)  # the first readings of young tasks are closer together
        pid = agent_pid(bench.data_dir)
        assert pid is not None
        progress(f"watching the agent for {SECONDS} s")
        before, began = _cpu_seconds(pid), time.monotonic()
        time.sleep(SECONDS)
        spent = _cpu_seconds(pid) - before
        share = 100 * spent / (time.monotonic() - began)
        print(f"agent: {share:.2f} % of one core, {_rss_mib(pid):.0f} MiB   (must be <= 1 %)")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
