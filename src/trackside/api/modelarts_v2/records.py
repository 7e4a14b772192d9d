"""Knows how attempts and recoveries read in ModelArts v2: running_records, recover_records, stages."""

import itertools
from collections.abc import Iterator

from trackside.api.modelarts_v2.checks import time_text
from trackside.api.modelarts_v2.wire_response import (
    RecoverRecord,
    RunningRecord,
    Stage,
    StageRecord,
    StageRecords,
    SubStage,
)
from trackside.domain.attempts import SINGLE, passed_over, taken
from trackside.domain.fault import RecoverLevel, RecoverResult, Recovery
from trackside.domain.job import Job, Record
from trackside.domain.timing import first_starts

END_RECOVER_OF: dict[RecoverLevel, str] = {
    RecoverLevel.TASK_RESTART: "proc_restart",
    RecoverLevel.NPU_PROC_RESTART: "npu_proc_restart",
    RecoverLevel.GPU_PROC_RESTART: "gpu_proc_restart",
    RecoverLevel.PROC_RESTART: "proc_restart",
    RecoverLevel.POD_RESCHEDULE: "pod_reschedule",
    RecoverLevel.JOB_RESCHEDULE: "job_reschedule",
    RecoverLevel.JOB_RESCHEDULE_WITH_TAINT: "job_reschedule_with_taint",
}
# The vendor's list for recover_records has no gpu_proc_restart: there it is the restart in place that it is.
RECOVER_OF = {**END_RECOVER_OF, RecoverLevel.GPU_PROC_RESTART: "proc_restart"}
AFTER_PREEMPTION = "job_reschedule"
RESULT_OF: dict[RecoverResult, str] = {result: result.value for result in RecoverResult}
NOTE_AS = {RecoverResult.DOWNGRADE: "not possible", RecoverResult.QUOTA_EXCEEDED: "not allowed"}

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


def running_records(job: Job) -> Iterator[RunningRecord]:
    """Yield the attempts of which something ran, or that are over."""
    following: tuple[Record | None, ...] = (*job.records[1:], None)
    started, with_cards = first_starts(job), _first_with_cards(job)
    for record, after in zip(job.records, following, strict=True):
        begun = started.get(record.number)
        if begun is None and record.ended_at_ms is None:
            continue  # still queued or being prepared: nothing ran yet
        yield _running_record(record, after, begun, with_cards.get(record.number))


def stage_records(job: Job) -> StageRecords:
    """Return the stages of every attempt."""
    records = [
        StageRecord(record_order=record.number, stages=list(_stages(job, record))) for record in job.records
    ]
    return StageRecords(total_count=len(records), running_records=records)


def _running_record(
    record: Record, after: Record | None, begun_ms: int | None, cards_ms: int | None
) -> RunningRecord:
    begun = (begun_ms or record.placed_at_ms or record.queued_at_ms) // 1000
    ended = record.ended_at_ms
    before = passed_over(record) if after else ()
    return RunningRecord(
        start_at=begun,
        end_at=None if ended is None else max(begun, ended // 1000),
        xpu_start_at=None if cards_ms is None else cards_ms // 1000,
        start_type=record.start_type,
        end_reason=record.reason.text if record.reason and ended is not None else None,
        end_related_task=record.culprit,
        end_recover=_end_recover(record) if after else None,
        end_recover_before_downgrade=END_RECOVER_OF[before[0].level] if before else None,
        recover_records=[_recover_record(one) for one in record.recoveries] or None,
    )


def _end_recover(record: Record) -> str:
    chosen = taken(record)
    return AFTER_PREEMPTION if chosen is None else END_RECOVER_OF[chosen.level]


def _recover_record(one: Recovery) -> RecoverRecord:
    begun = one.started_at_ms // 1000
    note = f" ({NOTE_AS.get(one.result, one.result)}: {one.note})" if one.note else ""
    return RecoverRecord(
        recover_start_at=begun,
        recover_end_at=None if one.ended_at_ms is None else max(begun, one.ended_at_ms // 1000),
        recover=RECOVER_OF[one.level],
        fault_scenario=one.scenario,
        reason=f"{one.reason.text}{note}",
        related_task=one.task or one.reason.task,
        recover_result=RESULT_OF[one.result],
    )


def _first_with_cards(job: Job) -> dict[int, int]:
    found: dict[int, int] = {}
    for task in (*job.past_tasks, *job.tasks):
        if task.started_at_ms is not None and task.resources.cards:
            found[task.record] = min(task.started_at_ms, found.get(task.record, task.started_at_ms))
    return found


def _stages(job: Job, record: Record) -> Iterator[Stage]:
    """Yield the stages that have begun; one that was cut short ends where the attempt ended."""
    for order, begin, end in _spans(record):
        name, going_on, over = STAGES[order]
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
            stage_order=order + 1,
            sub_stages=list(_restarts(record)) if name == "running" else [],
        )


def _spans(record: Record) -> Iterator[tuple[int, int, int | None]]:
    """Yield (stage, begin, end): one begins where the one before it ends, also when clocks jumped."""
    moments = (record.queued_at_ms, record.placed_at_ms, record.running_at_ms, record.ended_at_ms)
    begun = [(order, at_ms) for order, at_ms in enumerate(moments) if at_ms is not None]
    begins = list(itertools.accumulate((at_ms for _, at_ms in begun), max))
    ends: list[int | None] = [*begins[1:], None if record.ended_at_ms is None else begins[-1]]
    for (order, _), begin, end in zip(begun, begins, ends, strict=True):
        yield order, begin, end


def _restarts(record: Record) -> Iterator[SubStage]:
    for one in record.recoveries:
        if one.level in SINGLE:
            yield SubStage(
                name=RECOVER_OF[one.level],
                en_message=f"{one.reason.text}; starting it again: {RESULT_OF[one.result]}",
                zh_message=f"{one.task} 重新启动 ({RESULT_OF[one.result]})。",
                create_time=time_text(one.started_at_ms),
            )
