"""Knows when running jobs are looked at for hangs, and what follows from what is seen.

One look asks for the newest counters of all jobs at once. Only where such a counter has stood still for as
long as a job may is that job's window read from the store; so thousands of jobs that move cost one question.
What is remembered from look to look only saves reading: it is made again from the store after a restart.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trackside.domain import rules
from trackside.domain.errors import JobNotFound
from trackside.domain.event import Event
from trackside.domain.fault import HangPolicy, HangRule
from trackside.domain.hang import Finding, State, judge
from trackside.domain.job import Job, JobId, Task, TaskName, TaskState
from trackside.domain.metric import Metric
from trackside.domain.phase import Phase
from trackside.ports import Clock, JobStore, LatestOfMetric, MetricStore, SeriesKey, Update
from trackside.supervise.hang_window import Window, counter_moved_ms, counter_of, judged_tasks

log = logging.getLogger(__name__)

RECENT_MS = 3_600_000  # a newest counter older than this is none
READS_PER_LOOK_MAX = 500  # of single jobs; those read longest ago come first
SNAPSHOTS_AT_ONCE_MAX = 8

Newest = Mapping[JobId, Mapping[SeriesKey, tuple[int, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSettings:
    """How often is looked, and by what."""

    period_seconds: float = 60.0
    window_seconds: float | None = None  # in place of what every job asks for: to rehearse
    sample_seconds: float = 5.0

    @property
    def silent_seconds_max(self) -> float:
        """Return for how long a task may go without a reading and still be judged."""
        return max(2 * self.period_seconds, 3 * self.sample_seconds)


@dataclass(slots=True)
class _Pulse:
    """The newest counter of a task and since when it has that value."""

    value: float
    at_ms: int
    since_ms: int
    steady: bool = False  # it had the same value at the last look
    heard_ms: int | None = None  # when its newest reading came, by our own steady clock; None: not yet


class HangWatch:
    """Looks at all running jobs that want it, for ever."""

    def __init__(
        self,
        store: JobStore,
        metrics: MetricStore,
        clock: Clock,
        *,
        settings: HangSettings,
        take_stacks: Callable[[Job], Awaitable[Sequence[Event]]],
        orders_changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._settings = settings
        self._take_stacks = take_stacks
        self._orders_changed = orders_changed
        self._pulses: dict[tuple[JobId, TaskName, int], _Pulse] = {}
        self._read_ms: dict[JobId, int] = {}
        self._snapshots = asyncio.Semaphore(SNAPSHOTS_AT_ONCE_MAX)
        self.failures = 0

    async def run(self) -> None:
        """Look for ever; a look that fails is logged, counted and made again."""
        while True:
            await asyncio.sleep(self._settings.period_seconds)
            try:
                await self.look()
            except Exception:
                self.failures += 1
                log.exception("looking for hangs failed; the next look tries again")

    async def look(self) -> None:
        """Look at every job once and do what that calls for."""
        jobs = [job for job in await self._store.active() if _is_watched(job)]
        found = await asyncio.to_thread(self._found, jobs)  # some hundred milliseconds for 5,000 jobs
        await asyncio.gather(*(self._follow(job, finding) for job, finding in found))

    def _found(self, jobs: Sequence[Job]) -> list[tuple[Job, Finding]]:
        """Judge the jobs whose counters call for it."""
        self._feel(jobs, self._newest(jobs))
        due = sorted(
            (job for job in jobs if self._may_hang(job)), key=lambda job: self._read_ms.get(job.id, 0)
        )[:READS_PER_LOOK_MAX]
        self._read_ms.update(dict.fromkeys((job.id for job in due), self._clock.monotonic_ms()))
        return [(job, self._judge(job)) for job in due]

    def _newest(self, jobs: Sequence[Job]) -> dict[Metric, Newest]:
        """Return the newest counters of all jobs."""
        asked: dict[Metric, list[JobId]] = {}
        for job in jobs:
            asked.setdefault(counter_of(self._policy(job)), []).append(job.id)
        return {metric: self._latest(metric, job_ids) for metric, job_ids in asked.items()}

    def _latest(self, metric: Metric, job_ids: Sequence[JobId]) -> Newest:
        since_ms = self._clock.now_ms() - RECENT_MS
        if not isinstance(self._metrics, LatestOfMetric):
            return self._metrics.latest(job_ids, since_ms=since_ms)
        found = self._metrics.latest_of(metric, job_ids, since_ms=since_ms)
        return {
            job_id: dict(zip(one.keys, zip(one.at_ms, one.values, strict=True), strict=True))
            for job_id, one in found.items()
        }

    def _feel(self, jobs: Sequence[Job], newest: Mapping[Metric, Newest]) -> None:
        """Compare the newest counters with those of the look before."""
        former, self._pulses = self._pulses, {}
        now_ms = self._clock.monotonic_ms()
        for job in jobs:
            metric = counter_of(self._policy(job))
            counters = newest[metric].get(job.id, {})
            for task in judged_tasks(job):
                found = counters.get(SeriesKey(task.name, metric))
                started_ms = task.started_at_ms or 0
                if found is not None and found[0] >= started_ms:
                    key = job.id, task.name, task.attempt
                    self._pulses[key] = _felt(former.get(key), *found, started_ms, now_ms)
        known = {job.id for job in jobs}
        self._read_ms = {job_id: at_ms for job_id, at_ms in self._read_ms.items() if job_id in known}

    def _living(self, job: Job) -> dict[TaskName, _Pulse]:
        """Return the counters that are being measured: of the others nothing new can be said."""
        oldest_ms = self._clock.monotonic_ms() - self._settings.silent_seconds_max * 1000
        pulses = {
            task.name: self._pulses.get((job.id, task.name, task.attempt)) for task in judged_tasks(job)
        }
        return {
            name: pulse
            for name, pulse in pulses.items()
            if pulse is not None and pulse.heard_ms is not None and pulse.heard_ms >= oldest_ms
        }

    def _may_hang(self, job: Job) -> bool:
        """Say whether the counters leave it open that a job hangs, or that one under suspicion moves."""
        policy, pulses = self._policy(job), self._living(job).values()
        if not pulses:
            return False
        if job.suspicion is not None or _may_hang_at_exit(job, policy, max(one.at_ms for one in pulses)):
            return True
        window_ms = policy.window_seconds * 1000
        still = sum(one.steady and one.at_ms - one.since_ms >= window_ms for one in pulses)
        if policy.rule is HangRule.SILENCE:
            return still == len(judged_tasks(job))
        return policy.rule is HangRule.ACTIVITY and still > 0

    def _judge(self, job: Job) -> Finding:
        """Say from what is stored whether a running job hangs."""
        policy, pulses = self._policy(job), self._living(job)
        times = [pulse.at_ms for pulse in pulses.values()]
        window = Window(
            store=self._metrics,
            job=job,
            policy=policy,
            newest_ms=(min(times), max(times)),
            sample_ms=int(self._settings.sample_seconds * 1000),
        )
        courses = window.courses(judged_tasks(job), living=pulses.keys())
        for course in courses:
            moved_ms = counter_moved_ms(course)
            if moved_ms is not None:  # not to be read again so soon
                pulses[course.task].since_ms = max(pulses[course.task].since_ms, moved_ms)
        over = [task for task in job.tasks if task.state is TaskState.ENDED]
        return judge(
            courses,
            policy,
            succeeded=[(task.name, task.ended_at_ms or 0) for task in over if task.exit_code == 0],
            ended_at_ms=max((task.ended_at_ms or 0 for task in over), default=None),
        )

    def _policy(self, job: Job) -> HangPolicy:
        policy, window = job.spec.hang, self._settings.window_seconds
        assert policy is not None, "only jobs that want it are watched"
        if window is None:
            return policy
        exit_seconds = None if policy.exit_seconds is None else int(window)
        return replace(policy, window_seconds=int(window), exit_seconds=exit_seconds)

    async def _follow(self, job: Job, finding: Finding) -> None:
        """Act on what was found: tell it, restart what asked for it, or take a suspicion back."""
        suspected, hangs = job.suspicion, finding.state is State.HANGS
        if suspected is not None and suspected.task is None:  # all tasks were suspected
            if finding.state is State.MOVES or (hangs and not finding.everyone):
                await self._change(job, _clearing(job, self._clock.now_ms()))
        elif suspected is not None and finding.state is State.MOVES:
            await self._change(job, _clearing(job, self._clock.now_ms()))
        elif hangs and (suspected is None or finding.everyone):
            async with self._snapshots:
                events = await self._take_stacks(job)  # before a restart ends what there is to see
            await self._change(job, _suspecting(job, finding, events, self._clock.now_ms()))
            self._orders_changed()

    async def _change(self, job: Job, change: Callable[[Job], Update | None]) -> None:
        try:
            await self._store.update(job.id, change)
        except JobNotFound:
            log.info("%s was deleted while it was looked at", job.id)


def _is_watched(job: Job) -> bool:
    return job.spec.hang is not None and job.phase is Phase.RUNNING and job.ending is None


def _may_hang_at_exit(job: Job, policy: HangPolicy, at_ms: int) -> bool:
    done = [
        task.ended_at_ms or 0 for task in job.tasks if task.state is TaskState.ENDED and task.exit_code == 0
    ]
    return policy.exit_seconds is not None and bool(done) and at_ms - min(done) >= policy.exit_seconds * 1000


def _felt(before: _Pulse | None, at_ms: int, value: float, started_ms: int, now_ms: int) -> _Pulse:
    if before is None:
        # How long it has stood still is not known; nothing is read for it before it stood still for a look.
        return _Pulse(value, at_ms, started_ms)
    heard_ms = now_ms if at_ms != before.at_ms else before.heard_ms
    if value != before.value:
        return _Pulse(value, at_ms, at_ms, heard_ms=heard_ms)
    return _Pulse(value, at_ms, before.since_ms, steady=True, heard_ms=heard_ms)


def _clearing(seen: Job, at_ms: int) -> Callable[[Job], Update | None]:
    def change(job: Job) -> Update | None:
        moved = rules.clear(job, at_ms=at_ms) if _is_same(job, seen) else None
        return Update(job=moved[0], events=moved[1]) if moved else None

    return change


def _suspecting(
    seen: Job, finding: Finding, events: Sequence[Event], at_ms: int
) -> Callable[[Job], Update | None]:
    def change(job: Job) -> Update | None:
        if not _is_same(job, seen) or finding.reason is None:
            return None
        # What is now known of all tasks takes the place of what was suspected of some.
        free = replace(job, suspicion=None)
        moved = rules.suspect(free, finding.reason, at_ms=at_ms, restart=finding.everyone)
        return Update(job=moved[0], events=(*moved[1], *events)) if moved else None

    return change


def _is_same(job: Job, seen: Job) -> bool:
    """Say whether a job is still in the attempt that was looked at, with the same tasks."""
    return _keys(job.tasks) == _keys(seen.tasks)


def _keys(tasks: Sequence[Task]) -> list[tuple[str, int, TaskState]]:
    return [(task.name, task.attempt, task.state) for task in tasks]
