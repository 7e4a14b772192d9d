"""What the scheduling core costs per event as the queue grows, and what each policy makes of a real trace.

The core runs alone, in virtual time: nothing is stored and nothing starts. The CPU time of this process is
measured, so that what else the machine does matters less.
"""

import gc
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.replay import Pod, Replay, read_pods, replay
from trackside.domain.job import JobId, NodeId, ProjectId
from trackside.domain.pool import Pool, QueuePolicy
from trackside.domain.resources import GIB, Accelerator, Capacity, Resources
from trackside.schedule.core import Scheduler
from trackside.schedule.values import (
    Decision,
    JobEnded,
    JobQueued,
    NodeChanged,
    NodeSpec,
    PoolChanged,
    Request,
    SchedulingEvent,
    Start,
    Tick,
)

QUEUED = (100, 1_000, 10_000)
NODES = 160  # of eight cards: about 1,000 jobs of this mix run at once
BATCHES, ROUNDS = 7, 800  # the median batch counts: others use the machine too
SQUEEZES = (1, 100)  # how many times faster the pods of the trace arrive
TRACE = Path(__file__).parent.parent.parent / "shared" / "data" / "gpu-pods" / "openb_pod_list_default.csv"
POD_NODES = 64


def run() -> None:
    """Print decisions per second and microseconds per event, then the replay."""
    print(f"   yardstick: a million additions take {_yardstick_ms():.0f} ms of CPU here")
    print("policy         queued  running  us/end   us/queue  us/tick  starts  decisions/s")
    for policy in QueuePolicy:
        for queued in QUEUED:
            print(measure(policy, queued))
    if TRACE.exists():
        print_replay(TRACE)
    else:
        print(f"   no trace at {TRACE}: the replay is left out")


def _yardstick_ms() -> float:
    """Return what a loop of plain Python costs on this machine at this moment."""
    begin, total = time.process_time_ns(), 0
    for number in range(1_000_000):
        total += number
    return (time.process_time_ns() - begin) / 1e6


def measure(policy: QueuePolicy, queued: int) -> str:
    """Return one row: a full pool in which jobs end, others arrive, and time goes by."""
    rng = random.Random(1)
    core, requests = Scheduler(), _requests(rng)
    for number in range(NODES):
        capacity = Capacity(cpu_cores=96, memory_bytes=768 * GIB, gpus=8)
        core.handle(NodeChanged(NodeSpec(id=NodeId(f"node-{number:03d}"), capacity=capacity)))
    core.handle(PoolChanged(Pool(id="default", policy=policy)))
    running: list[JobId] = []
    while len(core.books.waiting) < queued:
        _note(running, core.handle(JobQueued(next(requests))))
    gc.collect()
    gc.freeze()
    batches = sorted(
        (_batch(core, rng, requests, running) for _ in range(BATCHES)),
        key=lambda row: row.decisions_per_second,
    )
    gc.unfreeze()
    batch = batches[BATCHES // 2]
    each = {kind: nanoseconds / ROUNDS / 1000 for kind, nanoseconds in batch.spent.items()}
    return (
        f"{policy:13s} {queued:7,d} {len(running):8,d} {each[JobEnded]:7.1f} {each[JobQueued]:10.1f} "
        f"{each[Tick]:8.1f} {batch.starts:7,d} {batch.decisions_per_second:12,.0f}"
    )


@dataclass(slots=True)
class Batch:
    """What some rounds cost: nanoseconds by kind of event, and how many jobs they started."""

    spent: dict[type, int] = field(default_factory=lambda: {JobEnded: 0, JobQueued: 0, Tick: 0})
    starts: int = 0

    @property
    def decisions_per_second(self) -> float:
        """Return how many jobs were looked at (each that came or went) or started, in a second."""
        return (ROUNDS * 2 + self.starts) / sum(self.spent.values()) * 1e9


def _batch(core: Scheduler, rng: random.Random, requests: Iterator[Request], running: list[JobId]) -> Batch:
    batch, now_ms = Batch(), core.now_ms
    for _ in range(ROUNDS):
        now_ms += 1  # a thousand jobs come and go in a second
        place = rng.randrange(len(running))
        running[place], running[-1] = running[-1], running[place]
        for event in (Tick(now_ms), JobEnded(running.pop()), JobQueued(next(requests))):
            batch.starts += _note(running, _timed(core, event, batch.spent))
    return batch


def _timed(core: Scheduler, event: SchedulingEvent, spent: dict[type, int]) -> list[Decision]:
    begin = time.process_time_ns()
    decisions = core.handle(event)
    spent[type(event)] += time.process_time_ns() - begin
    return decisions


def _note(running: list[JobId], decisions: list[Decision]) -> int:
    started = [decision.job_id for decision in decisions if isinstance(decision, Start)]
    running += started
    return len(started)


def _requests(rng: random.Random) -> Iterator[Request]:
    """Yield jobs of a mix like the trace's: most want one card, few want many or are gangs."""
    number = 0
    while True:
        number += 1
        cards = rng.choices((0, 1, 2, 4, 8), (10, 75, 6, 5, 4))[0]
        cores = rng.choice((2, 4)) if cards == 0 else cards * rng.choice((4, 6, 8))
        family = Accelerator.GPU if cards else Accelerator.NONE
        need = Resources(cpu_cores=cores, memory_bytes=cores * 4 * GIB, cards=cards, accelerator=family)
        yield Request(
            job_id=JobId(f"job-{number:07d}"),
            pool_id="default",
            project_id=ProjectId(f"project-{rng.randrange(10)}"),
            user=f"user-{rng.randrange(30)}",
            priority=rng.choice((0, 1, 1, 1, 2, 3)),
            roles=((need, rng.choices((1, 2, 4), (95, 3, 2))[0]),),
            created_at_ms=number,
            number=number,
            max_seconds=rng.choice((None, 600, 3600, 7200)),
        )


def print_replay(trace: Path) -> None:
    """Replay the trace under every policy and compare with a plain FIFO, which knows no backfill."""
    pods = read_pods(trace)
    for squeeze in SQUEEZES:
        _print_replay(pods, squeeze)


def _print_replay(pods: Sequence[Pod], squeeze: int) -> None:
    print(f"\n   {len(pods):,} pods on {POD_NODES} eight-card machines, at {squeeze} times the recorded rate")
    print("policy          card use  median wait s  mean wait s  p99 wait s  events/s")
    plain = replay(pods, QueuePolicy.FIFO, nodes=POD_NODES, backfill=False, squeeze=squeeze)
    rows = [("plain fifo", plain)]
    rows += [(policy.value, replay(pods, policy, nodes=POD_NODES, squeeze=squeeze)) for policy in QueuePolicy]
    for name, done in rows:
        print(_row(name, done))


def _row(name: str, done: Replay) -> str:
    waits = sorted(done.waits_s)
    p99 = waits[int(len(waits) * 0.99)]
    return (
        f"{name:14s} {done.card_use:9.1%} {statistics.median(waits):14,.0f} {statistics.mean(waits):12,.0f} "
        f"{p99:11,.0f} {done.events / done.cpu_seconds:9,.0f}"
    )
