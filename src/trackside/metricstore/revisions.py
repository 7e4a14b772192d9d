"""Counts, per job, when its samples last changed; remembers a bounded number of jobs."""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable

JOBS_REMEMBERED_MAX = 20_000


class Revisions:
    """A number per job that differs whenever its samples do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Begun at the clock, so that a number seen before a restart does not come back with other data.
        self._last = time.time_ns() // 1_000_000
        self._of: OrderedDict[str, int] = OrderedDict()
        self._others = 0  # of jobs that are not remembered; changes when one is let go

    def of(self, job: str) -> int:
        """Return the job's number."""
        return self._of.get(job, self._others)

    def touch(self, jobs: Iterable[str]) -> None:
        """Give jobs a new number each."""
        with self._lock:
            for job in jobs:
                self._last += 1
                self._of[job] = self._last
                self._of.move_to_end(job)
            if len(self._of) > JOBS_REMEMBERED_MAX:
                self._last += 1
                self._others = self._last
                while len(self._of) > JOBS_REMEMBERED_MAX // 2:
                    self._of.popitem(last=False)
