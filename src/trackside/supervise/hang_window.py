"""Knows which readings of a job a detector of hangs is given; judges nothing.

Windows are read in at least ten steps, of a minute at most: whole minutes are what the store answers best.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trackside.domain.fault import HangPolicy, HangRule
from trackside.domain.hang import Course, Series, still_since
from trackside.domain.job import Job, Task, TaskName, TaskState
from trackside.domain.metric import MINUTE_MS, Metric
from trackside.domain.policies import role_of
from trackside.domain.resources import Accelerator
from trackside.ports import MetricStore

STEPS_PER_WINDOW = 10
MARGIN_STEPS = 4  # read before the window: its first reading may stand before it
USE_OF = {Accelerator.GPU: Metric.GPU_PERCENT, Accelerator.NPU: Metric.NPU_PERCENT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Reads what was measured of a job lately."""

    store: MetricStore
    job: Job
    policy: HangPolicy
    newest_ms: tuple[int, int]  # the newest reading of its tasks, first and last: nodes' clocks differ
    sample_ms: int

    def courses(self, tasks: Sequence[Task], *, living: Collection[TaskName]) -> list[Course]:
        """Return what was measured of tasks; of cards and processors only if that can matter.

        Of a task that is not measured any more nothing is told.
        """
        counters = self._read(counter_of(self.policy))
        courses = [
            self._course(task, counters.get(task.name, {}).get(None, ()) if task.name in living else ())
            for task in tasks
        ]
        if self.policy.rule is not HangRule.ACTIVITY or not self._any_still(courses):
            return courses
        uses = {metric: self._read(metric) for metric in {_use_of(task) for task in tasks}}
        return [
            _with_use(course, task, uses[_use_of(task)].get(task.name, {}))
            for course, task in zip(courses, tasks, strict=True)
        ]

    @property
    def _step_ms(self) -> int:
        return max(self.sample_ms, min(MINUTE_MS, self.policy.window_seconds * 1000 // STEPS_PER_WINDOW))

    def _read(self, metric: Metric) -> dict[str, dict[int | None, Series]]:
        """Return the readings of a metric by task and card."""
        seconds = max(self.policy.window_seconds, self.policy.exit_seconds or 0)
        found = self.store.means(
            self.job.id,
            task=None,
            metric=metric,
            start_ms=self.newest_ms[0] - seconds * 1000 - MARGIN_STEPS * self._step_ms,
            end_ms=self.newest_ms[1] + 1,
            step_ms=self._step_ms,
        )
        series: dict[str, dict[int | None, Series]] = {}
        for key, means in found.items():
            series.setdefault(key.task, {})[key.card] = sorted(means.items())
        return series

    def _course(self, task: Task, series: Series) -> Course:
        # A step in which the task started may hold readings of the one before it.
        own = [one for one in series if one[0] >= (task.started_at_ms or 0)]
        if self.policy.rule is HangRule.SILENCE:
            return Course(task=task.name, step_ms=self._step_ms, log_bytes=own)
        return Course(task=task.name, step_ms=self._step_ms, io_bytes=own)

    def _any_still(self, courses: Iterable[Course]) -> bool:
        known = [(course, still_since(course.io_bytes, math.inf)) for course in courses]
        still_ms = [course.io_bytes[-1][0] - since[0] for course, since in known if since is not None]
        return max(still_ms, default=0) >= self.policy.window_seconds * 1000


def judged_tasks(job: Job) -> list[Task]:
    """Return the running tasks by which a job is judged: what only serves others waits by right."""
    running = [task for task in job.tasks if task.state is TaskState.RUNNING]
    return [task for task in running if not role_of(job, task).service] or running


def counter_of(policy: HangPolicy) -> Metric:
    """Return what must stand still for a job to hang."""
    return Metric.LOG_BYTES if policy.rule is HangRule.SILENCE else Metric.IO_BYTES


def counter_moved_ms(course: Course) -> int | None:
    """Return when the counter was last seen to move; None: it was not."""
    known = still_since(course.io_bytes or course.log_bytes, math.inf)
    return known[0] if known is not None and known[1] else None


def _use_of(task: Task) -> Metric:
    return USE_OF.get(task.resources.accelerator, Metric.CPU_PERCENT)


def _with_use(course: Course, task: Task, uses: Mapping[int | None, Series]) -> Course:
    if task.resources.accelerator in USE_OF:
        cards = {card: series for card, series in uses.items() if card is not None}
        return replace(course, cards=cards, family=task.resources.accelerator.upper())
    cores = task.resources.cpu_cores
    return replace(course, cpu_cores=[(at, value / 100 * cores) for at, value in uses.get(None, ())])
