"""Knows how to end a task whose shim was killed: find all that is left of it, kill it, see it empty."""

import time

from trackside.agent import tree
from trackside.agent.cgroup import Cgroups
from trackside.agent.launcher import Launcher

ROUND_SECONDS_MIN = 0.01
ROUND_SECONDS_MAX = 1.0


def clean(
    name: str, *, cgroups: Cgroups, launcher: Launcher, main_process: tuple[int, int | None] | None
) -> None:
    """Kill what is left of a task and return once nothing was found twice in a row; call it in a thread.

    `main_process` is the last known pid and its start time: the pid counts only if it is still the same one.
    """
    empty_looks = 0
    pause = ROUND_SECONDS_MIN
    while empty_looks < 2:
        cgroups.kill(name)
        killed = tree.freeze_and_kill(lambda: remains(name, cgroups, main_process))
        left = launcher.sweep()
        if killed or left:
            empty_looks = 0
            time.sleep(pause)
            pause = min(ROUND_SECONDS_MAX, 2 * pause)
        else:
            empty_looks += 1


def remains(name: str, cgroups: Cgroups, main_process: tuple[int, int | None] | None) -> set[int]:
    """Return the living processes of a task, by every trace it may have left."""
    found = cgroups.processes(name) | tree.marked(name)
    if main_process is not None and tree.start_ticks(main_process[0]) == main_process[1]:
        found.add(main_process[0])
    found |= tree.descendants(found)
    return found & set(tree.parents())  # zombies wait for their parents and do nothing any more
