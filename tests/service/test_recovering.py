"""Recovery on a real database: places, deadlines and isolation, with a clock of the test's own."""

from dataclasses import replace
from typing import Any

import pytest

from tests.service.test_supervisor import ANA, CAPACITY, World, world
from tests.unit.domain.builders import NODE, SMALL, a_spec, ended, started
from trackside.domain.evidence import DeviceFault, DeviceKind, Evidence
from trackside.domain.fault import RecoverLevel, RecoverResult, RecoveryPolicy
from trackside.domain.job import Job, Role, TaskState
from trackside.domain.phase import Phase
from trackside.domain.reason import ReasonCode
from trackside.domain.resources import Accelerator
from trackside.service.pool_nodes import NodeState

__all__ = ["world"]  # a fixture
pytestmark = pytest.mark.anyio

KILLED: dict[str, Any] = {"exit_code": None, "signal": 9}


async def a_running(world: World, workers: int = 2, **policy: Any) -> Job:
    """Return a job of which every task runs."""
    job = await world.jobs.submit(ANA, a_spec(workers, recovery=RecoveryPolicy(**policy)))
    await world.supervisor.round()
    return await up(world, job)


async def up(world: World, job: Job) -> Job:
    """Let every task that has a place start."""
    job = world.now(job)
    for task in job.tasks:
        if task.state is TaskState.PLACED:
            job = await world.report(job, started, task.name, attempt=task.attempt)
    return job


async def drained(world: World, job: Job) -> Job:
    """Let every task that was told to stop end."""
    job = world.now(job)
    for task in job.tasks:
        if task.state is TaskState.RUNNING and job.ending is not None:
            how: dict[str, Any] = {"exit_code": None, "signal": 15, "stopped_by_us": True}
            job = await world.report(job, ended, task.name, attempt=task.attempt, **how)
    return job


async def test_a_job_that_recovers_goes_before_all_others(world: World) -> None:
    job = await a_running(world, job_retries=1)
    other = await world.jobs.submit(ANA, a_spec(2, priority=3))
    await world.report(job, ended, "worker-1", **KILLED)
    job = await drained(world, job)
    assert job.phase is Phase.QUEUED
    await world.supervisor.round()
    assert world.now(job).phase is Phase.STARTING
    assert world.now(other).phase is Phase.QUEUED


async def test_its_room_is_nobody_elses_while_it_restarts_in_place(world: World) -> None:
    job = await a_running(world, process_retries=1)
    other = await world.jobs.submit(ANA, a_spec(1, priority=3))
    await world.report(job, ended, "worker-1", **KILLED)
    await world.supervisor.round()
    assert world.now(other).phase is Phase.QUEUED
    job = await drained(world, job)
    await world.supervisor.round()
    assert world.now(other).phase is Phase.QUEUED
    assert (await up(world, job)).phase is Phase.RUNNING


async def test_a_task_is_replaced_where_there_is_room(world: World) -> None:
    job = await a_running(world, task_retries=1)
    other = await world.jobs.submit(ANA, a_spec(1, priority=3))
    await world.report(job, ended, "worker-1", **KILLED)
    await world.supervisor.round()
    job = await up(world, job)
    assert job.phase is Phase.RUNNING
    assert [task.attempt for task in job.tasks] == [1, 2]
    await world.supervisor.round()
    assert world.now(other).phase is Phase.QUEUED
    for name, attempt in (("worker-0", 1), ("worker-1", 2)):
        job = await world.report(job, ended, name, attempt=attempt)
    assert job.phase is Phase.SUCCEEDED
    await world.supervisor.round()
    assert world.now(other).phase is Phase.STARTING


async def test_without_room_for_a_replacement_the_whole_job_is_queued_again(world: World) -> None:
    job = await a_running(world, task_retries=1, job_retries=1)
    await world.pools.set_node(ANA, NODE, NodeState.LOCKED)
    await world.report(job, ended, "worker-1", **KILLED)
    await world.supervisor.round()
    job = await drained(world, job)
    assert job.phase is Phase.QUEUED
    assert [(one.level, one.result) for one in job.records[0].recoveries] == [
        (RecoverLevel.POD_RESCHEDULE, RecoverResult.DOWNGRADE),
        (RecoverLevel.JOB_RESCHEDULE, RecoverResult.RECOVERING),
    ]


async def test_it_is_given_up_after_30_minutes_by_a_clock_that_does_not_jump(world: World) -> None:
    job = await a_running(world, job_retries=1)
    await world.pools.set_node(ANA, NODE, NodeState.LOCKED)
    await world.report(job, ended, "worker-1", **KILLED)
    job = await drained(world, job)
    await world.supervisor.round()
    world.clock.wall_ms += 7_200_000  # somebody set the clock; no time went by
    await world.supervisor.round()
    assert world.now(job).phase is Phase.QUEUED
    world.clock.steady_ms += 1_801_000
    await world.supervisor.round()
    job = world.now(job)
    assert job.phase is Phase.FAILED
    assert job.reason is not None
    assert job.reason.code is ReasonCode.RECOVERY_TIMEOUT


async def test_a_card_that_does_not_heal_takes_nothing_until_its_machine_is_opened_again(
    world: World,
) -> None:
    world.engine.capacity = replace(CAPACITY, gpus=2, gpu_model="T4")
    role = Role(count=1, resources=replace(SMALL, cards=1, accelerator=Accelerator.GPU))
    spec = a_spec(roles=(role,), recovery=RecoveryPolicy(job_retries=3))
    job = await world.jobs.submit(ANA, spec)
    await world.supervisor.round()
    job = await up(world, job)
    (card,) = job.tasks[0].cards
    fault = DeviceFault(card=card, kind=DeviceKind.GPU, code="XID 79", text="off the bus", heals=False)
    job = await world.report(job, ended, "worker-0", exit_code=1, evidence=Evidence(device_faults=(fault,)))
    assert job.records[0].recoveries[-1].level is RecoverLevel.JOB_RESCHEDULE_WITH_TAINT
    await world.supervisor.round()
    job = world.now(job)
    assert job.tasks[0].cards == (1 - card,)
    assert world.pools.isolated_cards() == {NODE: frozenset({card})}
    other = await world.jobs.submit(ANA, spec)
    await world.supervisor.round()
    assert world.now(other).phase is Phase.QUEUED
    await world.pools.set_node(ANA, NODE, NodeState.OPEN)
    await world.supervisor.round()
    assert world.now(other).tasks[0].cards == (card,)
