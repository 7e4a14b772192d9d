"""Knows how the tasks of a job read as pods, and how the pods of a role stand."""

from trackside.api.pai_dlc.checks import maybe_time
from trackside.api.pai_dlc.ids import pod_id, pod_uid
from trackside.api.pai_dlc.phases import pod_status
from trackside.api.pai_dlc.sizes import RESOURCE_TYPE
from trackside.api.pai_dlc.wire_job import Pod, PodIp, ReplicaStatus
from trackside.domain.attempts import starts
from trackside.domain.job import Job, Task, TaskState
from trackside.domain.phase import Phase
from trackside.domain.reason import ReasonCode
from trackside.domain.timing import task_ms

INTERFACE = "eth0"
NORMAL, EVICTED = "Normal", "Evicted"
MADE_ROOM = (ReasonCode.PREEMPTED, ReasonCode.EVICTED)


def pods(job: Job, types: dict[str, str], *, now_ms: int) -> list[Pod]:
    """Return the pods of a job, each with its earlier starts, the oldest first.

    A job that never got a place has none; one that waits for its next place has those it had last.
    """
    by_task: dict[str, list[Pod]] = {}
    placed_ms = {record.number: record.placed_at_ms for record in job.records}
    for start in sorted(starts(job), key=lambda one: one.task.rank):  # those of one task stay in order
        # The first start of an attempt is ordered with it, a later one when the one before it has ended.
        former = start.former
        created_ms = placed_ms.get(start.task.record) if former is None else former.ended_at_ms
        by_task.setdefault(start.task.name, []).append(_pod(job, start.task, types, created_ms, now_ms))
    answer = []
    for earlier in by_task.values():
        pod = earlier.pop()
        pod.history_pods = earlier or None
        answer.append(pod)
    return answer


def replica_statuses(job: Job, types: dict[str, str]) -> list[ReplicaStatus]:
    """Return, role by role, how many pods run, wait for room, and have got it."""
    waiting = job.phase in (Phase.CREATING, Phase.QUEUED)
    answer = []
    for role in job.spec.roles:
        tasks = [task for task in job.tasks if task.role == role.name]
        answer.append(
            ReplicaStatus(
                type=types[role.name],
                active=sum(task.state is TaskState.RUNNING for task in tasks),
                queuing=role.count if waiting else 0,
                dequeued=len(tasks),
            )
        )
    return answer


def _pod(job: Job, task: Task, types: dict[str, str], created_ms: int | None, now_ms: int) -> Pod:
    placed = task.state is not TaskState.WAITING
    return Pod(
        pod_id=pod_id(job, task.name),
        pod_uid=pod_uid(job, task),
        type=types.get(task.role, task.role),
        status=pod_status(task, job.phase),
        sub_status=EVICTED if task.reason and task.reason.code in MADE_ROOM else NORMAL,
        resource_type=RESOURCE_TYPE,
        gmt_create_time=maybe_time(created_ms),
        gmt_start_time=maybe_time(task.started_at_ms),
        gmt_finish_time=maybe_time(task.ended_at_ms),
        duration=_seconds(task, now_ms),
        ip=task.ip,
        pod_ip=task.ip,
        pod_ips=[PodIp(interface_name=INTERFACE, ip=task.ip)] if task.ip else None,
        node_name=task.node_id if placed else None,
    )


def _seconds(task: Task, now_ms: int) -> float | None:
    if task.started_at_ms is None:
        return None
    return round(task_ms(task, now_ms=now_ms) / 1000, 3)
