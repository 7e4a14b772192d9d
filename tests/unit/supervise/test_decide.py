from dataclasses import replace

from tests.unit.domain.builders import a_job, a_spec, after, ended, placed, started
from trackside.domain.job import Job, JobId, NodeId, Role
from trackside.domain.phase import Phase
from trackside.domain.resources import GIB, Accelerator, Capacity, Resources
from trackside.ports import Node
from trackside.supervise.decide import Placement, decide_placements


def node(name: str = "node-a", cores: float = 2, gpus: int = 0) -> Node:
    capacity = Capacity(cpu_cores=cores, memory_bytes=8 * GIB, gpus=gpus)
    return Node(id=NodeId(name), ip="127.0.0.1", capacity=capacity, last_seen_ms=0, seen_monotonic_ms=0)


def job(name: str, workers: int = 1, created: int = 0, priority: int = 1, **need: object) -> Job:
    resources = Resources(**({"cpu_cores": 1, "memory_bytes": GIB} | need))  # type: ignore[arg-type]
    spec = a_spec(roles=(Role(count=workers, resources=resources),), priority=priority)
    return replace(a_job(spec=spec), id=JobId(name), created_at_ms=created)


def ids(placements: list[Placement]) -> list[str]:
    return [placement.job_id for placement in placements]


def test_higher_priority_then_older_first() -> None:
    jobs = [job("young", created=9), job("old", created=1), job("urgent", created=20, priority=3)]
    assert ids(decide_placements(jobs, [node()])) == ["urgent", "old"]


def test_a_gang_starts_whole_or_not_and_blocks_those_behind_it() -> None:
    jobs = [job("gang", workers=3, created=1), job("small", created=2)]
    assert decide_placements(jobs, [node(cores=2)]) == []
    assert ids(decide_placements(jobs, [node(cores=4)])) == ["gang", "small"]


def test_running_tasks_hold_their_room_until_their_tree_is_empty() -> None:
    running = after(placed(a_job(2)), started("worker-0"), started("worker-1"))
    assert decide_placements([running, job("next")], [node()]) == []
    half = after(running, ended("worker-0"))
    assert ids(decide_placements([half, job("next")], [node()])) == ["next"]


def test_a_gang_may_spread_over_nodes() -> None:
    (placement,) = decide_placements([job("gang", workers=3)], [node("a"), node("b")])
    assert [slot.node_id for slot in placement.slots] == ["a", "a", "b"]


def test_cards_are_exclusive() -> None:
    need = {"cards": 2, "accelerator": Accelerator.GPU}
    first, second = decide_placements(
        [job("one", created=1, **need), job("two", created=2, **need)], [node(cores=8, gpus=4)]
    )
    assert first.slots[0].cards == (0, 1)
    assert second.slots[0].cards == (2, 3)


def test_jobs_that_are_not_queued_or_are_ending_are_left_alone() -> None:
    assert decide_placements([replace(job("x"), phase=Phase.CREATING)], [node()]) == []
    assert decide_placements([job("x")], []) == []
