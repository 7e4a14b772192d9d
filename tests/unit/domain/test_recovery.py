"""The ladder of recovery: which level answers which fault, and what the records say of it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.domain.builders import NODE, a_job, a_spec, after, ended, placed, started
from trackside.domain import rules
from trackside.domain.event import EventKind
from trackside.domain.evidence import DeviceFault, DeviceKind, Evidence
from trackside.domain.exchange import EndCause
from trackside.domain.fault import Isolation, RecoverLevel, RecoverResult, RecoveryPolicy, Scenario
from trackside.domain.job import Job, Slot, StartType, TaskState
from trackside.domain.launching import task_environment
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.recovery import STEADY_MS

KILLED: dict[str, Any] = {"exit_code": None, "signal": 9}  # by somebody outside: a fault of the environment
HANGS = Reason(text="it does not move", code=ReasonCode.HANGED)
MINUTE_MS = 60_000


def up(job: Job, at_ms: int = 3_000) -> Job:
    """Return the job with every task that was placed running."""
    placed_ones = [task for task in job.tasks if task.state is TaskState.PLACED]
    return after(job, *(started(task.name, at_ms, task.attempt) for task in placed_ones))


def a_running(workers: int = 3, **policy: Any) -> Job:
    """Return a running job with a recovery policy."""
    return up(placed(a_job(workers, spec=a_spec(workers, recovery=RecoveryPolicy(**policy)))))


def fails(job: Job, name: str, at_ms: int = 9_000, **how: Any) -> Job:
    """Return the job after one of its tasks has failed, and all others were stopped for it."""
    task = job.task(name)
    assert task is not None
    values: dict[str, Any] = {"exit_code": 1, "ended_boot_ms": at_ms} | how
    job = after(job, ended(name, attempt=task.attempt, at_ms=at_ms, **values))
    return drained(job, at_ms + 10)


def drained(job: Job, at_ms: int) -> Job:
    """Return the job once all its tasks were stopped, if it wants them stopped."""
    if job.ending is None:
        return job
    alive = [task for task in job.tasks if task.state in rules.ALIVE]
    stops = [
        ended(
            task.name, None, at_ms, signal=15, attempt=task.attempt, stopped_by_us=True, ended_boot_ms=at_ms
        )
        for task in alive
    ]
    return after(job, *stops)


def levels(job: Job) -> list[tuple[RecoverLevel, RecoverResult]]:
    """Return what was tried, in order."""
    return [(one.level, one.result) for record in job.records for one in record.recoveries]


def test_without_a_policy_a_fault_is_the_end() -> None:
    job = fails(a_running(), "worker-1", **KILLED)
    assert job.phase is Phase.FAILED
    assert levels(job) == []
    assert job.records[-1].culprit == "worker-1"


def test_in_place_all_tasks_start_again_where_they_were_at_once() -> None:
    job = fails(a_running(process_retries=2), "worker-1", **KILLED)
    assert job.phase is Phase.RESTARTING
    assert [(task.attempt, task.record, task.state, task.node_id) for task in job.tasks] == [
        (2, 2, TaskState.PLACED, NODE)
    ] * 3
    assert job.records[1].start_type is StartType.RESTARTED
    assert job.records[1].master_port == job.records[0].master_port
    assert levels(job) == [(RecoverLevel.PROC_RESTART, RecoverResult.RECOVERING)]
    job = up(job, 9_500)
    assert job.phase is Phase.RUNNING
    (done,) = job.records[0].recoveries
    assert (done.result, done.started_at_ms, done.ended_at_ms) == (RecoverResult.SUCCESS, 9_000, 9_500)
    environment = task_environment(job, job.tasks[1], ["h"] * 3)
    assert (environment["MA_SCHEDULE_CNT"], environment["MA_PROC_START_CNT"]) == ("1", "2")


def test_through_the_queue_the_job_waits_again_with_its_history() -> None:
    job = fails(a_running(job_retries=1), "worker-2", **KILLED)
    assert (job.phase, job.tasks) == (Phase.QUEUED, ())
    assert job.records[0].reason is not None
    assert job.records[0].reason.code is ReasonCode.KILLED_FROM_OUTSIDE
    job = up(placed(job, 20_000), 21_000)
    assert levels(job) == [(RecoverLevel.JOB_RESCHEDULE, RecoverResult.SUCCESS)]
    assert task_environment(job, job.tasks[0], ["h"] * 3)["MA_SCHEDULE_CNT"] == "2"


def test_only_the_failed_task_is_replaced() -> None:
    job = fails(a_running(task_retries=1), "worker-1", **KILLED)
    assert job.phase is Phase.RESTARTING
    assert [task.state for task in job.tasks] == [TaskState.RUNNING, TaskState.WAITING, TaskState.RUNNING]
    moved = rules.replace_task(job, 1, Slot(NODE, (3,)), at_ms=9_100)
    assert moved is not None
    job = up(moved[0], 9_300)
    assert job.phase is Phase.RUNNING
    assert len(job.records) == 1
    assert (job.tasks[1].attempt, job.tasks[1].cards) == (2, (3,))
    assert levels(job) == [(RecoverLevel.POD_RESCHEDULE, RecoverResult.SUCCESS)]
    assert task_environment(job, job.tasks[1], ["h"] * 3)["MA_SCHEDULE_CNT"] == "2"
    assert task_environment(job, job.tasks[0], ["h"] * 3)["MA_SCHEDULE_CNT"] == "1"


def test_no_room_for_a_replacement_takes_the_next_coarser_level() -> None:
    job = fails(a_running(task_retries=1, job_retries=1), "worker-1", **KILLED)
    moved = rules.cannot_replace(job, "no room", at_ms=9_100)
    assert moved is not None
    job = drained(moved[0], 9_200)
    assert job.phase is Phase.QUEUED
    assert levels(job) == [
        (RecoverLevel.POD_RESCHEDULE, RecoverResult.DOWNGRADE),
        (RecoverLevel.JOB_RESCHEDULE, RecoverResult.RECOVERING),
    ]
    assert job.records[0].recoveries[0].note == "no room"
    assert sum(task.name == "worker-1" for task in job.past_tasks) == 1


def test_no_room_and_nothing_coarser_is_the_end() -> None:
    job = fails(a_running(task_retries=1), "worker-1", **KILLED)
    moved = rules.cannot_replace(job, "no room", at_ms=9_100)
    assert moved is not None
    job = drained(moved[0], 9_200)
    assert job.phase is Phase.FAILED
    assert job.records[-1].culprit == "worker-1"


def test_rank_0_goes_straight_to_the_whole_job() -> None:
    job = fails(a_running(process_retries=2, task_retries=2, job_retries=2), "worker-0", **KILLED)
    assert job.phase is Phase.QUEUED
    assert levels(job) == [
        (RecoverLevel.PROC_RESTART, RecoverResult.DOWNGRADE),
        (RecoverLevel.POD_RESCHEDULE, RecoverResult.DOWNGRADE),
        (RecoverLevel.JOB_RESCHEDULE, RecoverResult.RECOVERING),
    ]


def test_a_peer_that_fails_while_another_is_replaced_takes_the_whole_job() -> None:
    job = fails(a_running(task_retries=3, job_retries=1), "worker-1", **KILLED)
    job = fails(job, "worker-2", at_ms=9_005, **KILLED)
    assert job.phase is Phase.QUEUED
    assert levels(job)[-1] == (RecoverLevel.JOB_RESCHEDULE, RecoverResult.RECOVERING)
    assert job.records[0].culprit == "worker-1"


def test_the_jobs_own_failures_need_to_be_asked_for() -> None:
    assert fails(a_running(job_retries=3), "worker-1").phase is Phase.FAILED
    assert fails(a_running(job_retries=3, unconditional=True), "worker-1").phase is Phase.QUEUED


def test_three_unconditional_restarts_in_a_row_and_no_more() -> None:
    job = a_running(job_retries=128, unconditional=True)
    for attempt in range(3):
        job = fails(job, "worker-1", at_ms=9_000 + attempt * 1_000)
        assert job.phase is Phase.QUEUED
        job = up(placed(job, 9_100 + attempt * 1_000), 9_200 + attempt * 1_000)
    job = fails(job, "worker-1", at_ms=20_000)
    assert job.phase is Phase.FAILED
    assert levels(job)[-1] == (RecoverLevel.JOB_RESCHEDULE, RecoverResult.QUOTA_EXCEEDED)


def test_a_long_steady_attempt_ends_a_row_of_failures() -> None:
    job = a_running(job_retries=128, unconditional=True)
    at_ms = 9_000
    for _ in range(6):
        job = fails(job, "worker-1", at_ms=at_ms, duration_ms=STEADY_MS)
        assert job.phase is Phase.QUEUED
        job = up(placed(job, at_ms + 100), at_ms + 200)
        at_ms += STEADY_MS + 1_000


def test_the_budget_of_the_environments_faults_is_the_number_given() -> None:
    job = a_running(job_retries=5)
    for attempt in range(5):
        job = fails(job, "worker-1", at_ms=9_000 + attempt * 1_000, **KILLED)
        job = up(placed(job, 9_100 + attempt * 1_000), 9_200 + attempt * 1_000)
    job = fails(job, "worker-1", at_ms=20_000, **KILLED)
    assert job.phase is Phase.FAILED
    assert levels(job)[-1] == (RecoverLevel.JOB_RESCHEDULE, RecoverResult.QUOTA_EXCEEDED)


def test_a_restart_in_place_that_does_not_come_up_takes_the_next_coarser_level() -> None:
    job = fails(a_running(process_retries=5, job_retries=1), "worker-1", **KILLED)
    job = fails(job, "worker-2", at_ms=9_500, cause=EndCause.SHIM_LOST, exit_code=None)
    assert job.phase is Phase.QUEUED
    assert levels(job) == [
        (RecoverLevel.PROC_RESTART, RecoverResult.FAILED),
        (RecoverLevel.PROC_RESTART, RecoverResult.DOWNGRADE),
        (RecoverLevel.JOB_RESCHEDULE, RecoverResult.RECOVERING),
    ]


@pytest.mark.parametrize(
    ("heals", "level"),
    [(True, RecoverLevel.GPU_PROC_RESTART), (False, RecoverLevel.JOB_RESCHEDULE_WITH_TAINT)],
)
def test_a_card_that_heals_is_used_again_and_one_that_does_not_is_isolated(
    heals: bool, level: RecoverLevel
) -> None:
    fault = DeviceFault(card=3, kind=DeviceKind.GPU, code="XID 79", text="fell off the bus", heals=heals)
    job = fails(a_running(job_retries=2), "worker-1", evidence=Evidence(device_faults=(fault,)))
    (taken,) = job.records[0].recoveries
    assert (taken.level, taken.scenario) == (level, Scenario.CHIP)
    assert taken.isolated == (None if heals else Isolation(node_id=NODE, cards=(3,)))
    if heals:  # and again at once: then it does not heal after all
        job = fails(up(job, 9_500), "worker-1", at_ms=9_900, evidence=Evidence(device_faults=(fault,)))
        assert levels(job)[1:] == [
            (RecoverLevel.GPU_PROC_RESTART, RecoverResult.DOWNGRADE),
            (RecoverLevel.JOB_RESCHEDULE_WITH_TAINT, RecoverResult.RECOVERING),
        ]


def test_a_hang_restarts_in_place_three_times_in_a_row_and_is_not_charged() -> None:
    job = a_running(hang_restart=True, job_retries=1)
    for attempt in range(3):
        moved = rules.suspect(job, HANGS, at_ms=9_000 + attempt * 1_000)
        assert moved is not None
        assert moved[1][0].kind is EventKind.HANGED
        job = up(drained(moved[0], 9_100 + attempt * 1_000), 9_200 + attempt * 1_000)
        assert (job.phase, job.suspicion) == (Phase.RUNNING, None)
    moved = rules.suspect(job, HANGS, at_ms=20_000)
    assert moved is not None
    job = moved[0]
    assert (job.phase, job.ending, job.suspicion) == (Phase.RUNNING, None, HANGS)
    assert levels(job)[-1] == (RecoverLevel.PROC_RESTART, RecoverResult.QUOTA_EXCEEDED)
    job = fails(job, "worker-1", at_ms=21_000, **KILLED)
    assert job.phase is Phase.QUEUED  # its budget is untouched


def test_a_suspicion_changes_nothing_but_what_is_known() -> None:
    moved = rules.suspect(a_running(), HANGS, at_ms=9_000)
    assert moved is not None
    assert (moved[0].phase, moved[0].suspicion) == (Phase.RUNNING, HANGS)
    assert rules.suspect(moved[0], HANGS, at_ms=9_500) is None
    cleared = rules.clear(moved[0], at_ms=10_000)
    assert cleared is not None
    assert cleared[0].suspicion is None


def test_waiting_too_long_to_recover_is_the_end() -> None:
    job = fails(a_running(job_retries=1), "worker-1", **KILLED)
    moved = rules.give_up_waiting(job, at_ms=9_000 + 31 * MINUTE_MS)
    assert moved is not None
    job = moved[0]
    assert job.phase is Phase.FAILED
    assert job.reason is not None
    assert job.reason.text == (
        "no room to restart for 30 min, after this: worker-1 was killed by SIGKILL from outside"
    )
    assert levels(job) == [(RecoverLevel.JOB_RESCHEDULE, RecoverResult.FAILED)]
    assert rules.give_up_waiting(a_job(), at_ms=10**12) is None


@pytest.mark.parametrize("policy", [{"process_retries": 1}, {"task_retries": 1}, {"job_retries": 1}])
def test_a_stop_ends_every_recovery(policy: dict[str, int]) -> None:
    job = a_running(**policy)
    job = after(job, ended("worker-1", None, signal=9, ended_boot_ms=9_000))
    job = drained(rules.ask_stop(job, by="ana", at_ms=9_001)[0], 9_100)
    assert job.phase is Phase.STOPPED
    assert all(one.result is RecoverResult.TERMINATED for one in job.records[0].recoveries)
    again = fails(a_running(**policy), "worker-1", **KILLED)
    job = drained(rules.ask_stop(again, by="ana", at_ms=9_200)[0], 9_300)
    assert job.phase is Phase.STOPPED
    assert levels(job)[-1][1] is RecoverResult.TERMINATED


def test_the_first_to_fail_is_found_when_its_news_comes_last() -> None:
    job = a_running(3)
    job = after(job, ended("worker-2", 1, 9_006, ended_boot_ms=505))
    job = after(job, ended("worker-0", 1, 9_007, ended_boot_ms=506))
    job = after(job, ended("worker-1", 7, 9_010, ended_boot_ms=500))
    record = job.records[-1]
    assert record.culprit == "worker-1"
    assert record.reason is not None
    assert record.reason.text == "worker-1 exited with code 7"
    assert record.reason.evidence == ("2 other tasks failed after it, the first 5 ms later",)
    assert [(one.task, one.exit_code) for one in record.exits] == [
        ("worker-1", 7),
        ("worker-2", 1),
        ("worker-0", 1),
    ]
    second = job.task("worker-2")
    assert second is not None
    assert second.reason is not None
    assert second.reason.code is ReasonCode.PEER_FAILED
    assert second.reason.text == "worker-2 exited with code 1, 5 ms after worker-1 had failed"


def test_one_that_lost_its_peer_is_not_the_culprit_although_it_ended_first() -> None:
    lost = Evidence(collective_error="Connection closed by peer [127.0.0.1]:2900")
    job = after(a_running(2), ended("worker-0", 1, 9_000, ended_boot_ms=500, evidence=lost))
    job = after(job, ended("worker-1", None, 9_001, signal=11, ended_boot_ms=502))
    assert job.records[-1].culprit == "worker-1"


def test_who_was_first_decides_what_is_done() -> None:
    """The first news is of the job's own fault, but the first fault was the environment's."""
    job = after(a_running(2, job_retries=1), ended("worker-0", 1, 9_005, ended_boot_ms=505))
    assert job.ending is not None
    assert job.ending.phase is Phase.FAILED
    job = after(job, ended("worker-1", None, 9_006, signal=9, ended_boot_ms=500))
    assert job.phase is Phase.QUEUED
    assert job.records[0].culprit == "worker-1"


def test_a_job_that_finished_while_it_was_to_be_restarted_has_succeeded() -> None:
    moved = rules.suspect(a_running(2, hang_restart=True), HANGS, at_ms=9_000)
    assert moved is not None
    job = after(moved[0], ended("worker-0", 0), ended("worker-1", 0))
    assert job.phase is Phase.SUCCEEDED


def test_time_is_never_negative_when_the_wall_clock_jumps_back() -> None:
    job = fails(a_running(process_retries=2), "worker-1", at_ms=500, **KILLED)
    job = up(job, 400)
    assert any(record.recoveries for record in job.records)
    for record in job.records:
        assert record.ended_at_ms is None or record.ended_at_ms >= record.queued_at_ms
        assert all((one.ended_at_ms or 0) >= one.started_at_ms for one in record.recoveries)


def test_a_preempted_job_takes_back_what_was_to_be_replaced() -> None:
    job = fails(a_running(task_retries=1), "worker-1", **KILLED)
    moved = rules.preempt(job, replace(a_job(), spec=a_spec(priority=3)), at_ms=9_100)
    assert moved is not None
    job = drained(moved[0], 9_200)
    assert job.phase is Phase.QUEUED
    assert sorted(task.name for task in job.past_tasks) == ["worker-0", "worker-1", "worker-2"]
