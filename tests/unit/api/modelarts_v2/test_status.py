import itertools
from dataclasses import replace

from tests.unit.api.modelarts_v2.samples import body_with, job_of, spec_of
from trackside.api.modelarts_v2.records import stage_records
from trackside.api.modelarts_v2.status import job_status, task_places
from trackside.api.modelarts_v2.wire_response import RunningRecord, TaskPlace, TaskStatus
from trackside.domain.job import Job, NodeId, Record, Task, TaskName, TaskState
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.timing import running_ms

T0 = 1_700_000_000_000
SPEC = spec_of({**body_with(command="true"), "spec": {"resource": {"node_count": 2}}})
FAILED = Reason(text="worker-1 exited with code 3", code=ReasonCode.EXIT_CODE)


def task(index: int, attempt: int = 1, **fields: object) -> Task:
    return Task(
        name=TaskName(f"worker-{index}"),
        role="worker",
        index=index,
        rank=index,
        attempt=attempt,
        node_id=NodeId("n1"),
        resources=SPEC.roles[0].resources,
        **fields,  # type: ignore[arg-type]
    )


def running() -> Job:
    return job_of(
        SPEC,
        Phase.RUNNING,
        started_at_ms=T0 + 1500,
        records=(Record(number=1, queued_at_ms=T0, placed_at_ms=T0 + 1000, running_at_ms=T0 + 1600),),
        tasks=(
            task(0, state=TaskState.RUNNING, started_at_ms=T0 + 1500, ip="10.0.0.1"),
            task(1, state=TaskState.RUNNING, started_at_ms=T0 + 1600, ip="10.0.0.1"),
        ),
        node_counts=((T0 + 1500, 1), (T0 + 1600, 2)),
    )


def failed() -> Job:
    ended = Record(
        number=1,
        queued_at_ms=T0,
        placed_at_ms=T0 + 1000,
        running_at_ms=T0 + 1600,
        ended_at_ms=T0 + 9500,
        duration_ms=7900,
        reason=FAILED,
        culprit=TaskName("worker-1"),
    )
    job = running()
    over = [
        replace(job.tasks[0], state=TaskState.ENDED, exit_code=143),
        replace(job.tasks[1], state=TaskState.ENDED, exit_code=3, reason=FAILED),
    ]
    return replace(job, phase=Phase.FAILED, ended_at_ms=T0 + 9500, records=(ended,), tasks=tuple(over))


def test_a_queued_job_has_run_for_no_time_and_has_no_record() -> None:
    status = job_status(job_of(SPEC), now_ms=T0 + 99_000)
    assert (status.phase, status.duration, status.start_time) == ("Pending", 0, 0)
    assert (status.node_count_metrics, status.task_statuses, status.running_records) == ([], [], [])
    assert status.tasks == ["worker-0", "worker-1"]


def test_a_running_job() -> None:
    status = job_status(running(), now_ms=T0 + 61_500)
    assert (status.duration, status.start_time) == (60_000, T0 + 1500)
    assert status.node_count_metrics == [(T0 + 1500, 1), (T0 + 1600, 2)]
    assert status.task_statuses == []
    assert status.running_records == [
        RunningRecord(start_at=T0 // 1000 + 1, start_type="init_or_rescheduled")
    ], "it runs: no end"
    assert status.task_ips[0] == TaskPlace(
        task="worker-0", ip="10.0.0.1", host_ip="10.0.0.1", schedule_count=1
    )


def test_a_clock_that_went_back_gives_no_negative_duration() -> None:
    assert running_ms(running(), now_ms=T0) == 0


def test_a_failed_job_tells_who_and_why() -> None:
    status = job_status(failed(), now_ms=T0 + 10**9)
    assert status.duration == 7900, "by the node's monotonic clock"
    assert status.task_statuses == [
        TaskStatus(task="worker-0", exit_code=143),
        TaskStatus(task="worker-1", exit_code=3, message=FAILED.text),
    ]
    assert status.running_records == [
        RunningRecord(
            start_at=T0 // 1000 + 1,
            end_at=T0 // 1000 + 9,
            start_type="init_or_rescheduled",
            end_reason=FAILED.text,
            end_related_task="worker-1",
        )
    ]


def test_a_record_never_ends_before_it_started() -> None:
    job = failed()
    skewed = replace(job, records=(replace(job.records[0], ended_at_ms=T0 - 50_000),))
    (record,) = job_status(skewed, now_ms=T0).running_records
    assert record.end_at == record.start_at


def test_a_job_that_could_not_start_has_a_record_with_its_reason() -> None:
    reason = Reason(text="sh: nope: not found", code=ReasonCode.CANNOT_START)
    record = Record(number=1, queued_at_ms=T0, placed_at_ms=T0 + 2000, ended_at_ms=T0 + 3000, reason=reason)
    job = job_of(SPEC, Phase.CREATE_FAILED, records=(record,))
    status = job_status(job, now_ms=T0 + 5000)
    assert status.running_records == [
        RunningRecord(
            start_at=T0 // 1000 + 2,
            end_at=T0 // 1000 + 3,
            start_type="init_or_rescheduled",
            end_reason=reason.text,
        )
    ]
    assert status.duration == 0


def test_a_job_that_was_preempted_sums_its_attempts() -> None:
    first = failed()
    second = Record(number=2, queued_at_ms=T0 + 9500, placed_at_ms=T0 + 9600, running_at_ms=T0 + 10_000)
    job = replace(
        first,
        phase=Phase.RUNNING,
        ended_at_ms=None,
        records=(*first.records, second),
        past_tasks=first.tasks,
        tasks=(task(0, 2, record=2, state=TaskState.RUNNING, started_at_ms=T0 + 10_000),),
    )
    status = job_status(job, now_ms=T0 + 12_000)
    assert status.duration == 7900 + 2000
    assert [(r.start_type, r.end_recover) for r in status.running_records] == [
        ("init_or_rescheduled", "job_reschedule"),
        ("init_or_rescheduled", None),
    ]
    assert task_places(job, schedule_count=2) == [TaskPlace(task="worker-0", schedule_count=2)]
    assert len(task_places(job)) == 3


def test_stages_of_a_queued_a_running_and_an_ended_job() -> None:
    def shape(job: Job) -> list[tuple[str, int, bool]]:
        (record,) = stage_records(job).running_records
        return [(stage.name, stage.stage_order, stage.end_time is None) for stage in record.stages]

    assert shape(job_of(SPEC)) == [("scheduling", 1, True)]
    assert shape(running()) == [("scheduling", 1, False), ("preparing", 2, False), ("running", 3, True)]
    assert [name for name, _, open_ in shape(failed()) if not open_] == [
        "scheduling",
        "preparing",
        "running",
        "end",
    ]


def test_stages_follow_one_another_and_the_last_says_why() -> None:
    stages = stage_records(failed()).running_records[0].stages
    assert stages[0].start_time == "2023-11-14T22:13:20.000Z"
    for earlier, later in itertools.pairwise(stages):
        assert earlier.end_time == later.start_time
    assert stages[-1].en_message == FAILED.text
    assert stages[-1].zh_message


def test_a_stage_that_was_skipped_is_not_told() -> None:
    record = Record(number=1, queued_at_ms=T0, ended_at_ms=T0 + 5)
    job = job_of(SPEC, Phase.STOPPED, records=(record,))
    assert [stage.name for stage in stage_records(job).running_records[0].stages] == ["scheduling", "end"]


def test_tasks_that_seem_to_hang_are_told_with_what_is_known_and_no_exit_code() -> None:
    stuck = Reason(text="all 2 tasks seem to hang", code=ReasonCode.HANGED)
    status = job_status(replace(running(), suspicion=stuck), now_ms=T0 + 9000)
    assert status.task_statuses == [
        TaskStatus(task="worker-0", message="all 2 tasks seem to hang"),
        TaskStatus(task="worker-1", message="all 2 tasks seem to hang"),
    ]
    one = Reason(text="worker-1 seems to hang", code=ReasonCode.HANGED, task="worker-1")
    named = job_status(replace(running(), suspicion=one), now_ms=T0 + 9000)
    assert named.task_statuses == [TaskStatus(task="worker-1", message="worker-1 seems to hang")]
