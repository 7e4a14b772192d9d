"""What holds under every policy: gangs, cards, order, quotas, fairness, closed machines."""

from tests.unit.schedule.building import World, machine, request, size
from trackside.domain.job import JobId, NodeId, ProjectId, Slot
from trackside.domain.pool import Pool, QueuePolicy, Quota
from trackside.schedule.values import (
    JobChanged,
    JobQueued,
    JobRunning,
    NodeChanged,
    NodeRemoved,
    NodeSpec,
    PoolChanged,
    PoolRemoved,
    Start,
    TaskEnded,
    Tick,
)


def test_higher_priority_then_older_first() -> None:
    world = World()
    world.queue(
        request("young", at=9),
        request("old", at=1),
        request("urgent", at=20, priority=3),
        request("low", priority=0),
    )
    world.tell(NodeChanged(machine(cores=3)))
    assert world.started == ["urgent", "old", "young"]


def test_a_gang_starts_whole_or_not_and_blocks_those_behind_it() -> None:
    world = World(machine(cores=4))
    world.queue(request("busy", 2))
    assert world.queue(request("gang", tasks=3, at=1), request("small", at=2)) == []
    assert world.end("busy") == ["gang", "small"]


def test_running_tasks_hold_their_room_until_their_tree_is_empty() -> None:
    world = World(machine(cores=2))
    world.queue(request("gang", tasks=2), request("next", at=1))
    assert world.started == ["gang"]
    world.tell(TaskEnded(JobId("gang"), 0))
    assert world.started == ["gang", "next"]


def test_a_gang_is_packed_on_few_machines() -> None:
    world = World(machine("a", cores=2), machine("b", cores=2), machine("c", cores=3))
    (start,) = world.tell(JobQueued(request("gang", tasks=3)))
    assert start == Start(JobId("gang"), (Slot(NodeId("c")),) * 3)
    (start,) = world.tell(JobQueued(request("wide", tasks=4)))
    assert [slot.node_id for slot in start.slots] == ["a", "a", "b", "b"]  # type: ignore[union-attr]


def test_cards_are_exclusive_and_a_task_goes_where_it_leaves_the_least() -> None:
    world = World(machine("a", gpus=8), machine("b", gpus=8))
    world.queue(request("six", gpus=6))
    (start,) = world.tell(JobQueued(request("two", gpus=2)))
    assert start == Start(JobId("two"), (Slot(NodeId("a"), (6, 7)),))
    (start,) = world.tell(JobQueued(request("more", gpus=2)))
    assert start == Start(JobId("more"), (Slot(NodeId("b"), (0, 1)),))


def test_roles_of_different_sizes_start_together() -> None:
    world = World(machine("a", cores=4), machine("b", cores=3))
    roles = (
        (size(1), 3),
        (size(4), 1),
    )  # in this order, the small ones would sit where the large one must go
    assert world.queue(request("mixed", roles=roles)) == ["mixed"]
    slots = world.running[JobId("mixed")]
    assert [slots[rank].node_id for rank in range(4)] == ["b", "b", "b", "a"]


def test_card_models_are_matched_where_both_are_known() -> None:
    world = World(machine("old", gpus=4, gpu_model="V100"), machine("new", gpus=4, gpu_model="A100"))
    wanted = request("picky", roles=((size(1, 1, card_model="a100"), 1),))
    (start,) = world.tell(JobQueued(wanted))
    assert start == Start(JobId("picky"), (Slot(NodeId("new"), (0,)),))


def test_closed_machines_take_nothing_new_and_keep_what_they_have() -> None:
    world = World(machine("a"))
    world.queue(request("first"))
    closed = NodeSpec(id=NodeId("a"), capacity=machine("a").capacity, open=False)
    world.tell(NodeChanged(closed))
    assert world.queue(request("second")) == []
    assert JobId("first") in world.running
    world.tell(NodeChanged(machine("a")))
    assert world.started == ["first", "second"]


def test_a_machine_that_goes_takes_its_room_with_it_and_gives_it_back() -> None:
    world = World(machine("a", cores=2), machine("b", cores=1))
    world.queue(request("big", 2))
    world.tell(NodeRemoved(NodeId("b")))
    assert world.queue(request("next", at=1)) == []
    world.tell(NodeChanged(machine("b", cores=1)))
    assert world.started == ["big", "next"]


def test_a_job_too_large_for_the_machines_waits_and_blocks_nobody() -> None:
    world = World(machine("a", cores=4))
    assert world.queue(request("huge", 5, at=0), request("small", 1, at=1)) == ["small"]
    world.tell(NodeChanged(machine("b", cores=5)))
    assert world.started == ["small", "huge"]


def test_a_pool_that_does_not_exist_keeps_its_jobs_waiting() -> None:
    world = World(machine("a"))
    assert world.queue(request("lost", pool_id="other")) == []
    world.tell(PoolChanged(Pool(id="other", node_ids=(NodeId("a"),))))
    assert world.started == ["lost"]
    world.tell(PoolRemoved("other"))
    assert world.queue(request("again", pool_id="other")) == []


def test_pools_may_share_machines_but_never_room() -> None:
    world = World(machine("a", cores=2))
    world.tell(PoolChanged(Pool(id="other", node_ids=(NodeId("a"),))))
    assert world.queue(request("one", 2), request("two", 2, pool_id="other")) == ["one"]
    assert world.end("one") == ["two"]


def test_the_least_served_project_goes_first_and_age_decides_between_equals() -> None:
    world = World(machine(cores=4))
    world.queue(*(request(f"greedy-{i}", project="greedy", at=i) for i in range(6)))
    world.queue(request("modest", project="modest", at=100), request("other", project="other", at=101))
    assert world.started == ["greedy-0", "greedy-1", "greedy-2", "greedy-3"]
    assert world.end("greedy-0", "greedy-1", "greedy-2") == ["modest", "other", "greedy-4"]


def test_quotas_hold_a_project_and_a_user_back_without_holding_up_others() -> None:
    world = World(
        machine(cores=8, gpus=8),
        project_quotas={"small": Quota(cpu_cores=2)},
        user_quota=Quota(cards=3),
        user_quotas={"boss": Quota()},
    )
    small = [request(f"small-{i}", project="small", at=i) for i in range(3)]
    assert world.queue(*small) == ["small-0", "small-1"]
    cards = [request(f"ana-{i}", gpus=2, at=10 + i, user="ana") for i in range(2)]
    assert world.queue(*cards) == ["ana-0"]
    assert world.queue(request("bob", gpus=2, at=20, user="bob")) == ["bob"]
    assert world.queue(request("boss", gpus=4, at=21, user="boss")) == ["boss"]
    assert world.end("small-0") == ["small-2"]
    assert world.end("ana-0") == ["ana-1"]


def test_a_larger_quota_lets_the_waiting_start() -> None:
    world = World(machine(), project_quota=Quota(memory_bytes=1))
    assert world.queue(request("held")) == []
    world.tell(PoolChanged(Pool(id="default")))
    assert world.started == ["held"]


def test_a_priority_raised_while_waiting_moves_the_job_up() -> None:
    world = World(machine(cores=1))
    world.queue(request("busy"), request("first", at=1), request("second", at=2))
    world.tell(JobChanged(request("second", at=2, priority=2)))
    assert world.end("busy") == ["second"]


def test_a_removed_job_is_forgotten() -> None:
    world = World(machine(cores=1))
    world.queue(request("busy"), request("gone", at=1), request("next", at=2))
    assert world.remove("gone") == []
    assert world.remove("busy") == ["next"]
    assert world.remove("never-seen") == []


def test_what_runs_already_is_taken_over_before_its_machine_is_known() -> None:
    world = World()
    running = request("old", tasks=2, gpus=2)
    world.requests[JobId("old")] = running
    world.running[JobId("old")] = {1: Slot(NodeId("a"), (2, 3))}  # its first task has ended
    world.tell(JobRunning(running, ((1, Slot(NodeId("a"), (2, 3))),), since_ms=5))
    world.tell(Tick(100), NodeChanged(machine("a", gpus=4)))
    (start,) = world.tell(JobQueued(request("next", gpus=2)))
    assert start == Start(JobId("next"), (Slot(NodeId("a"), (0, 1)),))


def test_a_burst_is_decided_when_all_of_it_is_known() -> None:
    world = World(machine(cores=1), policy=QueuePolicy.TRAVERSAL)
    world.tell(
        JobQueued(request("low", priority=0)), JobQueued(request("high", priority=3, project=ProjectId("q")))
    )
    assert world.started == ["high"]
