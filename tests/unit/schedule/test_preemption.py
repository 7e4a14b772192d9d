"""Who gives way for whom, and what becomes of the room."""

from tests.unit.schedule.building import World, machine, request
from trackside.domain.job import JobId
from trackside.domain.pool import QueuePolicy
from trackside.schedule.values import JobChanged, JobDraining, JobQueued, Preempt

TRAVERSAL = QueuePolicy.TRAVERSAL


def low(name: str, cores: float = 1, **more: object) -> object:
    return request(name, cores, priority=1, preemptible=True, **more)  # type: ignore[arg-type]


def full(*cores: float, size: float = 4, policy: QueuePolicy = QueuePolicy.FIFO) -> World:
    """Return a full machine of preemptible jobs: a, b, …, each a second older than the next."""
    world = World(machine(cores=size), policy=policy)
    for i, share in enumerate(cores):
        world.tick(i * 1000)
        world.queue(low("abcdefgh"[i], share, at=i))  # type: ignore[arg-type]
    world.tick(len(cores) * 1000)
    return world


def test_a_higher_priority_takes_the_room_of_the_one_that_loses_least() -> None:
    world = full(1, 1, 1, 1)
    world.queue(request("high", 1, priority=2, at=50))
    assert world.preempted == [("d", "high")], "the youngest of equals loses the least work"
    assert "high" not in world.started
    assert world.drained("d") == ["high"]


def test_no_more_give_way_than_are_needed() -> None:
    world = full(1, 2, 1)
    world.queue(request("high", 2, priority=3, at=50))
    assert world.preempted == [("c", "high"), ("a", "high")] or world.preempted == [("b", "high")]
    assert len({who for who, _ in world.preempted}) == len(world.preempted)
    held = {"a": 1, "b": 2, "c": 1}
    freed = sum(held[who] for who, _ in world.preempted)
    assert freed == 2


def test_equals_and_those_who_may_not_be_preempted_stay() -> None:
    world = full(4)
    world.queue(request("equal", 1, priority=1, at=50))
    assert world.preempted == []
    world = World(machine(cores=1))
    world.queue(request("firm", 1, priority=0), request("high", 1, priority=3, at=1))
    assert world.preempted == []


def test_the_preempted_job_comes_back_first_of_its_priority_with_its_age() -> None:
    world = full(4)
    world.queue(low("older", 4, at=-5))  # type: ignore[arg-type]
    world.queue(request("high", 4, priority=2, at=60))
    assert world.drained("a") == ["high"]
    assert world.end("high") == ["a"], "it goes before one that is older"


def test_room_that_drains_is_kept_for_the_one_it_was_made_for() -> None:
    world = full(2, 2, policy=TRAVERSAL)
    world.queue(request("high", 4, priority=3, at=50))
    assert sorted(world.preempted) == [("a", "high"), ("b", "high")]
    world.queue(request("sneaky", 1, priority=2, at=51))
    assert world.drained("a") == [], "half the room is there, and nobody else gets it"
    assert world.drained("b") == ["high"]


def test_nobody_gives_way_for_room_that_comes_free_anyway() -> None:
    world = full(2, 2)
    world.tell(JobDraining(JobId("a")))
    world.queue(request("high", 2, priority=3, at=50))
    assert world.preempted == []
    assert world.end("a") == ["high"]


def test_the_promise_goes_with_the_job_it_was_made_to() -> None:
    world = full(4, policy=TRAVERSAL)
    world.queue(request("high", 4, priority=3, at=50))
    world.queue(request("next", 1, priority=1, at=51))
    assert world.preempted == [("a", "high")]
    world.remove("high")
    assert world.end("a") == ["next"]


def test_one_with_a_promise_starts_elsewhere_if_room_comes_free_there_first() -> None:
    world = World(machine("a", cores=1), machine("b", cores=1))
    world.queue(low("soft"), request("firm", at=1))  # type: ignore[arg-type]
    world.queue(request("high", priority=3, at=2))
    assert world.preempted == [("soft", "high")]
    assert world.end("firm") == ["high"]
    assert world.drained("soft") == ["soft"]


def test_victims_of_a_gang_are_found_on_several_machines() -> None:
    world = World(*(machine(name, cores=2) for name in "abc"))
    for i in range(6):
        world.tick(1000 * i)
        world.queue(low(f"low-{i}", 1, at=i))  # type: ignore[arg-type]
    world.tick(60_000)
    world.queue(request("gang", 2, 2, priority=2, at=50))
    assert len(world.preempted) == 4
    for who, _ in list(world.preempted):
        world.drained(who)
    assert "gang" in world.started


def test_a_running_job_may_be_given_up_later() -> None:
    world = World(machine(cores=1))
    world.queue(request("firm", priority=1))
    world.queue(request("high", priority=3, at=1))
    decisions = world.core.handle(JobChanged(request("firm", priority=1, preemptible=True)))
    assert decisions == [Preempt(JobId("firm"), JobId("high"))]


def test_chains_of_priorities_end() -> None:
    world = World(machine(cores=1))
    for priority in range(4):
        world.tell(JobQueued(request(f"p{priority}", priority=priority, preemptible=True, at=priority)))
        for who, _ in list(world.preempted):
            if JobId(who) in world.running:
                world.drained(who)
    assert world.started == ["p0", "p1", "p2", "p3"]
    assert list(world.running) == ["p3"]
    assert world.end("p3") == ["p2"]
    assert world.end("p2") == ["p1"]


def test_two_that_need_room_make_two_give_way() -> None:
    world = full(2, 2)
    world.queue(request("one", 2, priority=3, at=50), request("two", 2, priority=3, at=51))
    assert sorted(world.preempted) == [("a", "two"), ("b", "one")]
    world.queue(request("three", 2, priority=3, at=52))
    assert len(world.preempted) == 2, "there is nobody left to give way"
