"""Knows how to start and stop a node's agent from outside; refuses to know what the agent does."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from trackside.agent import forker, record, tree
from trackside.agent.cgroup import Cgroups, detect
from trackside.agent.launcher import Launcher
from trackside.agent.layout import GONE, Layout
from trackside.agent.state import TaskFiles

# What an agent may inherit. Never more: the server's environment may hold secrets.
PASSED_ON = ("PATH", "HOME", "TZ", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")
START_SECONDS_MAX = 20.0
APPEAR_SECONDS_MAX = 3.0  # from its start in the background to its lock; who waits longer may just ask again
STOP_SECONDS_MAX = 20.0
LOOK_SECONDS = 0.02


class AgentTrouble(Exception):
    """The agent could not be started or stopped; the text says what to do."""


def agent_pid(data_dir: Path) -> int | None:
    """Return the process of the agent that serves this directory."""
    return record.lock_holder(str(Layout(data_dir).lock_file))


def ensure_agent(
    data_dir: Path, *, task_user: str, node_id: str, npu_exporter_url: str = "", dcgm_exporter_url: str = ""
) -> bool:
    """Start an agent unless one runs; return whether one was started. It has the lock on return."""
    if agent_pid(data_dir) is not None:
        return False
    command = [sys.executable, "-m", "trackside.agent", "--data-dir", str(data_dir), "--daemon"]
    command += ["--node", node_id, "--task-user", task_user]
    command += ["--npu-exporter", npu_exporter_url, "--dcgm-exporter", dcgm_exporter_url]
    done = subprocess.run(
        command,
        env=_environment(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=START_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise AgentTrouble(f"the agent did not start: {done.stderr.decode(errors='replace').strip()}")
    deadline = time.monotonic() + APPEAR_SECONDS_MAX
    while agent_pid(data_dir) is None:
        if time.monotonic() > deadline:
            raise AgentTrouble(f"the agent did not start: see {Layout(data_dir).agent_dir / 'agent.log'}")
        time.sleep(LOOK_SECONDS)
    return True


def stop_agent(data_dir: Path, *, with_tasks: bool) -> None:
    """Stop the agent and the forker; with the tasks too, if asked, and see that none is left."""
    layout = Layout(data_dir)
    _end(str(layout.lock_file))
    if with_tasks:
        _kill_tasks(layout)
    _end(str(layout.agent_dir / forker.LOCK))


def _end(lock: str) -> None:
    """Have the holder of a lock end, and wait until it is free."""
    deadline = time.monotonic() + STOP_SECONDS_MAX
    asked = None
    while (pid := record.lock_holder(lock)) is not None:
        if pid != asked:
            asked = pid
            tree.send([pid], signal.SIGTERM)
        elif time.monotonic() > deadline:
            tree.send([pid], signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def _kill_tasks(layout: Layout) -> None:
    """Kill every task with its shim; nobody is left to start another."""
    groups = Cgroups(detect())
    for directory in layout.tasks_dir.iterdir() if layout.tasks_dir.is_dir() else ():
        if directory.name.startswith(GONE):
            continue
        while left := _task_processes(directory, groups):
            groups.kill(directory.name)
            tree.freeze_and_kill(lambda left=left: left)  # type: ignore[misc]
            time.sleep(LOOK_SECONDS)
        groups.remove(directory.name)
        tmp_dir = TaskFiles(directory).tmp_dir()
        if tmp_dir is not None:
            shutil.rmtree(tmp_dir, ignore_errors=True)
    if record.lock_holder(str(layout.agent_dir / forker.LOCK)) is not None:
        Launcher(layout.agent_dir).sweep()
    groups.remove_parents()


def _task_processes(state_dir: Path, groups: Cgroups) -> set[int]:
    """Return the task's shim and everything of the task."""
    shim = record.lock_holder(str(state_dir / record.LOCK))
    shims = set() if shim is None else {shim}
    found = shims | groups.processes(state_dir.name) | tree.marked(state_dir.name)
    return (found | tree.descendants(found)) & set(tree.parents())


def _environment(source: Mapping[str, str]) -> dict[str, str]:
    return {name: source[name] for name in PASSED_ON if name in source}
