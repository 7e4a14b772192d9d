"""What v2 tells of attempts and recoveries, of jobs that lived by the domain's own rules."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.domain import stories
from trackside.api.modelarts_v2.records import END_RECOVER_OF, RECOVER_OF, running_records, stage_records
from trackside.api.modelarts_v2.status import job_status, task_places
from trackside.api.modelarts_v2.wire_response import RecoverRecord, RunningRecord
from trackside.domain.fault import RecoverLevel, RecoverResult, Scenario
from trackside.domain.job import Job

# What the vendor's models list.
END_RECOVERS = {
    *("npu_proc_restart", "gpu_proc_restart", "proc_restart", "pod_reschedule", "job_reschedule"),
    "job_reschedule_with_taint",
}
RECOVERS = {"npu_step_retry", *END_RECOVERS} - {"gpu_proc_restart"}
SCENARIOS = {"chip_fault", "node_fault", "job_failed", "job_hanged", "job_subhealth", "error_in_log"}
RESULTS = {"recovering", "success", "failed", "downgrade", "terminated", "quotaExceeded"}


def told(job: Job) -> list[RunningRecord]:
    return list(running_records(job))


def recovers(record: RunningRecord) -> list[tuple[str, str]]:
    return [(one.recover, one.recover_result) for one in record.recover_records or []]


def test_every_word_is_one_of_the_vendors() -> None:
    assert set(END_RECOVER_OF) == set(RECOVER_OF) == set(RecoverLevel)
    assert set(END_RECOVER_OF.values()) == END_RECOVERS
    assert set(RECOVER_OF.values()) <= RECOVERS
    assert set(Scenario) <= SCENARIOS
    assert set(RecoverResult) == RESULTS


def test_a_restart_in_place() -> None:
    first, second = told(stories.restarted_in_place())
    why = "worker-1 exited with code 1: ValueError: no loss"
    assert first == RunningRecord(
        start_at=3,
        end_at=66,
        xpu_start_at=3,
        start_type="init_or_rescheduled",
        end_reason=why,
        end_related_task="worker-1",
        end_recover="proc_restart",
        recover_records=[
            RecoverRecord(
                recover_start_at=65,
                recover_end_at=68,
                recover="proc_restart",
                fault_scenario="job_failed",
                reason=why,
                related_task="worker-1",
                recover_result="success",
            )
        ],
    )
    assert (second.start_type, second.start_at, second.end_at) == ("restarted", 68, 98)
    assert (second.end_recover, second.recover_records) == (None, None)


def test_a_replaced_pod_stays_within_its_attempt() -> None:
    job = stories.pod_replaced()
    (record,) = told(job)
    assert (record.end_at, record.end_recover) == (None, None)
    assert recovers(record) == [("pod_reschedule", "success")]
    counts = [(place.task, place.schedule_count) for place in task_places(job)]
    assert counts == [("worker-0", 1), ("worker-1", 1), ("worker-2", 1), ("worker-2", 2)]
    (moved,) = task_places(job, schedule_count=2)
    assert moved.task == "worker-2"
    assert [place.schedule_count for place in job_status(job, now_ms=0).task_ips] == [1, 1, 2]


def test_the_queue() -> None:
    first, second = told(stories.queued_again())
    assert (first.end_recover, first.end_recover_before_downgrade) == ("job_reschedule", None)
    assert second.start_type == "init_or_rescheduled"
    (waiting,) = told(stories.in_the_queue_again())
    assert recovers(waiting) == [("job_reschedule", "recovering")]
    assert (waiting.recover_records or [])[0].recover_end_at is None


def test_a_fault_of_rank_0_goes_to_the_whole_job_and_says_so() -> None:
    first, _ = told(stories.rank_0_falls_back())
    assert (first.end_recover, first.end_recover_before_downgrade) == ("job_reschedule", "proc_restart")
    assert recovers(first) == [
        ("proc_restart", "downgrade"),
        ("pod_reschedule", "downgrade"),
        ("job_reschedule", "success"),
    ]
    assert (first.recover_records or [])[0].reason == (
        "worker-0 exited with code 3 (not possible: worker-0 has rank 0, which only a restart of the whole "
        "job replaces)"
    )


def test_a_task_that_found_no_place_falls_back() -> None:
    first, _ = told(stories.no_place_to_replace())
    assert (first.end_recover, first.end_recover_before_downgrade) == ("job_reschedule", "pod_reschedule")


def test_a_budget_that_is_used_up() -> None:
    first, second = told(stories.quota_exceeded())
    assert first.end_recover == "proc_restart"
    assert (second.end_recover, recovers(second)) == (None, [("proc_restart", "quotaExceeded")])


def test_a_stop_while_recovering_and_a_wait_that_was_too_long() -> None:
    assert recovers(told(stories.stopped_while_recovering())[0]) == [("proc_restart", "terminated")]
    first, second = told(stories.gave_up_waiting())
    assert recovers(first) == [("job_reschedule", "failed")]
    assert (second.end_reason or "").startswith("no room to restart for 30 min")


def test_a_hang() -> None:
    first, second = told(stories.hanged())
    (recover,) = first.recover_records or []
    assert (recover.fault_scenario, recover.recover, recover.related_task) == (
        "job_hanged",
        "proc_restart",
        None,
    )
    assert second.start_type == "restarted"


def test_a_card_that_heals_and_one_that_does_not() -> None:
    first, _ = told(stories.card_heals())
    assert (first.end_recover, recovers(first)) == ("gpu_proc_restart", [("proc_restart", "success")])
    first, _ = told(stories.card_isolated())
    assert first.end_recover == "job_reschedule_with_taint"
    assert (first.recover_records or [])[0].fault_scenario == "chip_fault"


def test_preemption_is_a_rescheduling_without_a_recovery() -> None:
    first, _ = told(stories.preempted())
    assert (first.end_recover, first.recover_records) == ("job_reschedule", None)


def test_a_task_restarted_by_its_role_is_a_step_of_the_running_stage() -> None:
    job = stories.task_restarted()
    (record,) = told(job)
    assert recovers(record) == [("proc_restart", "success")]
    (stages,) = stage_records(job).running_records
    (step,) = stages.stages[2].sub_stages
    assert step.en_message == "worker-1 exited with code 1; starting it again: success"
    assert "worker-1" in step.zh_message


@pytest.mark.parametrize("story", stories.STORIES)
def test_nothing_ends_before_it_begins(story: Callable[[], Job]) -> None:
    for job in (story(), _with_clock_set_back(story())):
        for record in told(job):
            assert record.end_at is None or record.end_at >= record.start_at
            for one in record.recover_records or []:
                assert one.recover_end_at is None or one.recover_end_at >= one.recover_start_at
        assert stage_records(job).total_count == len(job.records)
        for stages in stage_records(job).running_records:
            for earlier, later in itertools.pairwise(stages.stages):
                assert earlier.start_time <= (earlier.end_time or "") == later.start_time
        assert job_status(job, now_ms=0).duration >= 0


def _with_clock_set_back(job: Job) -> Job:
    """Return the job as it would be had the wall clock gone back an hour when it was placed."""
    records = tuple(
        replace(one, running_at_ms=one.running_at_ms and max(0, one.running_at_ms - 3_600_000))
        for one in job.records
    )
    return replace(job, records=records)
