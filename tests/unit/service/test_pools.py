"""Pools over real stores and several machines: who has which, what is refused, what stays."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from trackside.config import FlavorSetting, Settings
from trackside.domain.affinity import Affinity, Condition, Operator
from trackside.domain.errors import (
    Exhausted,
    Invalid,
    NameTaken,
    NotFound,
    PoolInUse,
    PoolNotFound,
    TracksideError,
)
from trackside.domain.exchange import Hello
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import JobSpec, NodeId, ProjectId, Role
from trackside.domain.phase import Phase
from trackside.domain.pool import QueuePolicy, Quota
from trackside.domain.resources import GIB, Accelerator, Capacity, Resources
from trackside.service.pool_nodes import NodeState
from trackside.service.pool_record import Holder, PoolChange, PoolKind
from trackside.wiring import Parts, build

PROJECT = ProjectId("p")
ADMIN = Caller(user="ann", project_id=PROJECT, role=UserRole.ADMIN)
FLAVORS = (
    FlavorSetting(id="cpu.1", cpu_cores=1, memory_gib=1),
    FlavorSetting(id="gpu.2", cpu_cores=2, memory_gib=4, gpus=2),
)
SMALL = Resources(cpu_cores=1, memory_bytes=GIB)
CARDS = Resources(cpu_cores=2, memory_bytes=4 * GIB, cards=2, accelerator=Accelerator.GPU)


class World:
    """A server's inside with three machines, two of which have cards."""

    def __init__(self, data_dir: Path) -> None:
        self.settings = Settings(data_dir=str(data_dir), run_agent=False, flavors=FLAVORS)
        self.open()

    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.parts: Parts = build(self.settings)
        self.run(self.parts.places.stores.start())
        self.run(self.parts.places.stores.identities.put_project(PROJECT, "p"))
        self.pools = self.parts.services.pools
        self.run(self.pools.load())
        for name, gpus in (("a", 0), ("b", 4), ("c", 4)):
            self.hello(name, Capacity(cpu_cores=8, memory_bytes=32 * GIB, gpus=gpus))

    def hello(self, name: str, capacity: Capacity) -> None:
        self.parts.work.engine.hello(
            Hello(
                node_id=NodeId(name),
                agent_pid=1,
                host_ip=f"10.0.0.{ord(name)}",
                capacity=capacity,
                version="1",
            )
        )

    def run(self, work):  # type: ignore[no-untyped-def]
        return self.runner.run(work)

    def submit(self, pool: str, resources: Resources = SMALL, count: int = 1, caller: Caller = ADMIN):  # type: ignore[no-untyped-def]
        spec = JobSpec(
            name="j", roles=(Role(resources=resources, count=count),), command="true", pool_id=pool
        )
        return self.run(self.parts.services.jobs.submit(caller, spec))

    def reopen(self, **settings: object) -> None:
        """Build the server's inside anew from what is stored, perhaps with other settings."""
        self.close()
        self.settings = msgspec.structs.replace(self.settings, **settings)
        self.open()

    def close(self) -> None:
        self.parts.places.stores.close()
        self.parts.places.metrics.close()
        self.runner.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "data")
    yield made
    made.close()


def share(flavor: str, count: int) -> PoolChange:
    return PoolChange(shares=((flavor, count, None),))


def refusal(world: World, work) -> TracksideError:  # type: ignore[no-untyped-def]
    with pytest.raises(TracksideError) as caught:
        world.run(work)
    return caught.value


def test_the_default_pool_has_every_machine_and_stays(world: World) -> None:
    record = world.pools.show("default")
    assert [node.id for node in world.pools.nodes(record)] == ["a", "b", "c"]
    assert world.pools.capacity(record) == Capacity(cpu_cores=24, memory_bytes=96 * GIB, gpus=8)
    assert isinstance(refusal(world, world.pools.delete("default")), Invalid)
    assert isinstance(refusal(world, world.pools.change("default", share("cpu.1", 1))), Invalid)
    changed = world.run(world.pools.change("default", PoolChange(policy=QueuePolicy.TIERED)))
    assert changed.pool.policy is QueuePolicy.TIERED


def test_a_share_is_a_cap_of_so_many_flavors(world: World) -> None:
    record = world.run(world.pools.create(ADMIN, share("gpu.2", 3), pool_id="cards"))
    assert record.kind is PoolKind.SHARE
    assert record.pool.cap == Quota(cpu_cores=6, memory_bytes=12 * GIB, cards=6)
    assert record.pool.node_ids is None
    assert world.pools.capacity(record).gpus == 6
    grown = world.run(world.pools.change("cards", share("gpu.2", 4)))
    assert grown.pool.cap is not None
    assert grown.pool.cap.cards == 8
    too_large = refusal(world, world.pools.change("cards", share("gpu.2", 5)))
    assert "would have 10 GPUs" in too_large.detail
    assert "at most 4 of gpu.2 fit" in too_large.detail


def test_whole_machines_are_picked_by_what_they_hold_and_those_of_nobody_first(world: World) -> None:
    assert world.pools.pick_nodes([("gpu.2", 1, None)]) == ("b",)
    world.run(world.pools.create(ADMIN, PoolChange(node_ids=("b",)), pool_id="first"))
    assert world.pools.pick_nodes([("gpu.2", 1, None)]) == ("c",)
    assert world.pools.pick_nodes([("gpu.2", 2, None), ("cpu.1", 1, None)]) == ("c", "b", "a")
    with pytest.raises(Invalid, match=r"3 nodes that hold gpu\.2 are asked for, and there are 2"):
        world.pools.pick_nodes([("gpu.2", 3, None)])
    record = world.pools.show("first")
    assert [node.id for node in world.pools.nodes(record)] == ["b"]
    with pytest.raises(NotFound, match="pool first has no node 'a'; there are: b"):
        world.pools.node(record, "a")


@pytest.mark.parametrize(
    ("pool_id", "change", "kind", "says"),
    [
        ("Upper", share("cpu.1", 1), Invalid, "lower-case"),
        ("ends-", share("cpu.1", 1), Invalid, "does not end in a hyphen"),
        ("a" * 64, share("cpu.1", 1), Invalid, "1 to 63"),
        ("x y", share("cpu.1", 1), Invalid, "needs a name"),
        ("ok", PoolChange(), Invalid, "either nodes, or flavors"),
        ("ok", PoolChange(node_ids=()), Invalid, "no node cannot be in a pool"),
        ("ok", PoolChange(node_ids=("z",)), Invalid, "z cannot be in a pool; the nodes are: a, b, c"),
        ("ok", share("nope", 1), TracksideError, "there are: cpu.1, gpu.2"),
        ("ok", share("cpu.1", -1), Invalid, "from 0 to"),
        ("default", share("cpu.1", 1), NameTaken, "exists already"),
    ],
)
def test_a_bad_pool_is_refused(
    world: World, pool_id: str, change: PoolChange, kind: type[TracksideError], says: str
) -> None:
    error = refusal(world, world.pools.create(ADMIN, change, pool_id=pool_id))
    assert isinstance(error, kind)
    assert says in error.detail
    assert [record.id for record in world.pools.list()] == ["default"]


def test_a_job_must_fit_its_pool_the_quota_of_its_user_and_of_its_project(world: World) -> None:
    with pytest.raises(PoolNotFound, match=r"^Pool nowhere not found\.$"):
        world.submit("nowhere")
    world.run(world.pools.create(ADMIN, share("cpu.1", 4), pool_id="four"))
    with pytest.raises(
        Exhausted, match="5 cores, and pool four may hold at most 4 at once; the largest that fits has 4"
    ):
        world.submit("four", count=5)
    with pytest.raises(Exhausted, match="2 cards, and pool four may hold at most 0"):
        world.submit("four", CARDS)
    world.submit("four", count=4)
    quotas = {
        (Holder.USER, "*"): Quota(cpu_cores=3),
        (Holder.USER, "bob"): Quota(cpu_cores=1),
        (Holder.PROJECT, "p"): Quota(memory_bytes=2 * GIB),
    }
    world.run(world.pools.change("four", PoolChange(quotas=quotas)))
    with pytest.raises(
        Exhausted, match=r"project p in pool four may hold at most 2,147,483,648 at once; .* has 2"
    ):
        world.submit("four", count=3)
    bob = Caller(user="bob", project_id=PROJECT, role=UserRole.USER)
    with pytest.raises(Exhausted, match="user bob in pool four may hold at most 1 at once"):
        world.submit("four", count=2, caller=bob)
    world.submit("four", count=2)


def test_a_job_must_fit_the_machines_of_its_pool(world: World) -> None:
    world.run(world.pools.create(ADMIN, PoolChange(node_ids=("a",)), pool_id="plain"))
    with pytest.raises(Invalid, match=r"the largest has 8 cores, 32\.0 GiB, 0 GPUs"):
        world.submit("plain", CARDS)
    with pytest.raises(Exhausted, match="there is room for 8 of worker"):
        world.submit("plain", count=9)
    world.submit("plain", count=8)
    world.submit("default", CARDS, count=4)


def test_a_pool_with_jobs_is_kept_and_one_without_goes(world: World) -> None:
    world.run(world.pools.create(ADMIN, share("cpu.1", 1), pool_id="busy"))
    job = world.submit("busy")
    error = refusal(world, world.pools.delete("busy"))
    assert isinstance(error, PoolInUse)
    assert job.id in error.detail
    world.pools.show("busy")
    world.run(world.parts.services.jobs.stop(ADMIN, job.id))
    world.run(world.pools.delete("busy"))
    with pytest.raises(PoolNotFound):
        world.submit("busy")
    assert isinstance(refusal(world, world.pools.delete("busy")), PoolNotFound)


def test_a_job_and_the_end_of_its_pool_at_once(world: World) -> None:
    """Whoever is first wins; never is there a job without its pool."""
    spec = JobSpec(name="j", roles=(Role(resources=SMALL),), command="true", pool_id="short")

    async def both() -> list[object]:
        return await asyncio.gather(
            world.parts.services.jobs.submit(ADMIN, spec), world.pools.delete("short"), return_exceptions=True
        )

    for _ in range(20):
        world.run(world.pools.create(ADMIN, share("cpu.1", 1), pool_id="short"))
        job, deleted = world.run(both())
        if isinstance(deleted, PoolInUse):
            assert not isinstance(job, BaseException)
            world.run(world.parts.services.jobs.stop(ADMIN, job.id))  # type: ignore[attr-defined]
            world.run(world.pools.delete("short"))
        else:
            assert isinstance(job, PoolNotFound)


def test_the_setting_of_the_policy_counts_when_it_is_changed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def policy() -> QueuePolicy:
        return world.pools.show("default").pool.policy

    caplog.set_level("INFO")
    assert policy() is QueuePolicy.FIFO
    world.reopen(queue_policy="tiered")
    assert policy() is QueuePolicy.TIERED
    world.run(world.pools.change("default", PoolChange(policy=QueuePolicy.TRAVERSAL)))
    assert "keeps the queue policy" not in caplog.text
    world.reopen()
    assert policy() is QueuePolicy.TRAVERSAL, "what the pool was given since stays"
    assert (
        "default keeps the queue policy traversal that it was given; the setting says tiered" in caplog.text
    )
    world.reopen(queue_policy="fifo")
    assert policy() is QueuePolicy.FIFO
    world.reopen()
    assert policy() is QueuePolicy.FIFO


def test_a_job_is_refused_where_its_affinity_can_never_be_met(world: World) -> None:
    def submit(affinity: Affinity, count: int, *more: Role) -> object:
        roles = (Role(resources=CARDS, count=count), *more)
        spec = JobSpec(name="j", roles=roles, command="true", affinity=affinity)
        return world.run(world.parts.services.jobs.submit(ADMIN, spec))

    cabinet = Affinity(within="cabinet")
    with pytest.raises(Exhausted, match=r"one cabinet; the largest that fits has 2 of these .* stands alone"):
        submit(cabinet, 3)
    for name in "bc":
        labels = {"cabinet": "A", "hyperinstance": name}
        assert world.run(world.pools.label_node(ADMIN, name, labels)) == labels
    submit(cabinet, 4)
    with pytest.raises(Exhausted, match="room for 4 of worker"):
        submit(cabinet, 5)
    groups = Affinity(group_level="hyperinstance", group_size=3)
    with pytest.raises(
        Exhausted, match=r"in groups of 3, each in one hyperinstance; .* has 2 of these tasks$"
    ):
        submit(groups, 3)
    submit(Affinity(group_level="hyperinstance", group_size=2), 4)
    both = Affinity(within="cabinet", group_level="hyperinstance", group_size=2)
    submit(both, 2, Role(name="ps", resources=CARDS, count=2))
    with pytest.raises(Exhausted, match=r"in groups of 3, each in one hyperinstance, all into one cabinet$"):
        submit(replace(both, group_size=3), 3, Role(name="ps", resources=SMALL, count=1))
    nowhere = Condition(key="cabinet", operator=Operator.IN, values=("Z",))
    with pytest.raises(Invalid, match="the labels are: cabinet=A, hyperinstance=b, hyperinstance=c"):
        submit(Affinity(terms=((nowhere,),)), 1)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"kubernetes.io/hostname": "x"}, "is the node's name"),
        ({"": "x"}, "is not a label"),
        ({"a b": "x"}, "is not a label"),
        ({"a": "x" * 64}, "takes 1 to 63"),
        ({"a": ""}, "takes 1 to 63"),
        ({f"k{i}": "x" for i in range(65)}, "at most 64 labels"),
    ],
)
def test_bad_labels_are_refused(world: World, labels: dict[str, str | None], says: str) -> None:
    assert says in str(refusal(world, world.pools.label_node(ADMIN, "a", labels)))
    assert world.pools.labels() == {}


def test_locked_machines_and_pools_stay_over_a_restart(world: World) -> None:
    world.run(world.pools.create(ADMIN, share("cpu.1", 2), pool_id="stays"))
    quotas = {(Holder.USER, "*"): Quota(cards=1)}
    world.run(world.pools.change("stays", PoolChange(quotas=quotas, description="d", lock_seconds=7)))
    world.run(world.pools.set_node(ADMIN, "b", NodeState.LOCKED))
    world.run(world.pools.set_node(ADMIN, "c", NodeState.DRAINING))
    world.run(world.pools.label_node(ADMIN, "b", {"cabinet": "A", "slice": "s"}))
    world.run(world.pools.label_node(ADMIN, "b", {"slice": None}))
    assert world.pools.closed_nodes() == {"b", "c"}
    before = world.pools.list()
    world.reopen()
    assert world.pools.list() == before
    assert world.pools.closed_nodes() == {"b", "c"}
    assert world.pools.node_state("a") is NodeState.OPEN
    assert world.pools.labels() == {"b": {"cabinet": "A"}}
    world.run(world.pools.set_node(ADMIN, "b", NodeState.OPEN))
    assert world.pools.closed_nodes() == {"c"}
    assert isinstance(refusal(world, world.pools.set_node(ADMIN, "z", NodeState.LOCKED)), NotFound)


def test_use_and_counts_follow_the_jobs(world: World) -> None:
    world.run(world.pools.create(ADMIN, share("cpu.1", 2), pool_id="two"))
    for _ in range(3):
        world.submit("two")
    world.run(world.parts.work.supervisor.round())
    record = world.pools.show("two")
    use = world.run(world.pools.use(record))
    assert (use.holding, use.waiting, use.held.cpu_cores) == (2, 1, 2)
    assert world.run(world.pools.counts(ADMIN, "two")) == {
        ("job", Phase.STARTING): 2,
        ("job", Phase.QUEUED): 1,
    }
    assert [job.phase for job in world.run(world.pools.waiting("two"))] == [Phase.QUEUED]
    with pytest.raises(PoolNotFound):
        world.run(world.pools.counts(ADMIN, "nowhere"))


def test_a_locked_machine_is_given_nothing(world: World) -> None:
    for name in ("b", "c"):
        world.run(world.pools.set_node(ADMIN, name, NodeState.LOCKED))
    world.submit("default", CARDS)
    world.run(world.parts.work.supervisor.round())
    assert len(world.run(world.pools.waiting("default"))) == 1
    world.run(world.pools.set_node(ADMIN, "c", NodeState.OPEN))
    world.run(world.parts.work.supervisor.round())
    use = world.run(world.pools.use(world.pools.show("default")))
    assert set(use.by_node) == {"c"}
