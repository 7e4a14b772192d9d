"""The core is told what changed, and sees jobs as they are stored."""

from dataclasses import replace

from tests.unit.domain.builders import NODE, SMALL, a_job, a_spec, after, ended, placed, running, started
from trackside.domain import rules
from trackside.domain.job import Job, JobId, NodeId, Role, Slot
from trackside.domain.phase import Phase
from trackside.domain.pool import Pool
from trackside.domain.resources import GIB, Capacity
from trackside.ports import Node
from trackside.schedule.values import Decision, Preempt, Start
from trackside.supervise.watch import Watch, request_of

POOLS = (Pool(id="default"),)


def node(name: str = NODE, cores: float = 2) -> Node:
    capacity = Capacity(cpu_cores=cores, memory_bytes=8 * GIB)
    return Node(id=NodeId(name), ip="127.0.0.1", capacity=capacity, last_seen_ms=0, seen_monotonic_ms=0)


class Loop:
    """A watch and what it was told last."""

    def __init__(self) -> None:
        self.pools: tuple[Pool, ...] = POOLS
        self.closed: frozenset[NodeId] = frozenset()
        self.watch = Watch(lambda: self.pools, lambda: self.closed)
        self.nodes = [node()]

    def round(self, *jobs: Job, now_ms: int = 0) -> list[Decision]:
        return self.watch.core.handle_all(self.watch.changes(jobs, self.nodes, now_ms))


def named(job: Job, name: str, revision: int = 1, **spec: object) -> Job:
    return replace(job, id=JobId(name), revision=revision, spec=replace(job.spec, **spec))  # type: ignore[arg-type]


def test_a_waiting_job_is_started_once() -> None:
    loop = Loop()
    job = named(a_job(2), "one")
    assert loop.round(job) == [Start(JobId("one"), (Slot(NODE), Slot(NODE)))]
    assert loop.round(job) == []
    assert loop.round(replace(placed(job), revision=2)) == []


def test_what_runs_holds_its_room_until_its_tree_is_empty() -> None:
    loop = Loop()
    busy = named(running(2), "busy")
    assert loop.round(busy, named(a_job(1), "next")) == []
    half = replace(busy, tasks=after(running(2), ended("worker-0")).tasks, revision=2)
    assert [one.job_id for one in loop.round(half, named(a_job(1), "next"))] == ["next"]


def test_a_start_that_was_not_applied_is_decided_again() -> None:
    loop = Loop()
    job = named(a_job(1), "one")
    assert len(loop.round(job)) == 1
    assert len(loop.round(replace(job, revision=2))) == 1, "it was changed meanwhile and still waits"
    loop.watch.forget()
    assert len(loop.round(job)) == 1


def test_jobs_that_are_gone_or_end_make_room() -> None:
    loop = Loop()
    loop.round(named(running(2), "busy"), named(a_job(2), "next"))
    assert [one.job_id for one in loop.round(named(a_job(2), "next"))] == ["next"]


def test_jobs_that_are_not_queued_or_are_being_made_are_left_alone() -> None:
    loop = Loop()
    assert loop.round(replace(named(a_job(1), "one"), phase=Phase.CREATING)) == []


def test_machines_and_pools_come_and_go() -> None:
    loop = Loop()
    loop.nodes = []
    job = named(a_job(1), "one")
    assert loop.round(job) == []
    loop.nodes, loop.closed = [node()], frozenset({NODE})
    assert loop.round(job) == []
    loop.closed = frozenset()
    assert len(loop.round(job)) == 1
    loop.pools, other = (), named(a_job(1), "two")
    assert loop.round(placed(job), other) == []
    loop.pools = POOLS
    loop.nodes = []
    assert loop.round(placed(job), other) == []


def test_a_higher_priority_preempts_and_the_victim_is_queued_in_front() -> None:
    loop = Loop()
    low = named(running(2), "low", preemptible=True)
    high = named(a_job(2), "high", priority=3)
    assert loop.round(low, high) == [Preempt(JobId("low"), JobId("high"))]
    change = rules.preempt(low, high, at_ms=8_000)
    assert change is not None
    draining = replace(change[0], revision=2)
    assert loop.round(draining, high) == []
    ends = [ended(name, None, signal=15, stopped_by_us=True) for name in ("worker-0", "worker-1")]
    done = replace(after(replace(draining, id=low_id()), *ends), id=JobId("low"), revision=3)
    assert done.phase is Phase.QUEUED
    assert request_of(done).front
    assert [one.job_id for one in loop.round(done, high)] == ["high"]


def low_id() -> JobId:
    return a_job().id


def test_a_lost_job_is_nobodys_victim() -> None:
    loop = Loop()
    lost = replace(named(running(2), "low", preemptible=True), phase=Phase.LOST)
    assert loop.round(lost, named(a_job(2), "high", priority=3)) == []


def test_a_rebuilt_core_keeps_a_draining_jobs_room() -> None:
    loop = Loop()
    low = named(running(2), "low", preemptible=True)
    high = named(a_job(2), "high", priority=3)
    change = rules.preempt(low, high, at_ms=8_000)
    assert change is not None
    assert loop.round(change[0], high) == [], "it was told to end before the restart; nobody else is"


def test_a_restart_in_place_keeps_the_room() -> None:
    loop = Loop()
    role = Role(resources=SMALL, restarts_max=1)
    job = placed(a_job(spec=a_spec(roles=(role,))))
    loop.round(job)
    up = replace(after(job, started("worker-0")), revision=5)
    assert loop.round(up) == []
    held = loop.watch.core.holds(job.id)
    assert held is not None
    assert list(held.slots) == [0]
