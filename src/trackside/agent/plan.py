"""Knows how an order becomes a shim's plan: command, environment, limits, hiding places; starts nothing."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from trackside.agent import cgroup, sandbox
from trackside.agent.layout import Layout
from trackside.agent.record import Plan
from trackside.agent.sandbox import Identity
from trackside.agent.stage import Staged
from trackside.collect.probe import CgroupDirs
from trackside.domain.exchange import Launch
from trackside.domain.resources import Capacity

SHELL = "/bin/sh"
PYTHON = "python"  # found on the task's own PATH
MAKE_TRIES_MAX = 20
TMP_PREFIX = "trackside-"
SHM_PART = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What is the same for all tasks of a node."""

    layout: Layout
    who: Identity
    capacity: Capacity
    environment: dict[str, str]  # the agent's own; hardly anything of it is passed on
    extra_paths: tuple[Path, ...] = ()


def make_plan(node: Node, launch: Launch, staged: Staged, dirs: CgroupDirs | None, tmp_dir: str) -> Plan:
    """Return all that a shim must know to run the task."""
    task_dir = node.layout.work_dir(launch.key)
    prefixes = [Path(path) for path in launch.path_prefix]
    # A prefix is an environment's bin directory: what it runs lies beside it.
    needed = [*sandbox.python_paths(), *prefixes, *node.extra_paths]
    needed += [path.parent for path in prefixes if path.name == "bin" and path.parent != Path("/")]
    return {
        "key": str(launch.key),
        "argv": command(launch, staged),
        "env": sandbox.environment(
            who=node.who,
            key=str(launch.key),
            home=task_dir,
            tmp_dir=tmp_dir,
            path_prefix=launch.path_prefix,
            given={
                **sandbox.card_environment(launch.resources.accelerator, launch.cards, node.capacity),
                **staged.environment,
            },
            agent_environment=node.environment,
        ),
        "cwd": str(staged.working_dir),
        "must_exist": None if staged.boot_file is None else str(staged.boot_file),
        "log": str(node.layout.log_file(launch.key)),
        "grace_seconds": launch.grace_seconds,
        "user": [node.who.uid, node.who.gid] if node.who.drop else None,
        "covers": sandbox.covers(node.who, needed, own=task_dir, own_root=node.layout.work_root),
        "cgroup_joins": [] if dirs is None else cgroup.joins(dirs),
        "cgroup_unified": None if dirs is None or dirs.unified is None else str(dirs.unified),
        "oom_file": None if dirs is None else cgroup.oom_file(dirs),
        "memory_peak_file": None if dirs is None else cgroup.memory_peak_file(dirs),
        "tmp_dir": tmp_dir,
        # As much of the task's memory as the kernel gives a machine's own /dev/shm of the machine's.
        "shm_bytes": launch.resources.memory_bytes // SHM_PART if node.who.drop else None,
    }


def command(launch: Launch, staged: Staged) -> list[str]:
    """Return the argument vector: a shell's, or Python's with the boot file."""
    arguments = list(staged.arguments)
    if launch.shell_command is None:
        assert staged.boot_file is not None, "a launch has a command or a boot file"
        return [PYTHON, str(staged.boot_file), *arguments]
    if not arguments:
        return [SHELL, "-c", launch.shell_command]
    # "$@" hands the arguments on as they are: no word of them is read by the shell again.
    return [SHELL, "-c", f'{launch.shell_command} "$@"', SHELL, *arguments]


def make_work_dir(node: Node, launch: Launch) -> Path:
    """Make the task's own directory and its log's, and give the first to the task's user."""
    key = launch.key
    task_dir = _make_below(node.layout.work_root, key.job_id, str(key.attempt), key.task)
    _make_below(node.layout.logs_dir, key.job_id, str(key.attempt))
    if node.who.drop:
        os.chown(task_dir, node.who.uid, node.who.gid)
    return Path(task_dir)


def direct(launch: Launch, task_dir: Path) -> Staged | None:
    """Return where a task runs that needs nothing fetched or made; None if it does."""
    if (
        launch.code_url
        or launch.local_code_dir
        or launch.working_dir
        or launch.boot_file
        or launch.inputs
        or launch.outputs
    ):
        return None
    return Staged(
        environment={**launch.environment, "MA_JOB_DIR": str(task_dir)},
        arguments=launch.arguments,
        code_dir=None,
        boot_file=None,
        working_dir=task_dir,
        outputs={},
    )


def _make_below(root: Path, *names: str) -> str:
    """Make a directory below the root, from the top: most of a job's are there already or none is.

    An earlier attempt's last one may be removed at the same time, and the job's own with it: again then.
    """
    for _ in range(MAKE_TRIES_MAX):
        with contextlib.suppress(FileNotFoundError):
            return _make_once(root, *names)
    return _make_once(root, *names)


def _make_once(root: Path, *names: str) -> str:
    path = str(root)
    os.makedirs(path, mode=0o700, exist_ok=True)
    for name in names:
        path += "/" + name
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    return path
