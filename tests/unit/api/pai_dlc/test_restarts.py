"""What DLC tells of restarts, statuses and pods, of jobs that lived by the domain's own rules."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.domain import stories
from trackside.api.pai_dlc.history import status_history
from trackside.api.pai_dlc.phases import STATUSES
from trackside.api.pai_dlc.pods import pods
from trackside.api.pai_dlc.restarts import (
    FAIL_REASON_OF,
    LEVEL_OF,
    SOURCE_OF,
    STATUS_OF_RESULT,
    restart_records,
    restart_times,
)
from trackside.api.pai_dlc.translate_job import job_answer, job_item
from trackside.api.pai_dlc.wire_job import RestartRecord
from trackside.domain.fault import RecoverLevel, RecoverResult, Scenario
from trackside.domain.job import Job

UP = ["Creating", "Queuing", "EnvPreparing", "Running"]


def shape(record: RestartRecord) -> tuple[int, str, str, str]:
    return record.job_restart_count, record.trigger_id, record.restart_level_type, record.restart_status


def statuses(job: Job) -> list[str]:
    return [one.status for one in status_history(job)]


def test_every_word_has_a_translation() -> None:
    assert set(STATUS_OF_RESULT) == set(FAIL_REASON_OF) == set(RecoverResult)
    assert set(LEVEL_OF) == set(RecoverLevel)
    assert set(SOURCE_OF) == set(Scenario)


def test_a_restart_of_the_whole_job_in_place() -> None:
    job = stories.restarted_in_place()
    (record,) = restart_records(job)
    assert shape(record) == (1, "1", "Job", "Succeeded")
    assert (record.occur_phase, record.occur_time) == ("Running", "1970-01-01T00:01:05Z")
    assert (record.restart_duration_in_sec, record.restart_fail_reason) == (3, None)
    (error,) = record.detail_error_info_list
    assert (error.error_source, error.node, error.trigger_restart) == ("Pod", "node-a", True)
    assert error.pod == "dlcabcdefghij012345-worker-1"
    assert error.detail_error_msg == stories.TRACEBACK
    assert statuses(job) == [*UP, "Restarting", "Running", "Succeeded"]
    restarting = status_history(job)[4]
    assert (restarting.reason_code, restarting.reason_message) == ("JobFailed", record.reason)
    assert restart_times(job) == "1/2"


def test_pods_that_failed_because_of_the_first_are_told_behind_it() -> None:
    (record,) = restart_records(stories.peers_aborted())
    first, *others = record.detail_error_info_list
    assert (first.pod, first.trigger_restart) == ("dlcabcdefghij012345-worker-1", True)
    assert [(one.error_code, one.trigger_restart) for one in others] == [("PeerPodFailed", False)] * 2
    assert others[0].error_msg == "worker-0 exited with code 1, 1.2 s after worker-1 had failed"
    assert others[0].detail_error_msg == "ProcessGroupGloo: connection closed by peer"
    assert restart_records(stories.failed_for_good()) == [], "nothing was asked for, nothing was tried"


def test_a_replaced_pod_keeps_its_history() -> None:
    job = stories.pod_replaced()
    (record,) = restart_records(job)
    assert shape(record) == (1, "1", "Pod", "Succeeded")
    assert record.detail_error_info_list[0].node == "node-a", "where it failed, not where it went"
    assert statuses(job) == [*UP, "Restarting", "Running"]
    (*others, pod) = pods(job, {}, now_ms=100_000)
    assert (pod.node_name, pod.status, pod.gmt_create_time) == ("node-b", "Running", "1970-01-01T00:00:35Z")
    (former,) = pod.history_pods or []
    assert (former.node_name, former.status, former.duration) == ("node-a", "Failed", 30.0)
    assert former.pod_uid != pod.pod_uid
    assert [one.history_pods for one in others] == [None, None]


def test_a_pod_that_waits_for_its_place_is_pending_nowhere() -> None:
    job = stories.waiting_to_be_replaced()
    (record,) = restart_records(job)
    assert shape(record) == (1, "1", "Pod", "Restarting")
    assert record.restart_duration_in_sec is None
    pod = pods(job, {}, now_ms=100_000)[2]
    assert (pod.status, pod.node_name) == ("Pending", None)
    assert statuses(job)[-1] == "Restarting"


def test_the_queue_between_two_attempts() -> None:
    job = stories.queued_again()
    assert statuses(job) == [*UP, "Queuing", "EnvPreparing", "Running"]
    again = status_history(job)[4]
    assert (again.reason_code, again.start_time) == ("PodKilledBySignal", "1970-01-01T00:01:06Z")
    (pod, _, _) = pods(job, {}, now_ms=100_000)
    assert (pod.gmt_create_time, [one.status for one in pod.history_pods or []]) == (
        "1970-01-01T00:01:30Z",
        ["Failed"],
    )


def test_a_job_that_waits_again_still_has_the_pods_it_had() -> None:
    waiting = pods(stories.in_the_queue_again(), {}, now_ms=100_000)
    assert [(one.status, one.history_pods) for one in waiting] == [("Failed", None)] * 3


def test_a_fall_back_is_one_trigger_with_several_tries() -> None:
    records = restart_records(stories.rank_0_falls_back())
    assert [shape(one) for one in records] == [
        (0, "1", "Job", "Failed"),
        (0, "1", "Pod", "Failed"),
        (1, "1", "Job", "Succeeded"),
    ]
    assert (records[0].restart_fail_reason or "").startswith("worker-0 has rank 0")
    assert [one.detail_error_info_list[0].trigger_restart for one in records] == [False, False, True]
    assert restart_times(stories.rank_0_falls_back()) == "1/3"


def test_a_pod_without_a_place_was_restarting_until_the_job_was_queued() -> None:
    job = stories.no_place_to_replace()
    assert statuses(job) == [*UP, "Restarting", "Queuing", "EnvPreparing", "Running"]
    assert [shape(one) for one in restart_records(job)] == [
        (0, "1", "Pod", "Failed"),
        (1, "1", "Job", "Succeeded"),
    ]


def test_a_budget_that_is_used_up() -> None:
    job = stories.quota_exceeded()
    done, refused = restart_records(job)
    assert (shape(done), shape(refused)) == ((1, "1", "Job", "Succeeded"), (1, "2", "Job", "Failed"))
    assert refused.restart_fail_reason == "its budget of 1 is used up"
    assert restart_times(job) == "1/1"
    assert statuses(job) == [*UP, "Restarting", "Running", "Failed"]


def test_a_stop_while_recovering() -> None:
    job = stories.stopped_while_recovering()
    (record,) = restart_records(job)
    assert shape(record) == (1, "1", "Job", "Stopped")
    assert record.restart_fail_reason == "the job was stopped before all pods ran again"
    history = status_history(job, stopping_at_ms=66_500)
    assert [one.status for one in history][-3:] == ["Restarting", "Stopping", "Stopped"]


def test_a_wait_that_was_too_long() -> None:
    job = stories.gave_up_waiting()
    assert shape(restart_records(job)[0]) == (1, "1", "Job", "Failed")
    assert statuses(job) == [*UP, "Queuing", "Failed"]
    assert status_history(job)[-1].reason_code == "RestartTimeout"
    assert len(pods(job, {}, now_ms=0)) == 3, "they ran, and are still told"


def test_a_hang_names_no_pod_and_costs_no_budget() -> None:
    job = stories.hanged()
    (record,) = restart_records(job)
    (error,) = record.detail_error_info_list
    assert (error.error_code, error.error_source, error.pod, error.node) == ("JobHanged", "Job", "", None)
    assert restart_times(job) == "0/0"


def test_isolation_is_told() -> None:
    healed, broken = restart_records(stories.card_heals()), restart_records(stories.card_isolated())
    (error,) = healed[0].detail_error_info_list
    assert (error.add_node_to_blacklist, error.add_job_level_blacklist) == (False, False)
    (error,) = broken[0].detail_error_info_list
    assert error.error_code == "DeviceFault"
    assert (error.add_node_to_blacklist, error.add_job_level_blacklist) == (False, True), (
        "a card, not the node"
    )


def test_a_preempted_pod_was_evicted() -> None:
    job = stories.preempted()
    assert restart_records(job) == []
    assert statuses(job) == [*UP, "Queuing", "EnvPreparing", "Running"]
    assert status_history(job)[4].reason_code == "JobPreempted"
    (pod, _, _) = pods(job, {}, now_ms=200_000)
    assert (pod.sub_status, [one.sub_status for one in pod.history_pods or []]) == ("Normal", ["Evicted"])


@pytest.mark.parametrize("story", stories.STORIES)
def test_histories_have_no_gaps_and_no_steps_back(story: Callable[[], Job]) -> None:
    for job in (story(), _with_clock_set_back(story())):
        answer = job_answer(job, now_ms=3_000_000, request_id="r")
        history = answer.status_history or []
        assert history[-1].end_time is None
        for earlier, later in itertools.pairwise(history):
            assert earlier.start_time <= (earlier.end_time or "") == later.start_time
        assert {one.status for one in history} <= set(STATUSES)
        for record in answer.restart_record or []:
            assert record.restart_duration_in_sec is None or record.restart_duration_in_sec >= 0
        used, most = answer.restart_times.split("/")
        assert 0 <= int(used) <= int(most)
        assert job_item(job, now_ms=3_000_000).restart_times == answer.restart_times


@pytest.mark.parametrize("story", stories.STORIES)
def test_the_last_status_is_the_present_one(story: Callable[[], Job]) -> None:
    answer = job_answer(story(), now_ms=3_000_000, request_id="r")
    assert (answer.status_history or [])[-1].status == answer.status


def _with_clock_set_back(job: Job) -> Job:
    records = tuple(
        replace(one, running_at_ms=one.running_at_ms and max(0, one.running_at_ms - 3_600_000))
        for one in job.records
    )
    return replace(job, records=records)
