"""Why a job waits, in words and numbers."""

from tests.unit.schedule.building import World, machine, request, size
from trackside.domain.job import JobId, NodeId
from trackside.domain.pending import PendingReason
from trackside.domain.pool import Pool, QueuePolicy, Quota
from trackside.domain.reason import ReasonCode
from trackside.schedule.explain import explain, reasons_of
from trackside.schedule.values import NodeChanged, NodeSpec, PoolChanged


def why(world: World, name: str) -> PendingReason:
    found = explain(world.core, JobId(name))
    assert found is not None
    return found


def test_scattered_cards_are_said_with_their_numbers() -> None:
    world = World(machine("a", gpus=4), machine("b", gpus=4))
    world.queue(*(request(f"old-{i}", gpus=1, at=i) for i in range(2)))
    closed = NodeSpec(id=NodeId("a"), capacity=machine("a", gpus=4).capacity, open=False)
    world.tell(NodeChanged(closed))
    world.queue(request("there", gpus=1, at=2))
    world.tell(NodeChanged(machine("a", gpus=4)))
    world.queue(request("big", gpus=4, at=3))
    told = why(world, "big")
    assert told.code is ReasonCode.WAITING_SCATTERED
    assert told.text == "needs 4 GPUs on one machine; 5 GPUs free, but at most 3 GPUs together (b)"
    assert told.hints == ("with 3 GPUs it would fit now",)
    assert (told.free.cards, told.free.largest_cards) == (5, 3)
    assert (told.position, told.waiting, told.ahead) == (1, 1, ())


def test_missing_room_is_said_with_what_is_free() -> None:
    world = World(machine("a", cores=4))
    world.queue(request("busy", 3), request("next", 2, at=1))
    told = why(world, "next")
    assert told.code is ReasonCode.WAITING_FOR_ROOM
    assert told.text == "needs 2 cores and 1.0 GiB on one machine; 1 core free in all"


def test_a_gang_says_how_many_of_it_have_room() -> None:
    world = World(machine("a", cores=3), machine("b", cores=3))
    world.queue(request("busy", 1), request("gang", 2, 2, at=1))
    assert world.running.keys() == {"busy", "gang"}
    world.queue(request("busier", 1, at=2), request("wide", 1, 2, at=3))
    told = why(world, "wide")
    assert told.text == "needs 2 tasks of 1 core and 1.0 GiB each; 0 cores free in all"
    world.queue(request("thick", 2, 3, at=4))
    told = why(world, "thick")
    assert told.code is ReasonCode.TOO_LARGE
    assert told.hints == ("on empty machines there is room for 2 tasks of this size",)


def test_a_scattered_gang() -> None:
    world = World(machine("a", cores=3), machine("b", cores=3))
    assert world.queue(request("x", 2), request("y", 2, at=1)) == ["x", "y"]
    world.end("x")
    world.queue(request("z", 1, at=2))  # on the fuller machine
    world.queue(request("gang", 2, 2, at=3))
    told = why(world, "gang")
    assert told.text == "needs 2 tasks of 2 cores and 1.0 GiB each; 3 cores free in all"
    world.end("z")
    assert told.hints == ("with 1 task it would start now",)
    told = why(world, "gang")
    assert told.code is ReasonCode.WAITING_SCATTERED
    assert told.text == (
        "needs 2 tasks of 2 cores and 1.0 GiB each, all at once; there is room for 1 of them now"
    )


def test_a_job_that_would_fit_says_who_is_first() -> None:
    world = World(machine("a", cores=4, gpus=2))
    world.queue(request("busy", 1, gpus=1), request("head", 1, gpus=2, at=1, project="q"))
    world.queue(request("small", 1, at=2))
    told = why(world, "small")
    assert told.code is ReasonCode.WAITING_FOR_TURN
    assert told.text == "it would fit, but a job that needs 2 GPUs on one machine is first in line"
    assert told.position == 2
    assert [(one.name, one.cards, one.priority) for one in told.ahead] == [("head", 2, 1)]
    assert "give it a limit" in told.hints[0]
    assert "higher priority" in told.hints[1]


def test_quotas_are_said_with_their_numbers() -> None:
    world = World(machine("a", cores=8), project_quota=Quota(cpu_cores=2))
    world.queue(request("one", 2), request("two", 1, at=1))
    told = why(world, "two")
    assert told.code is ReasonCode.OVER_QUOTA
    assert told.text == "the project p may hold 2 cores in the pool default and holds 2; it needs 1"
    assert told.estimate.why == "it cannot start as things are"


def test_a_pools_share_is_said_with_its_numbers() -> None:
    world = World(machine("a", cores=8), cap=Quota(cpu_cores=2))
    world.queue(request("one", 2), request("two", 1, at=1))
    told = why(world, "two")
    assert told.text == "the pool's share is 2 cores, 2 are in use; it needs 1"


def test_what_can_never_start_says_so() -> None:
    world = World(machine("a", cores=8, gpus=4))
    world.queue(request("huge", 1, gpus=5), request("lost", pool_id="nowhere"))
    told = why(world, "huge")
    assert told.code is ReasonCode.TOO_LARGE
    assert told.text == "needs 5 GPUs on one machine, more than the machines of the pool default have"
    assert told.hints == ("the largest machine has 4 GPUs, 8 cores and 64.0 GiB",)
    told = why(world, "lost")
    assert (told.code, told.text) == (ReasonCode.NO_SUCH_POOL, "the pool nowhere does not exist")
    world.tell(PoolChanged(Pool(id="nowhere", node_ids=())))
    assert why(world, "lost").code is ReasonCode.NO_MACHINES


def test_a_job_others_make_room_for_says_so() -> None:
    world = World(machine(cores=1))
    world.queue(request("low", priority=0, preemptible=True), request("high", priority=3, at=1))
    told = why(world, "high")
    assert told.code is ReasonCode.WAITING_FOR_PREEMPTED
    assert told.text == "1 job of lower priority must end first to make room for it"


def test_a_job_that_does_not_wait_has_no_such_reason() -> None:
    world = World(machine())
    world.queue(request("runs"))
    assert explain(world.core, JobId("runs")) is None
    assert explain(world.core, JobId("unknown")) is None
    assert reasons_of(world.core, [JobId("runs")]) == {}


def test_reasons_of_many_are_the_same_as_of_one() -> None:
    world = World(machine(cores=2))
    world.queue(*(request(f"job-{i}", 2 if i % 2 else 1, at=i) for i in range(6)))
    told = reasons_of(world.core, world.core.waiting())
    assert set(told) == set(world.core.waiting())
    for job_id, reason in told.items():
        assert (reason.code, reason.text) == (why(world, job_id).code, why(world, job_id).text)


def test_the_latest_start_comes_from_limits() -> None:
    world = World(machine(cores=2))
    world.tick(1_000)
    world.queue(request("busy", 2, max_seconds=100), request("next", 2, at=1, max_seconds=50))
    world.queue(request("last", 1, at=2), request("never", 2, at=3))
    assert why(world, "next").estimate.latest_ms == 101_000
    assert why(world, "last").estimate.latest_ms == 151_000
    told = why(world, "never").estimate
    assert told.latest_ms is None
    assert told.why.startswith("a job that must end first has no limit")


def test_the_likely_start_is_learned_from_jobs_that_ended() -> None:
    world = World(machine(cores=1))
    now = 0
    for i in range(6):
        world.queue(request(f"old-{i}", at=i, max_seconds=100))
        now += 40_000
        world.tick(now)
        world.end(f"old-{i}")
    world.queue(request("busy", at=10, max_seconds=200), request("next", at=11))
    told = why(world, "next").estimate
    assert (told.earliest_ms, told.likely_ms, told.latest_ms) == (now + 80_000, now + 80_000, now + 200_000)
    assert told.why == ""


def test_very_long_lines_are_not_played_forward() -> None:
    world = World(machine(cores=1))
    world.queue(*(request(f"job-{i}", at=i, max_seconds=10) for i in range(205)))
    assert why(world, "job-204").estimate.why == "more than 200 jobs are ahead"
    assert why(world, "job-204").position == 204


def test_several_roles_are_told_together() -> None:
    world = World(machine(cores=4), policy=QueuePolicy.TRAVERSAL)
    world.queue(request("busy", 2), request("mixed", at=1, roles=((size(1), 2), (size(1), 1))))
    assert why(world, "mixed").text == "needs 3 tasks with 3 cores and 3.0 GiB together; 2 cores free in all"
