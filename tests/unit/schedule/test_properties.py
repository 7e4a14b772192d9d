"""Whatever happens, in whatever order: nothing is given twice, gangs are whole, promises are kept."""

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedule.building import POOL, World, machine, request
from trackside.domain.affinity import Affinity, Condition, Operator
from trackside.domain.job import JobId, NodeId
from trackside.domain.pool import Pool, QueuePolicy, Quota
from trackside.domain.resources import GIB
from trackside.schedule.core import Scheduler
from trackside.schedule.values import (
    Decision,
    JobChanged,
    JobDraining,
    JobEnded,
    JobQueued,
    JobRemoved,
    JobRunning,
    NodeChanged,
    PoolChanged,
    Preempt,
    Request,
    SchedulingEvent,
    TaskEnded,
    Tick,
)

NODES = ("a", "b", "c")
LABELS = {"a": {"cabinet": "1", "slice": "x"}, "b": {"cabinet": "1"}, "c": {"cabinet": "2"}}
AFFINITIES = (
    Affinity(within="cabinet"),
    Affinity(group_level="cabinet", group_size=2),
    Affinity(within="cabinet", group_level="slice", group_size=2),
    Affinity(terms=((Condition(key="cabinet", operator=Operator.IN, values=("1",)),),)),
)
Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["queue"] * 6 + ["end"] * 4 + ["task", "remove", "change", "tick", "close", "open", "drain"]
        ),
        st.integers(0, 10_000),
        st.integers(0, 10_000),
    ),
    max_size=60,
)
policies = st.sampled_from(list(QueuePolicy))


def a_request(name: str, seed: int, at: int) -> Request:
    """Return some job; the same for the same seed."""
    rng = random.Random(seed)
    return request(
        name,
        rng.choice([1, 1, 2, 3, 8]),
        rng.choice([1, 1, 1, 2, 3]),
        gpus=rng.choice([0, 0, 1, 2, 4]),
        at=at,
        project=rng.choice(["p", "q"]),
        user=rng.choice(["ana", "bob"]),
        priority=rng.randrange(4),
        preemptible=rng.random() < 0.5,
        max_seconds=rng.choice([None, 10, 100, 1000]),
        avoid=frozenset(rng.sample(list(map(NodeId, NODES)), rng.choice([0, 0, 0, 0, 1, 2]))),
        affinity=rng.choice([None, None, None, *AFFINITIES]),
    )


class Driver:
    """Turns steps into events on a world, as a supervisor would."""

    def __init__(self, policy: QueuePolicy, *, quotas: bool = False) -> None:
        pool = {"project_quota": Quota(cpu_cores=12, cards=6), "user_quota": Quota(memory_bytes=9 * GIB)}
        self.world = World(
            *(machine(name, cores=8, gpus=4, labels=LABELS[name]) for name in NODES),
            policy=policy,
            lock_seconds=60,
            **(pool if quotas else {}),
        )
        self.count = 0
        self.now = 0

    def step(self, what: str, one: int, two: int) -> None:
        getattr(self, f"_{what}")(one, two)
        self._drain_preempted(one)

    def _queue(self, one: int, two: int) -> None:
        self.count += 1
        self.world.queue(a_request(f"job-{self.count}", one * 10_007 + two, self.count))

    def _end(self, one: int, two: int) -> None:
        if self.world.running:
            self.world.end(list(self.world.running)[one % len(self.world.running)])

    def _task(self, one: int, two: int) -> None:
        if self.world.running:
            job_id, slots = list(self.world.running.items())[one % len(self.world.running)]
            if slots:
                self.world.tell(TaskEnded(job_id, list(slots)[two % len(slots)]))

    def _remove(self, one: int, two: int) -> None:
        self.world.tell(JobRemoved(JobId(f"job-{1 + one % (self.count + 1)}")))

    def _change(self, one: int, two: int) -> None:
        job_id = JobId(f"job-{1 + one % (self.count + 1)}")
        if self.world.core.waits(job_id):
            changed = replace(self.world.requests[job_id], priority=two % 4)
            self.world.requests[job_id] = changed
            self.world.tell(JobChanged(changed))

    def _tick(self, one: int, two: int) -> None:
        self.now += one * 20
        self.world.tick(self.now)

    def _close(self, one: int, two: int) -> None:
        self._set_open(one, is_open=False)

    def _open(self, one: int, two: int) -> None:
        self._set_open(one, is_open=True)

    def _set_open(self, one: int, *, is_open: bool) -> None:
        node = self.world.nodes[NodeId(NODES[one % len(NODES)])]
        self.world.tell(NodeChanged(replace(node, open=is_open)))

    def _drain(self, one: int, two: int) -> None:
        if self.world.running:
            self.world.tell(JobDraining(list(self.world.running)[one % len(self.world.running)]))

    def _drain_preempted(self, one: int) -> None:
        """Some preempted jobs are gone at once, some take their time."""
        for who, _ in list(self.world.preempted):
            held = self.world.core.holds(JobId(who))
            if held is not None and held.draining and (one + len(who)) % 3:
                self.world.drained(who)


@settings(max_examples=150, deadline=None)
@given(policies, steps, st.booleans())
def test_nothing_is_ever_given_twice_and_gangs_are_whole(
    policy: QueuePolicy, what: list[Step], quotas: bool
) -> None:
    driver = Driver(policy, quotas=quotas)
    for step in what:
        driver.step(*step)  # the world checks after every event
        if quotas:
            check_quotas(driver.world)


def check_quotas(world: World) -> None:
    cores = dict.fromkeys("pq", 0.0)
    cards = dict.fromkeys("pq", 0)
    memory = dict.fromkeys(("ana", "bob"), 0)
    for job_id, slots in world.running.items():
        asked = world.requests[job_id]
        need = asked.roles[0][0]
        cores[asked.project_id] += need.cpu_cores * len(slots)
        cards[asked.project_id] += need.cards * len(slots)
        memory[asked.user] += need.memory_bytes * len(slots)
    assert max(cores.values()) <= 12
    assert max(cards.values()) <= 6
    assert max(memory.values()) <= 9 * GIB


@settings(max_examples=100, deadline=None)
@given(steps)
def test_under_fifo_the_head_starts_first(what: list[Step]) -> None:
    """Of one project, without limits or preemption, jobs start exactly in the order of the queue."""
    world = World(*(machine(name, cores=8, gpus=4) for name in NODES))
    waiting: dict[str, Request] = {}
    for number, (kind, one, two) in enumerate(what):
        if kind == "end" and world.running:
            started = world.end(list(world.running)[one % len(world.running)])
        else:
            asked = replace(
                a_request(f"job-{number}", one * 10_007 + two, number),
                project_id="p",  # type: ignore[arg-type]
                preemptible=False,
                max_seconds=None,
                avoid=frozenset(),
                affinity=None,
            )
            waiting[asked.job_id] = asked
            started = world.queue(asked)
        for name in started:
            order = sorted(waiting.values(), key=lambda job: (-job.priority, job.created_at_ms))
            fitting = [job for job in order if not too_large(job)]
            assert fitting[0].job_id == name
            del waiting[name]


def too_large(job: Request) -> bool:
    (need, count), *_ = job.roles
    each = min(8 // int(need.cpu_cores), 4 // need.cards if need.cards else 99)
    return count > each * len(NODES)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([QueuePolicy.STEP_POLLING, QueuePolicy.TIERED, QueuePolicy.FIFO]), st.randoms())
def test_no_job_starves_where_the_policy_promises_it(policy: QueuePolicy, rng: random.Random) -> None:
    """A large job of priority 3 starts although small ones arrive for ever and run long."""
    world = World(machine(cores=4), policy=policy, lock_seconds=10)
    ends: dict[str, int] = {}
    world.queue(*(request(f"early-{i}", 1, at=0) for i in range(4)))
    ends = {f"early-{i}": rng.randrange(100_000) for i in range(4)}
    world.queue(request("large", 4, at=1, priority=3))
    now, number = 0, 0
    while "large" not in world.started:
        now += 5_000
        number += 1
        assert now < 20_000_000
        started = world.queue(request(f"small-{number}", 1, at=number + 1, priority=1)) + world.tick(now)
        for name in sorted(ends, key=lambda name: (ends[name], name)):
            if ends[name] <= now:
                del ends[name]
                started += world.end(name)
        ends |= {name: now + rng.randrange(50_000, 150_000) for name in started if name != "large"}


@settings(max_examples=80, deadline=None)
@given(policies, steps)
def test_preemption_settles(policy: QueuePolicy, what: list[Step]) -> None:
    """When nothing more comes in and those told to end have ended, the core has nothing more to say."""
    driver = Driver(policy)
    for step in what:
        driver.step(*step)
    world = driver.world
    for _ in range(10 * (driver.count + 1)):
        draining = [who for who in world.running if is_draining(world, who)]
        if not draining:
            break
        world.drained(draining[0])
    assert not draining, "jobs are preempted for ever"
    settled = len(world.preempted)
    world.tell(NodeChanged(world.nodes[NodeId(NODES[0])]))  # as it was: no news
    assert len(world.preempted) == settled


class Recorder(World):
    """A world that remembers what it was told and what was answered."""

    def __init__(self, *args: object, **more: object) -> None:
        self.log: list[tuple[tuple[SchedulingEvent, ...], list[Decision]]] = []
        super().__init__(*args, **more)  # type: ignore[arg-type]

    def tell(self, *events: SchedulingEvent) -> list[Decision]:
        decisions = super().tell(*events)
        self.log.append((events, decisions))
        return decisions


@settings(max_examples=80, deadline=None)
@given(policies, steps, st.randoms())
def test_decisions_hang_on_no_order_but_that_of_events(
    policy: QueuePolicy, what: list[Step], rng: random.Random
) -> None:
    driver = Driver(policy)
    quotas = {name: Quota(cpu_cores=12) for name in ("p", "q", "r")}
    machines = (machine(name, cores=8, gpus=4, labels=LABELS[name]) for name in NODES)
    driver.world = Recorder(*machines, policy=policy)
    pool = Pool(id=POOL, policy=policy, node_ids=tuple(map(NodeId, NODES)), project_quotas=quotas)
    driver.world.tell(PoolChanged(pool))
    for step in what:
        driver.step(*step)
    again = Scheduler()
    for events, decisions in driver.world.log:
        shuffled = [shuffle(event, rng) for event in events]
        assert again.handle_all(shuffled) == decisions


def shuffle(event: SchedulingEvent, rng: random.Random) -> SchedulingEvent:
    """Return the same event with everything that is a set in another order."""
    if not isinstance(event, PoolChanged) or event.pool.node_ids is None:
        return event
    nodes: Sequence[NodeId] = rng.sample(event.pool.node_ids, len(event.pool.node_ids))
    quotas = dict(rng.sample(list(event.pool.project_quotas.items()), len(event.pool.project_quotas)))
    return PoolChanged(replace(event.pool, node_ids=tuple(nodes), project_quotas=quotas))


def test_a_rebuilt_core_decides_the_same_from_then_on() -> None:
    """What a restarted server knows (who waits, who runs where) is enough."""
    driver = Driver(QueuePolicy.FIFO)
    rng = random.Random(7)
    for _ in range(200):
        driver.step(rng.choice(["queue", "queue", "end"]), rng.randrange(10_000), rng.randrange(10_000))
    world, again = driver.world, Scheduler()
    again.handle(Tick(world.core.now_ms))
    running = [
        JobRunning(world.requests[job], tuple(slots.items()), 0) for job, slots in world.running.items()
    ]
    waiting = [JobQueued(world.requests[job]) for job in reversed(world.core.waiting())]
    rest: list[SchedulingEvent] = [PoolChanged(Pool(id=POOL, lock_seconds=60))]
    rest += [NodeChanged(node) for node in world.nodes.values()]
    rest += [JobDraining(job) for job in world.running if is_draining(world, job)]
    first = again.handle_all([*running, *waiting, *rest])
    preempted = [one.job_id for one in first if isinstance(one, Preempt)]
    assert not any(is_draining(world, job_id) for job_id in preempted)
    for job_id in list(world.running)[:3]:
        ours, theirs = world.core.handle(JobEnded(job_id)), again.handle(JobEnded(job_id))
        assert [one.job_id for one in ours] == [one.job_id for one in theirs]


def is_draining(world: World, job_id: JobId) -> bool:
    held = world.core.holds(job_id)
    return held is not None and held.draining
