"""What each queue policy promises, and backfill."""

from tests.unit.schedule.building import World, machine, request
from trackside.domain.pool import QueuePolicy

FIFO, TRAVERSAL = QueuePolicy.FIFO, QueuePolicy.TRAVERSAL
STEP, TIERED = QueuePolicy.STEP_POLLING, QueuePolicy.TIERED


def blocked(policy: QueuePolicy, **pool: int) -> World:
    """Return four cores, two of them busy, a head that needs all, and one behind it that needs one."""
    world = World(machine(cores=4), policy=policy, **pool)
    world.queue(request("busy", 2), request("more", 2, at=1))
    world.queue(request("head", 4, at=2, priority=3), request("small", 1, at=3))
    world.end("more")
    return world


def test_fifo_lets_a_blocked_head_block_all_behind_it() -> None:
    world = blocked(FIFO)
    assert world.started == ["busy", "more"]
    assert world.tick(10**9) == []
    assert world.end("busy") == ["head"]


def test_traversal_skips_what_does_not_fit() -> None:
    world = blocked(TRAVERSAL)
    assert world.started == ["busy", "more", "small"]


def test_traversal_may_starve_a_large_job() -> None:
    world = blocked(TRAVERSAL)
    world.queue(*(request(f"small-{i}", 1, at=10 + i) for i in range(8)))
    for i in range(7):
        world.end("small" if i == 0 else f"small-{i - 1}")
    assert "head" not in world.started


def test_step_polling_lets_others_in_once_after_a_while_and_locks_again_for_twice_as_long() -> None:
    world = blocked(STEP, lock_seconds=60)
    assert world.tick(59_999) == []
    assert world.tick(60_000) == ["small"]
    world.queue(request("late", 1, at=4))
    assert world.tick(60_000 + 119_999) == []
    assert world.tick(60_000 + 120_000) == ["late"]


def test_step_polling_gives_the_head_its_turn_however_long_others_run() -> None:
    world = World(machine(cores=4), policy=STEP, lock_seconds=10)
    ends = {}
    for i in range(4):
        world.queue(request(f"small-{i}", 1, at=i))
        ends[f"small-{i}"] = 1_000_000 + i * 250_000
    world.queue(request("head", 4, at=5))
    now, number = 0, 4
    while "head" not in world.started:
        now += 5_000
        assert now < 10_000_000, "the head starves"
        number += 1
        world.queue(request(f"small-{number}", 1, at=number + 10))
        for name in world.tick(now):
            ends[name] = now + 1_000_000  # a hundred times as long as the first lock
        for name in [name for name, end in ends.items() if end <= now]:
            del ends[name]
            for other in world.end(name):
                ends[other] = now + 1_000_000


def test_a_new_head_gets_a_lock_of_its_own() -> None:
    world = blocked(STEP, lock_seconds=60)
    world.tick(50_000)
    world.queue(request("urgent", 4, at=9, priority=3, project="other"))
    assert world.tick(61_000) == []  # of the other project, which holds nothing, so it is the head now
    assert world.tick(111_000) == ["small"]


def test_tiered_locks_for_priority_three_only() -> None:
    world = blocked(TIERED, lock_seconds=60)
    assert world.started == ["busy", "more"]
    assert world.tick(60_000) == ["small"]
    low = World(machine(cores=4), policy=TIERED)
    low.queue(request("busy", 2), request("head", 4, at=1, priority=2), request("small", 1, at=2))
    assert low.started == ["busy", "small"]


def test_tiered_starts_priority_three_before_the_others() -> None:
    world = World(machine(cores=1), policy=TIERED)
    world.queue(request("busy"), request("low", at=1, priority=1), request("high", at=2, priority=3))
    assert world.end("busy") == ["high"]


def backfillable(limit: int | None) -> World:
    """Return a head that starts in 100 s at the latest."""
    world = World(machine(cores=4))
    world.queue(request("busy", 3, max_seconds=limit))
    world.queue(request("head", 4, at=1))
    return world


def test_backfill_starts_what_ends_before_the_head_can_start() -> None:
    world = backfillable(100)
    world.queue(request("short", 1, at=2, max_seconds=90), request("long", 1, at=3, max_seconds=101))
    assert world.tick(10_000) == ["short"]
    world.end("short")
    assert world.tick(20_000) == [], "the long one would still run when the head can start"
    assert world.end("busy") == ["head"]


def test_backfill_needs_limits_on_both_sides() -> None:
    world = backfillable(None)
    world.queue(request("short", 1, at=2, max_seconds=1))
    assert world.tick(10_000) == [], "nobody knows when the head can start"
    world = backfillable(100)
    world.queue(request("open", 1, at=2))
    assert world.tick(10_000) == [], "nobody knows when this one ends"


def test_backfill_starts_several_and_goes_by_order() -> None:
    world = World(machine(cores=4))
    world.queue(request("busy", 2, max_seconds=100), request("head", 4, at=1))
    world.queue(*(request(f"short-{i}", 1, at=2 + i, max_seconds=10) for i in range(3)))
    assert world.tick(10_000) == ["short-0", "short-1"]
    assert world.end("short-0") == []
    assert world.tick(11_000) == ["short-2"]
