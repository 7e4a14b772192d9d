"""Knows what a task is told when it starts: its command, its arguments, its environment."""

import json
from collections.abc import Mapping, Sequence

from trackside.domain.exchange import Launch, TaskKey
from trackside.domain.job import Job, Task
from trackside.domain.policies import restarts_in_place, role_of, schedule_count

TENSORFLOW = "tensorflow"
EVALUATOR = "evaluator"


def launch_order(
    job: Job,
    task: Task,
    *,
    hosts: Sequence[str],
    path_prefix: tuple[str, ...] = (),
    runtime_environment: Mapping[str, str] | None = None,
) -> Launch:
    """Return the order that starts a task; `hosts` are the addresses of all tasks, by rank."""
    spec, role = job.spec, role_of(job, task)
    command = role.command or spec.command
    return Launch(
        key=TaskKey(job.id, task.attempt, task.name),
        shell_command=command,
        boot_file=None if command else spec.boot_file,
        arguments=tuple(f"--{name}={value}" for name, value in spec.parameters),
        environment={
            **(runtime_environment or {}),
            **spec.environments,
            **task_environment(job, task, hosts),
        },
        path_prefix=path_prefix,
        resources=task.resources,
        cards=task.cards,
        code_url=spec.code_dir,
        local_code_dir=spec.local_code_dir,
        working_dir=spec.working_dir,
        inputs=spec.inputs,
        outputs=spec.outputs,
        grace_seconds=spec.grace_seconds,
        log_export_url=spec.log_export_url,
        custom_metrics=spec.custom_metrics,
        log_patterns=spec.log_patterns,
    )


def task_environment(job: Job, task: Task, hosts: Sequence[str]) -> dict[str, str]:
    """Return the variables that tell a task who and where it is, in the words scripts expect."""
    record = job.records[-1]
    values: dict[str, object]
    workers = [host for host, one in zip(hosts, job.tasks, strict=True) if one.role == task.role]
    values = {
        "MA_NUM_HOSTS": len(job.tasks),
        "VC_TASK_INDEX": task.index,
        "VC_WORKER_NUM": len(workers),
        "VC_WORKER_HOSTS": ",".join(workers),
        "MA_NUM_GPUS": task.resources.cards,
        "MA_TASK_NAME": task.role,
        "MA_CURRENT_INSTANCE_NAME": f"{job.id}-{task.name}",
        "MA_SCHEDULE_CNT": schedule_count(job, task),
        "MA_PROC_START_CNT": 1 + restarts_in_place(job, task),
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": record.master_port,
        "RANK": task.rank,
        "WORLD_SIZE": len(job.tasks),
        "LOCAL_RANK": 0,
        "TRACKSIDE_JOB_ID": job.id,
        "TRACKSIDE_TASK": task.name,
    }
    if job.spec.framework == TENSORFLOW:
        values["TF_CONFIG"] = tf_config(job, task, hosts)
    return {name: str(value) for name, value in values.items()}


def tf_config(job: Job, task: Task, hosts: Sequence[str]) -> str:
    """Return TF_CONFIG: the cluster by role, and which member of it this task is."""
    cluster: dict[str, list[str]] = {}
    for host, one in zip(hosts, job.tasks, strict=True):
        if one.role != EVALUATOR:  # it watches the cluster and is not a member of it
            port = (job.records[-1].master_port or 0) + one.rank
            cluster.setdefault(one.role, []).append(f"{host}:{port}")
    return json.dumps({"cluster": cluster, "task": {"type": task.role, "index": task.index}})
