"""Knows how the tasks of a job read as pods, and how the pods of a role stand."""

from trackside.api.pai_dlc.checks import maybe_time
from trackside.api.pai_dlc.ids import pod_id, pod_uid
from trackside.api.pai_dlc.phases import pod_status
from trackside.api.pai_dlc.sizes import RESOURCE_TYPE
from trackside.api.pai_dlc.wire_job import Pod, PodIp, ReplicaStatus
from trackside.domain.job import Job, Task, TaskState
from trackside.domain.phase import Phase

INTERFACE = "eth0"


def pods(job: Job, types: dict[str, str], *, now_ms: int) -> list[Pod]:
    """Return the pods of a job with their earlier starts; a queued job has none yet."""
    answer = []
    for task in job.tasks:
        pod = _pod(job, task, types, now_ms)
        earlier = [_pod(job, one, types, now_ms) for one in job.past_tasks if one.name == task.name]
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


def _pod(job: Job, task: Task, types: dict[str, str], now_ms: int) -> Pod:
    return Pod(
        pod_id=pod_id(job, task.name),
        pod_uid=pod_uid(job, task),
        type=types.get(task.role, task.role),
        status=pod_status(task, job.phase),
        sub_status="Normal",
        resource_type=RESOURCE_TYPE,
        gmt_create_time=maybe_time(_created_ms(job, task)),
        gmt_start_time=maybe_time(task.started_at_ms),
        gmt_finish_time=maybe_time(task.ended_at_ms),
        duration=_seconds(task, now_ms),
        ip=task.ip,
        pod_ip=task.ip,
        pod_ips=[PodIp(interface_name=INTERFACE, ip=task.ip)] if task.ip else None,
        node_name=task.node_id,
    )


def _created_ms(job: Job, task: Task) -> int | None:
    """Return when this start of a task was ordered: with its attempt, or when the former start ended."""
    former = [one for one in job.past_tasks if one.name == task.name and one.attempt == task.attempt - 1]
    placed = [record.placed_at_ms for record in job.records if record.placed_at_ms is not None]
    if former and former[0].ended_at_ms is not None:
        later = [at_ms for at_ms in placed if at_ms >= former[0].ended_at_ms]
        return later[0] if later else former[0].ended_at_ms
    return placed[0] if placed else None


def _seconds(task: Task, now_ms: int) -> float | None:
    if task.started_at_ms is None:
        return None
    if task.state is TaskState.ENDED:
        spent = task.duration_ms
        if spent is None:
            spent = (task.ended_at_ms or task.started_at_ms) - task.started_at_ms
    else:
        spent = now_ms - task.started_at_ms
    return round(max(0, spent) / 1000, 3)
