"""Tasks that must be close together are, all of them or none; machines are chosen by their labels."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedule.building import World, machine, request
from trackside.domain.affinity import Affinity, Condition, Operator
from trackside.domain.job import JobId
from trackside.domain.pool import QueuePolicy
from trackside.domain.reason import ReasonCode
from trackside.schedule.explain import explain
from trackside.schedule.values import NodeChanged

ONE_CABINET = Affinity(within="cabinet")


def rack(name: str, cabinet: str, gpus: int = 4, **labels: str) -> object:
    return machine(name, cores=16, gpus=gpus, labels={"cabinet": cabinet, **labels})


def places(world: World, name: str) -> list[str]:
    return [slot.node_id for slot in world.running[JobId(name)].values()]


def world_of_two(policy: QueuePolicy = QueuePolicy.FIFO) -> World:
    """Return two cabinets of two machines with four cards each."""
    racks = (rack("a1", "A"), rack("a2", "A"), rack("b1", "B"), rack("b2", "B"))
    return World(*racks, policy=policy)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", QueuePolicy)
def test_all_tasks_go_into_one_cabinet(policy: QueuePolicy) -> None:
    world = world_of_two(policy)
    world.queue(request("one", gpus=2), request("gang", 1, 4, gpus=2, at=1, affinity=ONE_CABINET))
    assert places(world, "one") == ["a1"]
    assert sorted(set(places(world, "gang"))) == ["b1", "b2"], "A has three places left"


def test_it_waits_for_room_together_and_says_so() -> None:
    world = world_of_two()
    world.queue(request("a", gpus=2), request("b", gpus=2, affinity=only("B")))
    world.queue(request("gang", 1, 8, gpus=1, at=1, affinity=ONE_CABINET))
    why = explain(world.core, JobId("gang"))
    assert why is not None
    assert why.code is ReasonCode.WAITING_SCATTERED
    assert why.text == "needs 8 GPUs in one cabinet; 12 GPUs free, but at most 6 GPUs together (cabinet A)"
    assert why.hints[0] == "with 6 tasks it would start now"
    assert world.end("b") == ["gang"]
    assert set(places(world, "gang")) == {"b1", "b2"}


def test_one_that_never_fits_into_a_cabinet_is_set_aside_and_says_what_would() -> None:
    world = world_of_two()
    assert world.queue(request("wide", 1, 9, gpus=1, affinity=ONE_CABINET), request("next", at=1)) == ["next"]
    why = explain(world.core, JobId("wide"))
    assert why is not None
    assert why.code is ReasonCode.TOO_LARGE
    assert why.text.startswith("needs 9 tasks of 1 GPU each in one cabinet, more than the machines")
    assert why.hints[0] == "on empty machines there is room for 8 tasks of this size"
    moved = [rack("b1", "A"), rack("b2", "B")]
    assert world.tell(*(NodeChanged(node) for node in moved)), "a label that changes makes room"  # type: ignore[arg-type]
    assert set(places(world, "wide")) == {"a1", "a2", "b1"}


def test_groups_are_together_each_for_itself() -> None:
    world = world_of_two()
    world.queue(request("one", gpus=2), request("two", gpus=2, affinity=only("B")))
    groups = Affinity(group_level="cabinet", group_size=4)
    world.queue(request("gang", 1, 12, gpus=1, at=1, affinity=groups))
    assert "gang" not in world.started, "twelve cards are free, but only one group of four in each cabinet"
    why = explain(world.core, JobId("gang"))
    assert why is not None
    assert "in groups of 4, each in one cabinet, all at once; there is room for 10 of them" in why.text
    assert world.end("two") == ["gang"]
    cabinets = [place[0] for place in places(world, "gang")]
    assert [cabinets[i : i + 4] for i in (0, 4, 8)] == [["a"] * 4, ["b"] * 4, ["b"] * 4]


def test_two_levels_hold_together() -> None:
    nodes = [rack(f"n{i}", "A", hyperinstanceGroup=f"g{i // 2}", hyperinstance=f"h{i}") for i in range(4)]
    world = World(*nodes)  # type: ignore[arg-type]
    both = Affinity(within="hyperinstanceGroup", group_level="hyperinstance", group_size=4)
    world.queue(request("gang", 1, 8, gpus=1, affinity=both))
    assert places(world, "gang") == ["n0"] * 4 + ["n1"] * 4
    assert world.queue(request("more", 1, 12, gpus=1, at=1, affinity=both)) == []


def test_a_machine_without_the_label_stands_alone() -> None:
    world = World(machine("a", gpus=4), machine("b", gpus=4))
    world.queue(request("gang", 1, 4, gpus=1, affinity=ONE_CABINET))
    assert len(set(places(world, "gang"))) == 1
    assert world.queue(request("wide", 1, 8, gpus=1, affinity=ONE_CABINET)) == []


def test_the_cheapest_cabinet_gives_way() -> None:
    world = world_of_two()
    for name, cabinet, at in (("old", "A", 0), ("young", "B", 50_000)):
        world.tick(at)
        world.queue(request(name, 8, 2, gpus=4, priority=0, preemptible=True, affinity=only(cabinet)))
    world.tick(60_000)
    world.queue(request("urgent", 1, 8, gpus=1, priority=3, affinity=ONE_CABINET))
    assert world.preempted == [("young", "urgent")]
    assert world.drained("young") == ["urgent"]
    assert {place[0] for place in places(world, "urgent")} == {"b"}


def only(cabinet: str) -> Affinity:
    return Affinity(terms=((Condition(key="cabinet", operator=Operator.IN, values=(cabinet,)),),))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from("ABC")), min_size=1, max_size=6),
    st.integers(1, 12),
    st.integers(1, 5),
    st.booleans(),
)
def test_it_starts_exactly_if_there_is_a_way(
    racks: list[tuple[int, str]], tasks: int, size: int, whole: bool
) -> None:
    """Of tasks that are alike, one starts if and only if the cabinets have the places for it."""
    world = World(*(rack(f"n{i}", cabinet, gpus) for i, (gpus, cabinet) in enumerate(racks)))  # type: ignore[arg-type]
    rooms: dict[str, int] = {}
    for gpus, cabinet in racks:
        rooms[cabinet] = rooms.get(cabinet, 0) + gpus
    affinity = ONE_CABINET if whole else Affinity(group_level="cabinet", group_size=size)
    started = world.queue(request("gang", 1, tasks, gpus=1, affinity=affinity))
    size = tasks if whole else size
    groups, rest = divmod(tasks, size)
    there = sum(room // size for room in rooms.values())
    fits = there > groups or (
        there == groups and (not rest or any(room % size >= rest for room in rooms.values()))
    )
    assert (started == ["gang"]) is fits


@pytest.mark.parametrize(
    ("operator", "values", "met"),
    [
        (Operator.IN, ("A", "B"), True),
        (Operator.IN, ("B",), False),
        (Operator.NOT_IN, ("B",), True),
        (Operator.NOT_IN, ("A",), False),
        (Operator.EXISTS, (), True),
        (Operator.ABSENT, (), False),
        (Operator.ABOVE, ("1",), False),
    ],
)
def test_conditions(operator: Operator, values: tuple[str, ...], met: bool) -> None:
    assert Condition(key="cabinet", operator=operator, values=values).holds({"cabinet": "A"}) is met


@pytest.mark.parametrize(
    ("operator", "value", "met"),
    [
        (Operator.ABOVE, "3", True),
        (Operator.ABOVE, "4", False),
        (Operator.BELOW, "5", True),
        (Operator.BELOW, "4", False),
        (Operator.BELOW, "x", False),
    ],
)
def test_numbers_are_compared_as_numbers(operator: Operator, value: str, met: bool) -> None:
    assert Condition(key="row", operator=operator, values=(value,)).holds({"row": "4"}) is met


def test_what_a_machine_lacks() -> None:
    lacks = {
        operator: Condition(key="row", operator=operator, values=("1",)).holds({}) for operator in Operator
    }
    assert [operator for operator, met in lacks.items() if met] == [Operator.NOT_IN, Operator.ABSENT]


def test_every_machine_has_its_name_as_a_label() -> None:
    world = World(machine("a"), machine("b"))
    here = Condition(key="kubernetes.io/hostname", operator=Operator.IN, values=("b",))
    world.queue(request("one", affinity=Affinity(terms=((here,),))))
    assert places(world, "one") == ["b"]
