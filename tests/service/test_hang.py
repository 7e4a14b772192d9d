"""Looking for hangs on a real database and a real metric store, with clocks and stacks of the test's own."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.service.test_supervisor import PROJECT, HandClock
from tests.unit.domain.builders import a_job, a_spec, ended, placed, started
from trackside.domain import rules
from trackside.domain.event import Event, EventKind
from trackside.domain.fault import HangPolicy, HangRule, RecoveryPolicy, Scenario
from trackside.domain.job import Job, JobId, Role, SuccessPolicy
from trackside.domain.metric import Metric, Sample
from trackside.domain.phase import Phase
from trackside.domain.resources import GIB, Accelerator, Resources
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.persistence.stores import Stores, open_stores
from trackside.ports import EventQuery, LatestColumns, Update
from trackside.supervise.hang import HangSettings, HangWatch

MINUTE = 60_000
START = 1_760_000_040_000
WORKER = Role(name="worker", count=2, resources=Resources(cpu_cores=2, memory_bytes=GIB))
GPU = Resources(cpu_cores=2, memory_bytes=GIB, cards=2, accelerator=Accelerator.GPU)
HANG_RETRY = RecoveryPolicy(hang_restart=True)


class CountingStore(EmbeddedMetricStore):
    """The real store, counting what it is asked."""

    asked_all = 0
    asked_one = 0

    def latest_of(
        self, metric: str, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, LatestColumns]:
        self.asked_all += 1
        return super().latest_of(metric, job_ids, since_ms=since_ms)

    def means(self, *args: Any, **kwargs: Any) -> Any:
        self.asked_one += 1
        return super().means(*args, **kwargs)


@dataclass
class World:
    """A database, a metric store and a watch over both."""

    stores: Stores
    metrics: CountingStore
    clock: HandClock
    settings: HangSettings = field(default_factory=HangSettings)
    snapshots: list[JobId] = field(default_factory=list)
    orders: int = 0
    jobs: list[Job] = field(default_factory=list)
    # What each task reads and writes in a minute; a task that is not named is not measured.
    moving: dict[str, float] = field(default_factory=dict)
    counted: dict[tuple[JobId, str], float] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)  # percent of its cores or cards

    def __post_init__(self) -> None:
        self.watch = self.new_watch()

    def new_watch(self) -> HangWatch:
        async def take(job: Job) -> list[Event]:
            self.snapshots.append(job.id)
            return [Event(job_id=job.id, at_ms=self.clock.wall_ms, message="the stacks were taken")]

        def changed() -> None:
            self.orders += 1

        return HangWatch(
            self.stores.jobs,
            self.metrics,
            self.clock,
            settings=self.settings,
            take_stacks=take,
            orders_changed=changed,
        )

    async def running(self, **fields: Any) -> Job:
        """Store a job whose tasks run since now."""
        values: dict[str, Any] = {"roles": (WORKER,), "hang": HangPolicy(), **fields}
        spec = a_spec(**values)

        def make(number: int) -> Update:
            job = a_job(number=number, family=number, project_id=PROJECT, spec=spec)
            job = replace(job, id=JobId(f"{number:032d}"), short_id=f"{number:016d}")
            return Update(job=placed(job, at_ms=self.clock.wall_ms))

        job = await self.stores.jobs.insert(PROJECT, make)
        for task in job.tasks:
            job = await self.apply(job, started(task.name, at_ms=self.clock.wall_ms))
        assert job.phase is Phase.RUNNING
        self.jobs.append(job)
        return job

    async def apply(self, job: Job, report: Any) -> Job:
        def change(job: Job) -> Update | None:
            moved = rules.apply_report(job, report)
            return Update(job=moved[0], events=moved[1]) if moved else None

        return await self.stores.jobs.update(job.id, change)

    async def minutes(self, count: int, *, looks: bool = True) -> None:
        """Let time go by: every task is measured once a minute, and then looked at."""
        for _ in range(count):
            self.clock.go(60)
            samples = [sample for job in self.jobs for sample in self._measured(self.now(job))]
            self.metrics.append(samples)
            if looks:
                await self.watch.look()

    def _measured(self, job: Job) -> list[Sample]:
        samples = []
        for task in job.tasks:
            if task.name not in self.moving or task.ended_at_ms is not None:
                continue
            total = self.counted.get((job.id, task.name), 1000.0) + self.moving[task.name]
            self.counted[job.id, task.name] = total
            rows: list[tuple[Metric, float, int | None]]
            rows = [(Metric.IO_BYTES, total, None), (Metric.LOG_BYTES, total, None)]
            used = self.used.get(task.name, 0.0)
            if task.resources.cards:
                rows += [(Metric.GPU_PERCENT, used, card) for card in (0, 1)]
            rows.append((Metric.CPU_PERCENT, used, None))
            samples += [
                Sample(job.id, task.name, metric, self.clock.wall_ms, value, card)
                for metric, value, card in rows
            ]
        return samples

    def now(self, job: Job) -> Job:
        found = self.stores.jobs.get(job.id)
        assert found is not None
        return found

    async def told(self, job: Job) -> list[Event]:
        page = await self.stores.jobs.events(EventQuery(job_id=job.id, limit=100))
        return list(page.events)


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[World]:
    stores = open_stores(f"sqlite:///{tmp_path}/state.db")
    await stores.start()
    await stores.identities.put_project(PROJECT, "p")
    clock = HandClock(wall_ms=START)
    metrics = CountingStore(tmp_path / "metrics.db", now_ms=clock.now_ms, background=False)
    yield World(stores, metrics, clock, moving={"worker-0": 0.0, "worker-1": 0.0})
    metrics.close()
    stores.close()


pytestmark = pytest.mark.anyio


async def test_a_job_that_does_nothing_is_told_once_with_the_stacks_of_its_tasks(world: World) -> None:
    job = await world.running()
    await world.minutes(30)
    assert world.now(job).suspicion is None  # the first reading came after a minute
    await world.minutes(5)
    suspicion = world.now(job).suspicion
    assert suspicion is not None
    assert suspicion.text == (
        "all 2 tasks seem to hang since 2025-10-09 08:55:00 UTC: "
        "no input or output for 30 min and 0.0 s of processor time in the window"
    )
    hanged = [event for event in await world.told(job) if event.kind is EventKind.HANGED]
    assert [event.message for event in hanged] == [suspicion.text]
    assert world.snapshots == [job.id]
    assert world.now(job).phase is Phase.RUNNING
    assert world.now(job).ending is None
    assert "the stacks were taken" in {event.message for event in await world.told(job)}


async def test_a_job_that_moves_again_is_no_longer_suspected(world: World) -> None:
    job = await world.running()
    await world.minutes(33)
    assert world.now(job).suspicion is not None
    world.moving = {"worker-0": 1.0, "worker-1": 1.0}
    await world.minutes(1)
    assert world.now(job).suspicion is None
    assert (await world.told(job))[-1].message == "it moves again"
    world.moving = {"worker-0": 0.0, "worker-1": 0.0}
    await world.minutes(32)
    assert world.now(job).suspicion is not None
    assert len(world.snapshots) == 2


async def test_what_was_suspected_of_all_is_then_suspected_of_those_that_still_stand(world: World) -> None:
    job = await world.running(recovery=RecoveryPolicy())
    await world.minutes(33)
    world.moving["worker-0"] = 1.0
    await world.minutes(1)
    assert world.now(job).suspicion is None
    await world.minutes(1)
    suspicion = world.now(job).suspicion
    assert suspicion is not None
    assert suspicion.task == "worker-1"
    world.moving["worker-1"] = 1.0
    await world.minutes(1)
    assert world.now(job).suspicion is None


async def test_cards_that_work_are_no_hang_and_cards_that_stand_are(world: World) -> None:
    job = await world.running(roles=(replace(WORKER, resources=GPU),))
    for minute in range(45):
        world.used = {"worker-0": 50.0 + minute % 7 * 5, "worker-1": 90.0 + minute % 3 * 4}
        await world.minutes(1)
    assert world.now(job).suspicion is None
    world.used = {"worker-0": 100.0, "worker-1": 100.0}
    await world.minutes(33)
    suspicion = world.now(job).suspicion
    assert suspicion is not None
    assert suspicion.text.endswith("and GPU use flat at 100 % (median 100, variance 0.0)")


async def test_one_task_that_stands_still_is_named_and_nothing_is_restarted(world: World) -> None:
    job = await world.running(recovery=HANG_RETRY)
    world.moving["worker-0"] = 512.0
    await world.minutes(35)
    suspicion = world.now(job).suspicion
    assert suspicion is not None
    assert suspicion.task == "worker-1"
    assert world.now(job).ending is None
    world.moving["worker-0"] = 0.0
    await world.minutes(33)
    ending = world.now(job).ending
    assert ending is not None  # now all stand still, which is more than was suspected
    assert (ending.phase, ending.scenario) == (Phase.RESTARTING, Scenario.HANGED)
    assert world.orders == 2


async def test_a_job_that_asked_for_it_is_restarted_in_place_and_watched_anew(world: World) -> None:
    job = await world.running(recovery=HANG_RETRY)
    await world.minutes(33)
    for task in world.now(job).tasks:
        report = ended(task.name, exit_code=None, signal=15, stopped_by_us=True, at_ms=world.clock.wall_ms)
        assert report.ended is not None
        await world.apply(job, replace(report, ended=replace(report.ended, duration_ms=1)))
    now = world.now(job)
    assert (now.phase, now.records[-1].number, now.suspicion) == (Phase.RESTARTING, 2, None)
    for task in now.tasks:
        await world.apply(job, started(task.name, at_ms=world.clock.wall_ms, attempt=2))
    await world.minutes(29)
    assert world.now(job).suspicion is None
    await world.minutes(4)
    assert world.now(job).suspicion is not None


async def test_silence_is_judged_by_the_logs_alone(world: World) -> None:
    world.used = {"worker-0": 90.0, "worker-1": 95.0}
    job = await world.running(hang=HangPolicy(rule=HangRule.SILENCE, window_seconds=600))
    await world.minutes(9)
    world.moving["worker-1"] = 5.0
    await world.minutes(1)
    world.moving["worker-1"] = 0.0
    await world.minutes(9)
    assert world.now(job).suspicion is None
    await world.minutes(2)
    suspicion = world.now(job).suspicion
    assert suspicion is not None
    assert "nothing was written to stdout or stderr for" in suspicion.text


async def test_a_job_that_does_not_end_when_one_task_has(world: World) -> None:
    policy = HangPolicy(rule=HangRule.NONE, exit_seconds=600)
    job = await world.running(hang=policy, success=SuccessPolicy.ALL)
    world.moving = {"worker-0": 3.0, "worker-1": 3.0}
    await world.minutes(20)
    await world.apply(job, ended("worker-0", at_ms=world.clock.wall_ms))
    await world.minutes(9)
    assert world.now(job).suspicion is None
    await world.minutes(3)
    suspicion = world.now(job).suspicion
    assert suspicion is not None
    assert "worker-0 succeeded 1" in suspicion.text
    assert suspicion.text.endswith("and worker-1 still runs")


async def test_nothing_is_said_of_what_is_not_measured(world: World) -> None:
    job = await world.running()
    await world.minutes(20)
    measured, world.moving = world.moving, {}
    await world.minutes(60)  # the agent is away
    world.moving = measured
    await world.minutes(29)
    assert world.now(job).suspicion is None
    await world.minutes(3)
    assert world.now(job).suspicion is not None


async def test_a_task_that_is_not_measured_any_more_is_not_judged_by_what_was(world: World) -> None:
    job = await world.running()
    await world.minutes(25)
    del world.moving["worker-1"]
    await world.minutes(30)
    assert world.now(job).suspicion is None


async def test_a_clock_that_jumps_ahead_makes_no_hang(world: World) -> None:
    job = await world.running()
    await world.minutes(10)
    world.clock.wall_ms += 3 * 3_600_000
    await world.minutes(29)
    assert world.now(job).suspicion is None
    await world.minutes(3)
    assert world.now(job).suspicion is not None


async def test_a_server_that_was_restarted_reads_what_it_needs(world: World) -> None:
    job = await world.running()
    await world.minutes(28)
    world.watch = world.new_watch()
    await world.minutes(1)
    assert world.now(job).suspicion is None
    await world.minutes(3)
    assert world.now(job).suspicion is not None
    world.watch = world.new_watch()
    await world.minutes(3)
    assert len(world.snapshots) == 1  # it is not told again
    world.moving["worker-1"] = 7.0
    await world.minutes(1)
    assert world.now(job).suspicion is None


async def test_jobs_that_move_cost_one_question_for_all(world: World) -> None:
    for _ in range(30):
        await world.running()
    world.moving = {"worker-0": 9.0, "worker-1": 9.0}
    await world.minutes(45)
    assert world.metrics.asked_all == 45
    assert world.metrics.asked_one == 0
    world.watch = world.new_watch()  # also after a restart
    await world.minutes(5)
    assert world.metrics.asked_one == 0


async def test_only_running_jobs_that_want_it_are_looked_at(world: World) -> None:
    nobody = await world.running(hang=None)
    stopping = await world.running()
    await world.minutes(20)

    def stop(job: Job) -> Update:
        moved, events = rules.ask_stop(job, by="ana", at_ms=world.clock.wall_ms)
        return Update(job=moved, events=events)

    await world.stores.jobs.update(stopping.id, stop)
    await world.minutes(20)
    assert world.now(nobody).suspicion is None
    assert world.now(stopping).suspicion is None
    assert world.snapshots == []


async def test_what_only_serves_others_may_wait(world: World) -> None:
    serving = Role(name="ps", count=1, resources=WORKER.resources, service=True)
    world.moving = {"ps-0": 4.0, "worker-0": 0.0, "worker-1": 0.0}
    job = await world.running(roles=(serving, WORKER))
    await world.minutes(33)
    suspicion = world.now(job).suspicion
    assert suspicion is not None
    assert suspicion.text.startswith("all 2 tasks seem to hang")


async def test_a_server_that_rehearses_has_one_window_for_all(world: World) -> None:
    world.settings = HangSettings(window_seconds=300)
    world.watch = world.new_watch()
    job = await world.running(hang=HangPolicy(window_seconds=43_200, exit_seconds=900))
    await world.minutes(8)
    assert world.now(job).suspicion is not None


async def test_a_job_that_is_deleted_meanwhile_does_not_stop_the_look(world: World) -> None:
    first, second = await world.running(), await world.running()
    await world.minutes(30)

    async def take(job: Job) -> list[Event]:
        if job.id == first.id:
            await world.stores.jobs.delete(first.id)
            world.jobs.remove(next(one for one in world.jobs if one.id == first.id))
        return []

    world.watch._take_stacks = take
    await world.minutes(2)
    assert world.stores.jobs.get(first.id) is None
    assert world.now(second).suspicion is not None
