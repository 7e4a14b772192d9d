"""Plays recorded pods through the scheduling core in virtual time; checks at every instant what is held."""

import csv
import heapq
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trackside.domain.job import JobId, NodeId, ProjectId, Slot
from trackside.domain.pool import Pool, QueuePolicy
from trackside.domain.resources import Accelerator, Capacity, Resources
from trackside.schedule.core import Scheduler
from trackside.schedule.values import (
    Decision,
    JobEnded,
    JobQueued,
    NodeChanged,
    NodeSpec,
    PoolChanged,
    Request,
    Start,
    Tick,
)

MIB = 1024**2
CARDS = 8
CAPACITY = Capacity(cpu_cores=128, memory_bytes=768 * 1024 * MIB, gpus=CARDS)
PRIORITY_OF = {"LS": 2, "Guaranteed": 3, "Burstable": 1, "BE": 1}


@dataclass(frozen=True, slots=True)
class Pod:
    """One recorded pod: what it asked for, when it came and how long it ran."""

    name: str
    created_s: int
    runs_s: int
    need: Resources
    qos: str


@dataclass(slots=True)
class Replay:
    """What came of a replay."""

    waits_s: list[int] = field(default_factory=list)
    events: int = 0
    cpu_seconds: float = 0.0
    card_seconds: float = 0.0  # held while somebody waited
    busy_seconds: int = 0  # somebody waited
    nodes: int = 1

    @property
    def card_use(self) -> float:
        """Return the part of all cards that was held while somebody waited; 0 if nobody ever did."""
        return self.card_seconds / (self.busy_seconds * self.nodes * CARDS) if self.busy_seconds else 0.0


def read_pods(file: Path, *, most: int | None = None, last: bool = True) -> list[Pod]:
    """Return the pods in order of arrival; a part is taken from the end, where they come thickest."""
    with file.open() as rows:
        pods = [_pod(row) for row in csv.DictReader(rows)]
    pods.sort(key=lambda pod: (pod.created_s, pod.name))
    if most is None:
        return pods
    return pods[-most:] if last else pods[:most]


def replay(
    pods: Sequence[Pod], policy: QueuePolicy, *, nodes: int, backfill: bool = True, squeeze: int = 1
) -> Replay:
    """Play the pods; `squeeze` lets them arrive so many times faster. Without backfill no limits are told."""
    player = _Player(policy, nodes)
    begin = time.process_time()
    for pod in pods:
        player.arrive(pod, pod.created_s // squeeze, backfill=backfill)
    player.finish()
    player.done.cpu_seconds = time.process_time() - begin
    assert len(player.done.waits_s) == len(pods), "every pod ran"
    return player.done


class _Player:
    def __init__(self, policy: QueuePolicy, nodes: int) -> None:
        self.core = Scheduler()
        self.pods: dict[JobId, tuple[Pod, int]] = {}
        self.ends: list[tuple[int, JobId]] = []
        self.held: dict[JobId, tuple[Slot, ...]] = {}
        self.cards: dict[NodeId, set[int]] = defaultdict(set)
        self.used: dict[NodeId, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.now_s = 0
        self.cards_held = 0
        self.done = Replay(nodes=nodes)
        for number in range(nodes):
            spec = NodeSpec(id=NodeId(f"node-{number:02d}"), capacity=CAPACITY)
            self.core.handle(NodeChanged(spec))
        self.core.handle(PoolChanged(Pool(id="default", policy=policy)))

    def arrive(self, pod: Pod, at_s: int, *, backfill: bool) -> None:
        """Let the time go on to a pod's arrival, and queue it."""
        self._go_to(at_s)
        job_id = JobId(pod.name)
        self.pods[job_id] = pod, at_s
        request = Request(
            job_id=job_id,
            pool_id="default",
            project_id=ProjectId(pod.qos),
            user="trace",
            priority=PRIORITY_OF[pod.qos],
            roles=((pod.need, 1),),
            created_at_ms=at_s * 1000,
            number=len(self.pods),
            max_seconds=pod.runs_s if backfill else None,
        )
        self._do(self.core.handle(JobQueued(request)))

    def finish(self) -> None:
        """Let the time go on until everything has ended."""
        while self.ends:
            self._go_to(self.ends[0][0])

    def _go_to(self, at_s: int) -> None:
        while self.ends and self.ends[0][0] <= at_s:
            end_s, job_id = heapq.heappop(self.ends)
            self._pass_time(end_s)
            self._do(self.core.handle(Tick(self.now_s * 1000)))
            self._give_back(job_id)
            self._do(self.core.handle(JobEnded(job_id)))
        self._pass_time(at_s)
        self._do(self.core.handle(Tick(self.now_s * 1000)))

    def _pass_time(self, at_s: int) -> None:
        passed = max(at_s - self.now_s, 0)
        if self.core.waiting_count():
            self.done.busy_seconds += passed
            self.done.card_seconds += passed * self.cards_held
        self.now_s += passed

    def _do(self, decisions: Sequence[Decision]) -> None:
        self.done.events += 1
        for decision in decisions:
            assert isinstance(decision, Start), "nothing in the trace may be preempted"
            pod, at_s = self.pods[decision.job_id]
            self._take(decision, pod)
            self.done.waits_s.append(self.now_s - at_s)
            heapq.heappush(self.ends, (self.now_s + pod.runs_s, decision.job_id))

    def _take(self, decision: Start, pod: Pod) -> None:
        (slot,) = decision.slots
        cards, used = self.cards[slot.node_id], self.used[slot.node_id]
        assert len(slot.cards) == pod.need.cards
        assert not cards & set(slot.cards), f"a card of {slot.node_id} was given twice"
        cards.update(slot.cards)
        used[0] += pod.need.cpu_cores
        used[1] += pod.need.memory_bytes
        assert used[0] <= CAPACITY.cpu_cores + 1e-6, f"{slot.node_id} has no such cores"
        assert used[1] <= CAPACITY.memory_bytes, f"{slot.node_id} has no such memory"
        assert len(cards) <= CARDS
        self.held[decision.job_id] = decision.slots
        self.cards_held += pod.need.cards

    def _give_back(self, job_id: JobId) -> None:
        (slot,) = self.held.pop(job_id)
        pod, _ = self.pods[job_id]
        self.cards[slot.node_id].difference_update(slot.cards)
        self.cards_held -= pod.need.cards
        self.used[slot.node_id][0] -= pod.need.cpu_cores
        self.used[slot.node_id][1] -= pod.need.memory_bytes


def _pod(row: dict[str, str]) -> Pod:
    cards = int(row["num_gpu"])
    need = Resources(
        cpu_cores=max(int(row["cpu_milli"]), 1) / 1000,
        memory_bytes=max(int(row["memory_mib"]), 1) * MIB,
        cards=cards,
        accelerator=Accelerator.GPU if cards else Accelerator.NONE,
    )
    created = int(row["creation_time"])
    began = int(row["scheduled_time"] or created)
    return Pod(row["name"], created, max(1, int(row["deletion_time"]) - began), need, row["qos"])
