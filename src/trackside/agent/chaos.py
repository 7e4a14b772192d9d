"""Knows how to do a running task harm on purpose: kill it, freeze it, slow it down; and how to take it back.

Everything here acts on the processes and control groups of one task. What needs to go into the task is in
chaos_inside.py, what needs the kernel's help in chaos_network.py.
"""

import os
import signal
import threading
import time
from pathlib import Path

from trackside.agent import cgroup, tree
from trackside.agent.errands import Cannot, Target
from trackside.domain.exchange import Errand, TaskKey
from trackside.domain.wording import signal_name

ROUNDS_MAX = 100  # what hangs in the kernel is stopped when it comes back from there
ROUND_SECONDS = 0.01
STOPPED = ("T", "t", None)
CYCLE_SECONDS = 0.2
SLOW_PERCENT = 10.0  # of its CPU, where nothing else was asked for

_NO_PROCESS = "the task has no process any more"


def kill(errand: Errand, target: Target) -> str:
    """Send the task's main process a signal: KILL, or the one that `amount` says."""
    number = int(signal.SIGKILL if errand.amount is None else errand.amount)
    if number not in signal.valid_signals():
        raise Cannot(f"there is no signal {number}")
    try:
        pidfd = os.pidfd_open(target.main_pid)
    except ProcessLookupError:
        raise Cannot(_NO_PROCESS) from None
    try:
        if not target.alive:  # its number may name another process by now
            raise Cannot(_NO_PROCESS)
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        raise Cannot(_NO_PROCESS) from None
    finally:
        os.close(pidfd)
    return f"sent {signal_name(number)} to its main process {target.main_pid}"


class Brakes:
    """Freeze tasks and slow them down."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frozen: set[TaskKey] = set()
        self._cycles: dict[TaskKey, _Cycle] = {}

    def freeze(self, errand: Errand, target: Target) -> str:
        """Stop every process of the task; what is stopped cannot start another."""
        with self._lock:
            if target.key in self._cycles:
                raise Cannot("it is being slowed down by stops and starts: wait until that is over")
            self._frozen.add(target.key)
        stopped = _stop_all(target)
        if not stopped:
            self.thaw(errand, target)
            raise Cannot(_NO_PROCESS)
        count = "1 process" if len(stopped) == 1 else f"{len(stopped):,} processes"
        return f"stopped {count}{lasting(errand)}"

    def thaw(self, errand: Errand, target: Target) -> None:
        """Let all go on."""
        del errand
        tree.send(target.processes(), signal.SIGCONT)
        with self._lock:
            self._frozen.discard(target.key)

    def slow(self, errand: Errand, target: Target) -> str:
        """Leave the task a part of its CPU: by its group's quota, or else by stopping it most of the time."""
        percent = SLOW_PERCENT if errand.amount is None else errand.amount
        if not 0 < percent < 100:
            raise Cannot(f"a task can be slowed to more than 0 and less than 100 percent, not {percent:g}")
        quota = cpu_quota(target)
        if quota is not None:
            path, value = quota
            path.write_text(cgroup.share(value, percent / 100))
            return f"its CPU quota is {percent:g} % of what it was given{lasting(errand)}"
        with self._lock:
            if target.key in self._frozen:
                raise Cannot("it is frozen: wait until that is over")
            self._cycles[target.key] = _Cycle(target, percent / 100)
        return f"it is stopped for {100 - percent:g} % of the time{lasting(errand)}"

    def hasten(self, errand: Errand, target: Target) -> None:
        """Give the task its CPU back."""
        del errand
        quota = cpu_quota(target)
        if quota is not None:
            quota[0].write_text(quota[1])
            return
        with self._lock:
            cycle = self._cycles.pop(target.key, None)
        if cycle is not None:
            cycle.end()
        tree.send(target.processes(), signal.SIGCONT)


class _Cycle:
    """Stop a task and let it go on, over and over, in a thread."""

    def __init__(self, target: Target, share: float) -> None:
        self._target = target
        self._share = share
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slow", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            pids = self._target.processes()
            tree.send(pids, signal.SIGSTOP)
            self._ending.wait(CYCLE_SECONDS * (1 - self._share))
            tree.send(pids, signal.SIGCONT)
            self._ending.wait(CYCLE_SECONDS * self._share)


def _stop_all(target: Target) -> set[int]:
    """Stop what runs until nothing does: a process takes the signal in its own time, and may fork before."""
    found: set[int] = set()
    for _ in range(ROUNDS_MAX):
        moving = {pid for pid in target.processes() if tree.state(pid) not in STOPPED}
        if not moving:
            break
        found |= moving
        tree.send(moving, signal.SIGSTOP)
        time.sleep(ROUND_SECONDS)
    return found


def cpu_quota(target: Target) -> tuple[Path, str] | None:
    """Return the file of the task's CPU quota and what it was made with; None where there is none."""
    if target.dirs is None:
        return None
    given = cgroup.limits(target.dirs, frozenset({"cpu"}), target.resources)
    found = (one for one in given if one[0].name in cgroup.QUOTA_FILES and one[0].exists())
    return next(found, None)


def lasting(errand: Errand) -> str:
    """Say for how long."""
    return " until it ends" if errand.seconds is None else f" for {errand.seconds:g} s"
