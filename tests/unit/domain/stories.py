"""Lives of jobs with faults, each driven by the domain's own rules, for tests of what is told of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.unit.domain.builders import NODE, a_job, a_spec, after, ended, placed, started
from trackside.domain import rules
from trackside.domain.closing import Change
from trackside.domain.evidence import DeviceFault, DeviceKind, Evidence
from trackside.domain.fault import RecoveryPolicy
from trackside.domain.job import Job, NodeId, RestartPolicy, Role, Slot
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.resources import GIB, Accelerator, Resources

OTHER = NodeId("node-b")
GPU = Resources(cpu_cores=4, memory_bytes=16 * GIB, cards=2, accelerator=Accelerator.GPU)
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\nValueError: no loss'
OUTSIDE = {"exit_code": None, "signal": 9}  # killed by somebody: the environment's fault
STOPPED = {"exit_code": None, "signal": 15, "stopped_by_us": True}


def up(workers: int = 3, policy: RecoveryPolicy | None = None, *, role: Role | None = None) -> Job:
    """Return a running job that asked for this recovery; its tasks came up one second after another."""
    asked = policy or RecoveryPolicy()
    roles = (role or Role(name="worker", count=workers, resources=GPU),)
    job = placed(a_job(spec=a_spec(roles=roles, recovery=asked)))
    return after(job, *(started(f"worker-{rank}", 3_000 + 1_000 * rank) for rank in range(workers)))


def goes_down(job: Job, culprit: str, at_ms: int, **how: Any) -> Job:
    """Let one task of the present attempt end badly; the others are then stopped, 1.2 seconds later."""
    attempts = {str(task.name): task.attempt for task in job.tasks}
    job = after(job, ended(culprit, at_ms=at_ms, attempt=attempts.pop(culprit), **how))
    others = (
        ended(name, at_ms=at_ms + 1_200, attempt=attempt, **STOPPED) for name, attempt in attempts.items()
    )
    return after(job, *others)


def comes_up(job: Job, at_ms: int) -> Job:
    """Start all tasks of the present attempt."""
    return after(job, *(started(task.name, at_ms, attempt=task.attempt) for task in job.tasks))


def placed_again(job: Job, at_ms: int, node_id: NodeId = NODE) -> Job:
    """Give a job that was queued again its next place."""
    return rules.place(job, [Slot(node_id, (0, 1))] * job.spec.node_count, master_port=20_009, at_ms=at_ms)[0]


def moved(change: Change | None) -> Job:
    """Return the job of a change that must happen."""
    assert change is not None
    return change[0]


def restarted_in_place() -> Job:
    """worker-1 raised; all were started again where they were, and then succeeded."""
    job = up(policy=RecoveryPolicy(process_retries=2, unconditional=True))
    job = goes_down(
        job, "worker-1", 65_000, exit_code=1, evidence=Evidence(traceback=TRACEBACK), duration_ms=60_000
    )
    job = comes_up(job, 68_000)
    return after(
        job, *(ended(f"worker-{rank}", at_ms=98_000, attempt=2, duration_ms=30_000) for rank in range(3))
    )


def pod_replaced() -> Job:
    """worker-2 was killed from outside; it alone was started on another machine."""
    job = up(policy=RecoveryPolicy(task_retries=1))
    job = after(job, ended("worker-2", at_ms=35_000, duration_ms=30_000, **OUTSIDE))
    job = moved(rules.replace_task(job, 2, Slot(OTHER, (4, 5)), at_ms=36_000))
    return after(job, started("worker-2", 39_000, attempt=2))


def waiting_to_be_replaced() -> Job:
    """worker-2 was killed from outside; there is no place for it yet."""
    return after(up(policy=RecoveryPolicy(task_retries=1)), ended("worker-2", at_ms=35_000, **OUTSIDE))


def no_place_to_replace() -> Job:
    """worker-2 could not be replaced, so the whole job went through the queue."""
    job = up(policy=RecoveryPolicy(task_retries=1, job_retries=1))
    job = after(job, ended("worker-2", at_ms=35_000, duration_ms=30_000, **OUTSIDE))
    job = moved(rules.cannot_replace(job, "no machine has 2 free GPUs", at_ms=45_000))
    job = after(job, *(ended(f"worker-{rank}", at_ms=46_000, **STOPPED) for rank in range(2)))
    return comes_up(placed_again(job, 50_000), 52_000)


def queued_again() -> Job:
    """worker-1 was killed from outside; the whole job went through the queue and runs again."""
    job = goes_down(
        up(policy=RecoveryPolicy(job_retries=3)), "worker-1", 65_000, duration_ms=60_000, **OUTSIDE
    )
    return comes_up(placed_again(job, 90_000, OTHER), 95_000)


def in_the_queue_again() -> Job:
    """The same, before it got its next place."""
    return goes_down(up(policy=RecoveryPolicy(job_retries=3)), "worker-1", 65_000, **OUTSIDE)


def rank_0_falls_back() -> Job:
    """worker-0 failed: neither process nor task is restarted, the whole job is."""
    policy = RecoveryPolicy(process_retries=1, task_retries=1, job_retries=1, unconditional=True)
    job = goes_down(up(policy=policy), "worker-0", 65_000, exit_code=3, duration_ms=60_000)
    return comes_up(placed_again(job, 70_000), 71_000)


def quota_exceeded() -> Job:
    """worker-1 failed twice, and one restart was all it could have."""
    job = up(policy=RecoveryPolicy(process_retries=1, unconditional=True))
    job = comes_up(goes_down(job, "worker-1", 65_000, exit_code=1), 68_000)
    return goes_down(job, "worker-1", 99_000, exit_code=1)


def stopped_while_recovering() -> Job:
    """Somebody stopped the job while its tasks were being started again."""
    job = up(policy=RecoveryPolicy(process_retries=1, unconditional=True))
    job = goes_down(job, "worker-1", 65_000, exit_code=1)
    job = rules.ask_stop(job, by="ana", at_ms=66_500)[0]
    return after(job, *(ended(task.name, at_ms=67_000, attempt=2, **STOPPED) for task in job.tasks))


def gave_up_waiting() -> Job:
    """The job went through the queue and found no room for half an hour."""
    return moved(rules.give_up_waiting(in_the_queue_again(), at_ms=1_900_000))


def hanged() -> Job:
    """The job stood still and was started again in place."""
    job = up(policy=RecoveryPolicy(hang_restart=True))
    reason = Reason(text="no task has written or computed for 30 min", code=ReasonCode.HANGED)
    job = moved(rules.suspect(job, reason, at_ms=2_000_000))
    job = after(
        job, *(ended(task.name, at_ms=2_001_000, duration_ms=1_990_000, **STOPPED) for task in job.tasks)
    )
    return comes_up(job, 2_004_000)


def card_heals() -> Job:
    """A GPU of worker-1 reported an error that a new process clears."""
    return comes_up(_card_fault(heals=True), 68_000)


def card_isolated() -> Job:
    """A GPU of worker-1 broke; it was isolated and the job placed elsewhere."""
    return comes_up(placed_again(_card_fault(heals=False), 80_000, OTHER), 85_000)


def _card_fault(*, heals: bool) -> Job:
    fault = DeviceFault(card=1, kind=DeviceKind.GPU, code="XID 79", text="fell off the bus", heals=heals)
    job = up(policy=RecoveryPolicy(job_retries=3))
    return goes_down(job, "worker-1", 65_000, exit_code=1, evidence=Evidence(device_faults=(fault,)))


def preempted() -> Job:
    """Another job needed the room; this one waited and runs again."""
    job = up()
    urgent = replace(a_job(), spec=a_spec(name="urgent", priority=3))
    job = moved(rules.preempt(job, urgent, at_ms=65_000))
    job = after(job, *(ended(task.name, at_ms=66_000, duration_ms=60_000, **STOPPED) for task in job.tasks))
    return comes_up(placed_again(job, 100_000), 101_000)


def task_restarted() -> Job:
    """A task of a role that restarts its own tasks failed and came back; the job then succeeded."""
    role = Role(name="worker", count=2, resources=GPU, restart=RestartPolicy.ON_FAILURE, restarts_max=3)
    job = after(up(2, role=role), ended("worker-1", 1, at_ms=34_000, duration_ms=30_000))
    job = after(
        job, started("worker-1", 36_000, attempt=2), ended("worker-0", at_ms=50_000, duration_ms=47_000)
    )
    return after(job, ended("worker-1", at_ms=51_000, attempt=2, duration_ms=15_000))


def failed_for_good() -> Job:
    """worker-1 failed, the others lost it and failed too, and nobody asked for recovery."""
    return _all_fail(up())


def peers_aborted() -> Job:
    """The same, and all of them were started again in place."""
    return comes_up(_all_fail(up(policy=RecoveryPolicy(process_retries=1, unconditional=True))), 70_000)


def _all_fail(job: Job) -> Job:
    job = after(job, ended("worker-1", 1, at_ms=65_000, ended_boot_ms=500, duration_ms=60_000))
    seen = Evidence(collective_error="ProcessGroupGloo: connection closed by peer")
    how = {"ended_boot_ms": 1_700, "evidence": seen, "duration_ms": 61_200}
    return after(job, *(ended(f"worker-{rank}", 1, at_ms=66_200, **how) for rank in (0, 2)))


STORIES: tuple[Callable[[], Job], ...] = (
    restarted_in_place,
    pod_replaced,
    waiting_to_be_replaced,
    no_place_to_replace,
    queued_again,
    in_the_queue_again,
    rank_0_falls_back,
    quota_exceeded,
    stopped_while_recovering,
    gave_up_waiting,
    hanged,
    card_heals,
    card_isolated,
    preempted,
    task_restarted,
    failed_for_good,
    peers_aborted,
)
