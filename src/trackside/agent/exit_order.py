"""Knows in which order the main processes of a job's tasks on this node ended, to the kernel's own accuracy.

Each shim notes when it noticed the exit of its process, but a shim may wait for a CPU for longer than lies
between two exits. One epoll set lists the processes in the order in which they ended, however late it is
looked at: where the shims' clocks contradict that order, they are put right. Runs in the loop's thread.
"""

import os
import select
from collections import OrderedDict
from dataclasses import dataclass, field

from trackside.agent import tree
from trackside.agent.loop import Loop
from trackside.agent.task import boot_ms
from trackside.domain.exchange import TaskKey
from trackside.domain.job import JobId

JOBS_MAX = 256  # remembered


@dataclass(slots=True)
class _Exits:
    """The tasks of one job that ended: each one's place in the order, and the moments that were told."""

    places: dict[TaskKey, tuple[int, int]] = field(default_factory=dict)  # and when that was seen
    told: dict[TaskKey, int] = field(default_factory=dict)


class ExitOrder:
    """Watches main processes."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._jobs: OrderedDict[JobId, _Exits] = OrderedDict()

    def hold(self, key: TaskKey, pidfd: int) -> None:
        """Take note of when this process ends; the descriptor is ours from now on.

        Of one that has ended already the order is not known any more.
        """
        if _is_over(pidfd):
            os.close(pidfd)
        else:
            self._loop.watch(pidfd, lambda: self._ended(key, pidfd))

    def find(self, key: TaskKey, pid: int, start_ticks: int | None) -> None:
        """Take note of when a process ends that an earlier agent held."""
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        if tree.start_ticks(pid) == start_ticks:
            self.hold(key, fd)
        else:
            os.close(fd)

    def moment(self, key: TaskKey, noticed_ms: int) -> int:
        """Return when a task ended, such that the moments of a job's tasks are in the order of their ends.

        Moments lie apart by as many milliseconds as places, so that those told later find theirs.
        """
        exits = self._jobs.get(key.job_id)
        if exits is None or key not in exits.places or key in exits.told:
            return noticed_ms
        place, seen_ms = exits.places[key]
        told = [(exits.places[one][0], at_ms) for one, at_ms in exits.told.items()]
        earliest = max([at_ms + place - other for other, at_ms in told if other < place], default=0)
        latest = min([at_ms + place - other for other, at_ms in told if other > place], default=noticed_ms)
        exits.told[key] = max(earliest, min(noticed_ms, seen_ms, latest))
        return exits.told[key]

    def _ended(self, key: TaskKey, fd: int) -> None:
        self._loop.unwatch(fd)
        os.close(fd)
        exits = self._jobs.setdefault(key.job_id, _Exits())
        self._jobs.move_to_end(key.job_id)
        exits.places[key] = (len(exits.places), boot_ms())
        while len(self._jobs) > JOBS_MAX:
            self._jobs.popitem(last=False)


def _is_over(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))
