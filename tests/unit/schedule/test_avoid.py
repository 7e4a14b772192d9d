"""A machine that a job avoids is closed for that job, and for nobody else."""

import pytest

from tests.unit.schedule.building import World, machine, request
from trackside.domain.job import JobId, NodeId
from trackside.domain.pool import QueuePolicy
from trackside.domain.reason import ReasonCode
from trackside.schedule.explain import explain
from trackside.schedule.values import JobChanged, JobQueued

A, B = NodeId("a"), NodeId("b")


def places(world: World, name: str) -> list[str]:
    return [slot.node_id for slot in world.running[JobId(name)].values()]


@pytest.mark.parametrize("policy", QueuePolicy)
def test_it_goes_elsewhere_and_others_go_there(policy: QueuePolicy) -> None:
    world = World(machine("a", cores=2), machine("b", cores=2), policy=policy)
    world.queue(request("wary", avoid=frozenset({A})), request("gang", 1, 3, at=1))
    assert places(world, "wary") == ["b"]
    assert sorted(places(world, "gang")) == ["a", "a", "b"]


@pytest.mark.parametrize("tasks", [1, 2])
def test_it_waits_while_only_what_it_avoids_has_room(tasks: int) -> None:
    world = World(machine("a"), machine("b"), policy=QueuePolicy.TRAVERSAL)
    world.queue(request("big", 8, avoid=frozenset({A})))
    assert world.queue(request("wary", 1, tasks, at=1, avoid=frozenset({A}))) == []
    assert world.queue(request("other", 1, at=2)) == ["other"]
    assert world.end("other") == []
    assert world.end("big") == ["wary"]


def test_nobody_is_ended_on_a_machine_it_avoids() -> None:
    world = World(machine("a"), machine("b"))
    for name, avoided in (("on-a", B), ("on-b", A)):
        world.queue(request(name, 8, priority=0, preemptible=True, avoid=frozenset({avoided})))
    world.queue(request("urgent", 4, priority=3, avoid=frozenset({A})))
    assert world.preempted == [("on-b", "urgent")]
    assert world.drained("on-b") == ["urgent"]
    assert places(world, "urgent") == ["b"]


def test_one_that_avoids_all_that_is_large_enough_is_set_aside_and_says_so() -> None:
    world = World(machine("a", cores=8), machine("b", cores=2))
    wary = request("wary", 4, avoid=frozenset({A}))
    assert world.queue(wary, request("next", 1, at=1)) == ["next"]
    why = explain(world.core, JobId("wary"))
    assert why is not None
    assert why.code is ReasonCode.TOO_LARGE
    assert "those 1 of the 2 machines of the pool default that it may use" in why.text
    world.requests[JobId("wary")] = request("wary", 4)
    world.tell(JobChanged(request("wary", 4)))
    assert places(world, "wary") == ["a"]


def test_backfill_knows_where_the_head_can_start() -> None:
    """The head waits for b until 100 s: what ends before may run there, although a is free for others."""
    world = World(machine("a"), machine("b"))
    world.queue(request("busy", 8, avoid=frozenset({A}), max_seconds=100))
    world.queue(request("head", 4, at=1, avoid=frozenset({A})))
    world.tick(1_000)
    world.tell(JobQueued(request("long", 8, at=2, max_seconds=1_000)))
    world.tell(JobQueued(request("short", 8, at=3, max_seconds=50)))
    assert world.tick(3_000) == ["short"]
