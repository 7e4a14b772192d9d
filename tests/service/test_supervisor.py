"""The supervisor on a real database, with a clock and an engine of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.unit.domain.builders import NODE, a_spec, ended, started
from trackside.domain import rules
from trackside.domain.errors import Invalid, JobNotFound
from trackside.domain.exchange import Orders, Report, TaskKey
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import Job, JobId, NodeId, ProjectId
from trackside.domain.phase import Phase
from trackside.domain.reason import ReasonCode
from trackside.domain.resources import GIB, Capacity
from trackside.objectstore.local import open_objects
from trackside.persistence.stores import Stores, open_stores
from trackside.ports import EventQuery, Node, Update
from trackside.service.catalog import Catalog
from trackside.service.jobs import JobChange, Jobs
from trackside.service.pools import Pools
from trackside.supervise.loop import NODE_SILENT_SECONDS, Supervisor

PROJECT = ProjectId("p")
ANA = Caller(user="ana", project_id=PROJECT, role=UserRole.USER)
BOB = Caller(user="bob", project_id=ProjectId("other"), role=UserRole.USER)
CAPACITY = Capacity(cpu_cores=2, memory_bytes=8 * GIB)


@dataclass
class HandClock:
    """A clock that goes when it is told to."""

    wall_ms: int = 1_000_000
    steady_ms: int = 500

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.steady_ms

    def go(self, seconds: float) -> None:
        self.wall_ms += int(seconds * 1000)
        self.steady_ms += int(seconds * 1000)


@dataclass
class HandEngine:
    """An engine whose nodes the test speaks for."""

    seen_ms: int
    notices: int = 0
    next_port: int = 20_000
    capacity: Capacity = CAPACITY

    def nodes(self) -> Sequence[Node]:
        return [
            Node(
                id=NODE,
                ip="127.0.0.1",
                capacity=self.capacity,
                last_seen_ms=0,
                seen_monotonic_ms=self.seen_ms,
            )
        ]

    def free_ports(self, node_id: NodeId, count: int, taken: frozenset[int]) -> int:
        assert self.next_port not in taken
        self.next_port += count
        return self.next_port - count

    def changed(self) -> None:
        self.notices += 1

    async def orders(self, node_id: NodeId, version: int, *, wait_seconds: float) -> Orders:
        raise NotImplementedError


@dataclass
class World:
    """Everything a test needs, on one database file."""

    stores: Stores
    clock: HandClock
    engine: HandEngine
    supervisor: Supervisor
    jobs: Jobs
    pools: Pools
    forgotten: list[JobId] = field(default_factory=list)
    seq: int = 0

    async def report(self, job: Job, make: Callable[..., Report], name: str, **fields: object) -> Job:
        """Apply a report of a task as the agent's link would."""
        self.seq += 1
        report = make(name, at_ms=self.clock.wall_ms, **fields)
        parts = {
            what: replace(part, key=TaskKey(job.id, part.key.attempt, part.key.task))
            for what in ("started", "ended")
            if (part := getattr(report, what)) is not None
        }
        numbered = replace(report, seq=self.seq, **parts)

        def apply(job: Job, report: Report) -> Update | None:
            change = rules.apply_report(job, report)
            return Update(job=change[0], events=change[1]) if change else None

        await self.stores.jobs.apply_reports(NODE, "stream", [numbered], apply)
        found = self.stores.jobs.get(job.id)
        assert found is not None
        return found

    def now(self, job: Job) -> Job:
        found = self.stores.jobs.get(job.id)
        assert found is not None
        return found


@pytest.fixture
async def world(tmp_path: Path, anyio_backend: str) -> AsyncIterator[World]:
    stores = open_stores(f"sqlite:///{tmp_path}/state.db")
    await stores.start()
    await stores.identities.put_project(PROJECT, "p")
    clock = HandClock()
    engine = HandEngine(seen_ms=clock.steady_ms)
    forgotten: list[JobId] = []

    async def forget(job: Job) -> None:
        forgotten.append(job.id)
        await stores.jobs.delete(job.id)

    supervisor = Supervisor(
        stores.jobs,
        engine,
        clock,
        forget=forget,
        closed_nodes=lambda: pools.closed_nodes(),
        isolated_cards=lambda: pools.isolated_cards(),
        isolate=lambda faulty, why: pools.isolate(faulty, why),
    )
    catalog = Catalog(lambda: (), (), strict_images=False)
    pools = Pools(
        store=stores.pools,
        jobs=stores.jobs,
        catalog=catalog,
        nodes=engine.nodes,
        clock=clock,
        changed=supervisor.wake,
    )
    jobs = Jobs(
        store=stores.jobs,
        catalog=catalog,
        objects=open_objects(tmp_path / "obs"),
        clock=clock,
        pools=pools,
        grace_seconds=5,
        wake=supervisor.wake,
        orders_changed=engine.changed,
    )
    yield World(stores, clock, engine, supervisor, jobs, pools, forgotten)
    stores.close()


pytestmark = pytest.mark.anyio


async def test_a_submitted_job_is_placed_and_the_intent_is_durable_before_the_engine_hears(
    world: World,
) -> None:
    job = await world.jobs.submit(ANA, a_spec(2))
    assert job.phase is Phase.QUEUED
    await world.supervisor.round()
    placed = world.now(job)
    assert placed.phase is Phase.STARTING
    assert placed.records[-1].master_port == 20_000
    assert world.engine.notices == 1
    await world.supervisor.round()
    assert world.engine.notices == 1, "nothing changed, nobody is woken"


async def test_a_job_waits_until_there_is_room(world: World) -> None:
    first = await world.jobs.submit(ANA, a_spec(2))
    second = await world.jobs.submit(ANA, a_spec(1))
    await world.supervisor.round()
    assert world.now(second).phase is Phase.QUEUED
    for name in ("worker-0", "worker-1"):
        first = await world.report(first, started, name)
    for name in ("worker-0", "worker-1"):
        first = await world.report(first, ended, name)
    assert first.phase is Phase.SUCCEEDED
    await world.supervisor.round()
    assert world.now(second).phase is Phase.STARTING


async def test_a_job_is_stopped_after_its_longest_run_by_a_clock_that_does_not_jump(world: World) -> None:
    job = await world.jobs.submit(ANA, a_spec(1, max_seconds=3600))
    await world.supervisor.round()
    await world.report(job, started, "worker-0")
    await world.supervisor.round()
    world.clock.wall_ms += 7_200_000  # somebody set the clock; no time went by
    await world.supervisor.round()
    assert world.now(job).phase is Phase.RUNNING
    world.clock.steady_ms += 3_600_000
    world.engine.seen_ms = world.clock.steady_ms
    await world.supervisor.round()
    stopping = world.now(job)
    assert stopping.phase is Phase.STOPPING
    assert stopping.ending is not None
    assert stopping.ending.reason.text == "stopped after 1 h, the longest it may run"
    done = await world.report(job, ended, "worker-0", exit_code=None, signal=15, stopped_by_us=True)
    assert done.phase is Phase.STOPPED


async def test_a_node_that_falls_silent_loses_its_jobs_until_it_answers(world: World) -> None:
    job = await world.jobs.submit(ANA, a_spec(1))
    await world.supervisor.round()
    await world.report(job, started, "worker-0")
    world.clock.go(NODE_SILENT_SECONDS + 1)
    await world.supervisor.round()
    assert world.now(job).phase is Phase.LOST
    world.engine.seen_ms = world.clock.steady_ms
    await world.supervisor.round()
    assert world.now(job).phase is Phase.RUNNING


async def test_a_deleted_job_is_hidden_at_once_and_goes_when_its_tasks_have(world: World) -> None:
    job = await world.jobs.submit(ANA, a_spec(1))
    await world.supervisor.round()
    await world.report(job, started, "worker-0")
    await world.jobs.delete(ANA, job.id)
    with pytest.raises(JobNotFound):
        world.jobs.show(ANA, job.id)
    await world.supervisor.round()
    assert world.forgotten == []
    await world.report(job, ended, "worker-0", exit_code=None, signal=15, stopped_by_us=True)
    await world.supervisor.round()
    assert world.forgotten == [job.id]
    assert world.stores.jobs.get(job.id) is None


async def test_a_job_stopped_while_it_was_being_placed_is_not_started(world: World) -> None:
    job = await world.jobs.submit(ANA, a_spec(1))
    await world.jobs.stop(ANA, job.id)
    await world.supervisor.round()
    assert world.now(job).phase is Phase.STOPPED
    assert world.now(job).tasks == ()


async def test_the_loop_wakes_at_once_and_outlives_a_round_that_fails(world: World) -> None:
    nodes, failing = world.engine.nodes, True

    def broken() -> Sequence[Node]:
        if failing:
            raise OSError("no nodes today")
        return nodes()

    world.engine.nodes = broken  # type: ignore[method-assign]
    loop = asyncio.create_task(world.supervisor.run())
    job = await world.jobs.submit(ANA, a_spec(1))
    while not world.supervisor.failures:
        await asyncio.sleep(0.01)
    failing = False
    world.supervisor.wake()
    while world.now(job).phase is Phase.QUEUED:
        await asyncio.sleep(0.01)
    loop.cancel()
    assert world.now(job).phase is Phase.STARTING


async def test_jobs_of_other_projects_do_not_exist(world: World) -> None:
    job = await world.jobs.submit(ANA, a_spec(1))
    for look in (world.jobs.stop, world.jobs.delete):
        with pytest.raises(JobNotFound):
            await look(BOB, job.id)
    with pytest.raises(JobNotFound):
        world.jobs.find(BOB, number=job.number)
    assert world.jobs.find(ANA, number=job.number).id == job.id
    assert world.jobs.find(ANA, short_id=job.short_id).id == job.id


async def test_what_may_change_changes_and_priority_only_in_the_queue(world: World) -> None:
    job = await world.jobs.submit(ANA, a_spec(1))
    wanted = JobChange(description="d", priority=3, preemptible=True, annotations={"a": "b"}, tags={"t": "u"})
    changed = await world.jobs.change(ANA, job.id, wanted)
    assert (changed.spec.description, changed.spec.priority, changed.spec.preemptible) == ("d", 3, True)
    assert (changed.spec.annotations, changed.spec.tags) == ({"a": "b"}, {"t": "u"})
    await world.supervisor.round()
    with pytest.raises(Invalid, match="only be changed while the job is queued"):
        await world.jobs.change(ANA, job.id, JobChange(priority=1))


async def test_an_unused_image_is_said_in_an_event(world: World) -> None:
    from trackside.domain.job import RuntimeChoice

    job = await world.jobs.submit(ANA, a_spec(1, runtime=RuntimeChoice(image="torch:2")))
    page = await world.jobs.events(ANA, EventQuery(job_id=job.id))
    assert [event.message for event in page.events] == [
        "submitted by ana",
        "the image torch:2 was not used: no engine stands for it here",
    ]


async def test_a_preempted_job_makes_room_waits_and_runs_again(world: World) -> None:
    low = await world.jobs.submit(ANA, a_spec(2, name="low", preemptible=True))
    await world.supervisor.round()
    for name in ("worker-0", "worker-1"):
        low = await world.report(low, started, name)
    high = await world.jobs.submit(ANA, a_spec(1, name="high", priority=3))
    notices = world.engine.notices
    await world.supervisor.round()
    told_to_end = world.now(low)
    assert told_to_end.ending is not None
    assert told_to_end.ending.phase is Phase.QUEUED
    assert world.engine.notices == notices + 1, "the agents are told"
    pending = world.supervisor.explain(high.id)
    assert pending is not None
    assert pending.code is ReasonCode.WAITING_FOR_PREEMPTED
    await world.supervisor.round()
    assert world.now(high).phase is Phase.QUEUED, "the room is not empty yet"
    for name in ("worker-0", "worker-1"):
        low = await world.report(low, ended, name, exit_code=None, signal=15, stopped_by_us=True)
    assert low.phase is Phase.QUEUED
    await world.supervisor.round()
    assert world.now(high).phase is Phase.STARTING
    assert world.supervisor.explain(high.id) is None
    assert world.supervisor.reasons([low.id])[low.id].code is ReasonCode.WAITING_FOR_ROOM
    await world.report(high, started, "worker-0")
    await world.report(high, ended, "worker-0")
    await world.supervisor.round()
    again = world.now(low)
    assert again.phase is Phase.STARTING
    assert [task.attempt for task in again.tasks] == [2, 2]
    assert [record.reason and record.reason.code for record in again.records] == [ReasonCode.PREEMPTED, None]


async def test_a_new_supervisor_goes_on_where_the_old_one_was_killed(world: World, tmp_path: Path) -> None:
    low = await world.jobs.submit(ANA, a_spec(2, preemptible=True))
    await world.supervisor.round()
    low = await world.report(low, started, "worker-0")
    high = await world.jobs.submit(ANA, a_spec(1, name="high", priority=3))
    await world.supervisor.round()

    async def forget(job: Job) -> None:
        raise AssertionError(f"{job.id} is not to be forgotten")

    heir = Supervisor(world.stores.jobs, world.engine, world.clock, forget=forget)
    notices = world.engine.notices
    await heir.round()
    assert world.engine.notices == notices, "nobody is told to end twice"
    for name in ("worker-0", "worker-1"):
        await world.report(low, ended, name, exit_code=None, signal=15, stopped_by_us=True)
    await heir.round()
    assert world.now(high).phase is Phase.STARTING
    assert world.now(low).phase is Phase.QUEUED


async def test_time_in_the_queue_between_attempts_does_not_count_against_the_limit(world: World) -> None:
    low = await world.jobs.submit(ANA, a_spec(2, preemptible=True, max_seconds=100))
    await world.supervisor.round()
    for name in ("worker-0", "worker-1"):
        await world.report(low, started, name)
    world.clock.go(60)
    high = await world.jobs.submit(ANA, a_spec(2, name="high", priority=3))
    await world.supervisor.round()
    for name in ("worker-0", "worker-1"):
        await world.report(
            low, ended, name, exit_code=None, signal=15, stopped_by_us=True, duration_ms=60_000
        )
    await world.supervisor.round()
    world.clock.go(500)
    world.engine.seen_ms = world.clock.steady_ms
    await world.supervisor.round()
    assert world.now(low).phase is Phase.QUEUED
    for name in ("worker-0", "worker-1"):
        await world.report(high, started, name)
        await world.report(high, ended, name)
    await world.supervisor.round()
    for name in ("worker-0", "worker-1"):
        await world.report(low, started, name, attempt=2)
    world.clock.go(39)
    world.engine.seen_ms = world.clock.steady_ms
    await world.supervisor.round()
    assert world.now(low).phase is Phase.RUNNING
    world.clock.go(2)
    await world.supervisor.round()
    assert world.now(low).phase is Phase.STOPPING


async def test_why_a_job_waits_is_kept_as_events(world: World) -> None:
    await world.jobs.submit(ANA, a_spec(2))
    waiting = await world.jobs.submit(ANA, a_spec(1, name="next"))
    await world.supervisor.round()
    page = await world.stores.jobs.events(EventQuery(job_id=waiting.id, contains="waiting:"))
    assert [(event.source, event.message) for event in page.events] == [
        ("scheduler", "waiting: needs 1 core and 1.0 GiB on one machine; 0 cores free in all")
    ]
    for _ in range(3):
        world.clock.go(60)
        world.engine.seen_ms = world.clock.steady_ms
        await world.supervisor.round()
    page = await world.stores.jobs.events(EventQuery(job_id=waiting.id, contains="waiting:"))
    assert page.matching == 1, "nothing changed"


async def test_decisions_that_could_not_be_stored_are_made_again(world: World) -> None:
    job = await world.jobs.submit(ANA, a_spec(1))
    update_many = world.stores.jobs.update_many

    async def failing(*_: object) -> None:
        raise OSError("no disk today")

    world.stores.jobs.update_many = failing  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no disk"):
        await world.supervisor.round()
    world.stores.jobs.update_many = update_many  # type: ignore[method-assign]
    await world.supervisor.round()
    assert world.now(job).phase is Phase.STARTING
