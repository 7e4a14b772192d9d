"""Knows how much of a pool is held and who waits. Pure: computed from the jobs that are not over."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trackside.domain.job import Job, NodeId, TaskState
from trackside.domain.phase import Phase
from trackside.domain.resources import Accelerator, Capacity, Resources

NOTHING = Capacity(cpu_cores=0, memory_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """What the jobs of a pool hold, and what jobs of all pools hold on each machine."""

    held: Capacity
    by_node: Mapping[NodeId, Capacity]
    holding: int  # jobs of the pool that hold room
    waiting: int  # jobs of the pool that wait for it

    @classmethod
    def of(cls, pool_id: str, jobs: Iterable[Job]) -> "PoolUse":
        """Add up what live tasks hold."""
        held, by_node = NOTHING, dict[NodeId, Capacity]()
        holding = waiting = 0
        for job in jobs:
            mine = job.spec.pool_id == pool_id
            live = [task for task in job.tasks if task.state is not TaskState.ENDED]
            holding += mine and bool(live)
            waiting += mine and job.phase is Phase.QUEUED
            for task in live:
                by_node[task.node_id] = plus(by_node.get(task.node_id, NOTHING), task.resources)
                held = plus(held, task.resources) if mine else held
        return cls(held=held, by_node=by_node, holding=holding, waiting=waiting)


def plus(amount: Capacity, more: Resources) -> Capacity:
    """Return an amount with a task's resources added."""
    return Capacity(
        cpu_cores=amount.cpu_cores + more.cpu_cores,
        memory_bytes=amount.memory_bytes + more.memory_bytes,
        gpus=amount.gpus + (more.cards if more.accelerator is Accelerator.GPU else 0),
        npus=amount.npus + (more.cards if more.accelerator is Accelerator.NPU else 0),
    )


def left_of(there: Capacity, held: Capacity) -> Capacity:
    """Return what is not held; never less than nothing."""
    return Capacity(
        cpu_cores=max(0.0, round(there.cpu_cores - held.cpu_cores, 6)),
        memory_bytes=max(0, there.memory_bytes - held.memory_bytes),
        gpus=max(0, there.gpus - held.gpus),
        npus=max(0, there.npus - held.npus),
    )


def total_capacity(capacities: Sequence[Capacity]) -> Capacity:
    """Return what machines have together."""
    return Capacity(
        cpu_cores=sum(one.cpu_cores for one in capacities),
        memory_bytes=sum(one.memory_bytes for one in capacities),
        gpus=sum(one.gpus for one in capacities),
        npus=sum(one.npus for one in capacities),
        gpu_model=next((one.gpu_model for one in capacities if one.gpu_model), None),
        npu_model=next((one.npu_model for one in capacities if one.npu_model), None),
    )


def queue_order(jobs: Iterable[Job]) -> Sequence[Job]:
    """Return the jobs that wait, next to start first: by priority, then by age."""
    queued = [job for job in jobs if job.phase is Phase.QUEUED and not job.ending]
    return sorted(queued, key=lambda job: (-job.spec.priority, job.created_at_ms, job.number, job.id))
