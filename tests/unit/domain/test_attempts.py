from collections.abc import Callable

import pytest

from tests.unit.domain import stories
from trackside.domain.attempts import carried_out, faults, passed_over, starts, taken, tasks_by_attempt
from trackside.domain.fault import RecoverLevel, RecoverResult
from trackside.domain.job import Job, TaskState


def scheduled(job: Job, name: str) -> list[int]:
    return [start.scheduled for start in starts(job) if start.task.name == name]


def test_a_restart_in_place_is_the_same_scheduling() -> None:
    assert scheduled(stories.restarted_in_place(), "worker-1") == [1, 1]
    assert scheduled(stories.task_restarted(), "worker-1") == [1, 1]


def test_the_queue_and_a_replacement_are_schedulings() -> None:
    assert scheduled(stories.queued_again(), "worker-0") == [1, 2]
    assert scheduled(stories.pod_replaced(), "worker-2") == [1, 2]
    assert scheduled(stories.pod_replaced(), "worker-0") == [1]


def test_a_start_knows_what_it_answers() -> None:
    (again,) = [start for start in starts(stories.pod_replaced()) if start.former is not None]
    assert again.answers is not None
    assert again.answers.level is RecoverLevel.POD_RESCHEDULE
    assert again.former is not None
    assert (again.former.attempt, again.task.attempt) == (1, 2)
    assert again.former.node_id != again.task.node_id


def test_an_attempt_has_one_start_of_each_task() -> None:
    tasks = tasks_by_attempt(stories.pod_replaced())[1]
    assert [(task.name, task.attempt) for task in tasks] == [
        ("worker-0", 1),
        ("worker-1", 1),
        ("worker-2", 2),
    ]
    assert tasks_by_attempt(stories.in_the_queue_again())[2] == ()


def test_what_was_passed_over_is_told_finest_first() -> None:
    first, second = stories.rank_0_falls_back().records
    chosen = taken(first)
    assert chosen is not None
    assert chosen.level is RecoverLevel.JOB_RESCHEDULE
    assert [one.level for one in passed_over(first)] == [
        RecoverLevel.PROC_RESTART,
        RecoverLevel.POD_RESCHEDULE,
    ]
    assert (taken(second), passed_over(second)) == (None, ())


def test_a_task_without_a_place_falls_back_once() -> None:
    first = stories.no_place_to_replace().records[0]
    assert [(one.level, one.result) for one in first.recoveries] == [
        (RecoverLevel.POD_RESCHEDULE, RecoverResult.DOWNGRADE),
        (RecoverLevel.JOB_RESCHEDULE, RecoverResult.SUCCESS),
    ]
    assert len(faults(first.recoveries)) == 1, "one fault, two tries"


@pytest.mark.parametrize("story", stories.STORIES)
def test_everything_carried_out_left_a_start_or_an_attempt(story: Callable[[], Job]) -> None:
    job = story()
    done = carried_out(job)
    again = [start for start in starts(job) if start.former is not None]
    assert len(done) == len(again) + sum(taken(record) is not None for record in job.records[:-1])
    assert all(one.result is not RecoverResult.QUOTA_EXCEEDED for one in done)


def test_what_waits_for_a_place_counts_as_begun() -> None:
    job = stories.waiting_to_be_replaced()
    assert [one.result for one in carried_out(job)] == [RecoverResult.RECOVERING]
    assert job.tasks[2].state is TaskState.WAITING
