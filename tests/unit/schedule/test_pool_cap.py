"""A pool that is a share: its jobs together never hold more than the cap, whatever room there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.schedule.building import World, machine, request
from trackside.domain.pool import Pool, QueuePolicy, Quota
from trackside.domain.resources import GIB
from trackside.schedule.values import PoolChanged

TWO_CORES = Quota(cpu_cores=2, memory_bytes=64 * GIB, cards=0)
NODES = (machine("a", cores=4), machine("b", cores=4))


def capped(policy: QueuePolicy = QueuePolicy.FIFO, cap: Quota = TWO_CORES) -> World:
    world = World(*NODES)
    world.tell(PoolChanged(Pool(id="default", policy=policy, cap=cap)))
    return world


def test_no_more_than_the_cap_runs_though_machines_are_empty() -> None:
    world = capped()
    world.queue(*(request(name, at=at) for at, name in enumerate("abc")))
    assert world.started == ["a", "b"]
    assert world.end("a") == ["c"]


def test_the_head_keeps_its_turn_under_the_cap() -> None:
    world = capped()
    world.queue(request("one"), request("large", 2, at=1), request("small", at=2))
    assert world.started == ["one"]
    assert world.end("one") == ["large"]
    assert world.end("large") == ["small"]


def test_traversal_passes_by_what_the_cap_holds_up() -> None:
    world = capped(QueuePolicy.TRAVERSAL)
    world.queue(request("one"), request("large", 2, at=1), request("small", at=2))
    assert world.started == ["one", "small"]


@pytest.mark.parametrize("policy", list(QueuePolicy))
def test_a_job_larger_than_the_cap_blocks_nobody(policy: QueuePolicy) -> None:
    world = capped(policy)
    world.queue(request("never", 3), request("small", at=1))
    assert world.started == ["small"]
    world.tell(PoolChanged(Pool(id="default", policy=policy, cap=Quota(cpu_cores=4))))
    assert world.started == ["small", "never"]


def test_room_under_the_cap_counts_on_every_machine() -> None:
    world = capped(cap=Quota(cpu_cores=4))
    world.queue(request("fills", 4), request("wide", tasks=4, at=1))
    assert world.started == ["fills"]
    assert world.end("fills") == ["wide"]


def test_a_lower_cap_ends_nothing_and_lets_nothing_start() -> None:
    world = capped()
    world.queue(request("a"), request("b"))
    world.tell(PoolChanged(Pool(id="default", cap=Quota(cpu_cores=1))))
    world.queue(request("c", at=1))
    assert world.end("a") == []
    assert world.end("b") == ["c"]


def test_others_give_way_until_the_cap_has_room() -> None:
    world = capped()
    world.queue(request("low", priority=0, preemptible=True), request("low2", priority=0, preemptible=True))
    assert world.started == ["low", "low2"]
    world.queue(request("urgent", 2, priority=3, at=1))
    assert sorted(world.preempted) == [("low", "urgent"), ("low2", "urgent")]
    assert world.drained("low") == []
    assert world.drained("low2") == ["urgent"]


@given(
    policy=st.sampled_from(list(QueuePolicy)),
    cap=st.integers(1, 8),
    jobs=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3)), max_size=12),
    ends=st.lists(st.integers(0, 20), max_size=20),
)
def test_the_cap_holds_at_every_moment_and_everything_that_fits_runs(
    policy: QueuePolicy, cap: int, jobs: list[tuple[int, int, int]], ends: list[int]
) -> None:
    world = capped(policy, Quota(cpu_cores=cap))
    sizes = {f"j{at}": cores * tasks for at, (cores, tasks, _) in enumerate(jobs)}

    def used() -> int:
        return sum(sizes[name] for name in running())

    def running() -> list[str]:
        return [held.request.name for held in world.core.books.held.values()]

    for at, (cores, tasks, priority) in enumerate(jobs):
        world.queue(request(f"j{at}", cores, tasks, at=at, priority=priority))
        assert used() <= cap
    for pick in ends:
        if running():
            world.end(running()[pick % len(running())])
            assert used() <= cap
    while running():
        world.end(running()[0])
        assert used() <= cap
    assert {name for name, cores in sizes.items() if cores <= cap and _fits(jobs[int(name[1:])])} <= set(
        world.started
    )


def _fits(job: tuple[int, int, int]) -> bool:
    """Say whether a gang fits on two machines of four cores."""
    cores, tasks, _ = job
    return tasks <= 2 * (4 // cores)
