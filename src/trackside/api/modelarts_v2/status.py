"""Knows how what became of a job reads in ModelArts v2: phases, times, tasks, attempts, stages."""

from collections.abc import Iterator

from trackside.api.modelarts_v2.checks import time_text
from trackside.api.modelarts_v2.phases import PHASE_OF
from trackside.api.modelarts_v2.wire_response import (
    JobStatus,
    RunningRecord,
    Stage,
    StageRecord,
    StageRecords,
    TaskPlace,
    TaskStatus,
)
from trackside.domain.job import Job, Record, StartType, Task, TaskState, task_names
from trackside.domain.timing import first_start, running_ms

RECOVER_OF = {StartType.RESTARTED: "proc_restart", StartType.SCHEDULED: "job_reschedule"}

STAGES = (  # name, while it goes on and once it is over: English, Chinese
    (
        "scheduling",
        ("The job is being scheduled.", "作业调度中。"),
        ("The job was scheduled.", "作业调度完成。"),
    ),
    (
        "preparing",
        ("The environment is being prepared.", "环境准备中。"),
        ("The environment was prepared.", "环境准备完成。"),
    ),
    ("running", ("The job is running.", "作业运行中。"), ("The job has run.", "作业运行完成。")),
    ("end", ("The attempt has ended.", "作业已结束。"), ("The attempt has ended.", "作业已结束。")),
)


def job_status(job: Job, *, now_ms: int) -> JobStatus:
    """Return the job's status block."""
    phase, secondary = PHASE_OF[job.phase]
    return JobStatus(
        phase=phase,
        secondary_phase=secondary,
        duration=running_ms(job, now_ms=now_ms),
        start_time=job.started_at_ms or 0,
        node_count_metrics=[(at_ms, nodes) for at_ms, nodes in job.node_counts],
        tasks=list(task_names(job.spec)),
        task_statuses=[_task_status(task) for task in job.tasks if task.state is TaskState.ENDED],
        running_records=list(_running_records(job)),
        task_ips=task_places(job.tasks),
    )


def task_places(tasks: tuple[Task, ...], *, schedule_count: int | None = None) -> list[TaskPlace]:
    """Return where tasks run or ran, of one scheduling or of all."""
    return [
        TaskPlace(task=task.name, ip=task.ip, host_ip=task.ip, schedule_count=task.attempt)
        for task in tasks
        if schedule_count in (None, task.attempt)
    ]


def stage_records(job: Job) -> StageRecords:
    """Return the stages of every attempt."""
    records = [
        StageRecord(record_order=record.number, stages=list(_stages(job, record))) for record in job.records
    ]
    return StageRecords(total_count=len(records), running_records=records)


def _running_records(job: Job) -> Iterator[RunningRecord]:
    following: tuple[Record | None, ...] = (*job.records[1:], None)
    for record, after in zip(job.records, following, strict=True):
        started = first_start(job, record)
        if started is None and record.ended_at_ms is None:
            continue  # still queued or being prepared: nothing ran yet
        begun = (started or record.placed_at_ms or record.queued_at_ms) // 1000
        ended = record.ended_at_ms
        yield RunningRecord(
            start_at=begun,
            end_at=None if ended is None else max(begun, ended // 1000),
            start_type=record.start_type,
            end_reason=record.reason.text if record.reason and ended is not None else None,
            end_related_task=record.culprit,
            end_recover=RECOVER_OF[after.start_type] if after else None,
        )


def _task_status(task: Task) -> TaskStatus:
    return TaskStatus(
        task=task.name, exit_code=task.exit_code, message=task.reason.text if task.reason else None
    )


def _stages(job: Job, record: Record) -> Iterator[Stage]:
    """Yield the stages that have begun; one that was cut short ends where the attempt ended."""
    ended = record.ended_at_ms
    begins = (record.queued_at_ms, record.placed_at_ms, record.running_at_ms, ended)
    for order, ((name, going_on, over), begin) in enumerate(zip(STAGES, begins, strict=True), 1):
        if begin is None:
            continue
        end = ended if order == len(STAGES) else next((at for at in begins[order:] if at is not None), None)
        english, chinese = going_on if end is None else over
        if name == "end" and record.reason:
            english = record.reason.text
        yield Stage(
            job_id=job.id,
            name=name,
            en_message=english,
            zh_message=chinese,
            start_time=time_text(begin),
            end_time=None if end is None else time_text(end),
            stage_order=order,
            sub_stages=[],
        )
