"""Sentences about attempts: exact, because people and programs show them as they are."""

from dataclasses import replace

import pytest

from tests.unit.domain import stories
from trackside.domain.attempts import tasks_by_attempt
from trackside.domain.fault import RecoverLevel, RecoverResult
from trackside.domain.job import Job, TaskName
from trackside.domain.lost import Unit, lost
from trackside.domain.story import (
    amount_text,
    ended_text,
    lost_text,
    others_text,
    pattern_text,
    recovery_text,
    same_cause,
    soon_text,
)


def others(job: Job, number: int = 1) -> str | None:
    return others_text(tasks_by_attempt(job)[number], job.records[number - 1].culprit)


def recoveries(job: Job, number: int = 1) -> list[str]:
    return [recovery_text(one) for one in job.records[number - 1].recoveries]


def test_what_became_of_the_others() -> None:
    assert others(stories.failed_for_good()) == "the other 2 tasks failed 1.2 s later because of it"
    assert others(stories.restarted_in_place()) == "the other 2 tasks were stopped 1.2 s later because of it"
    assert others(stories.restarted_in_place(), 2) is None, "nobody failed"


def test_others_that_ended_in_different_ways() -> None:
    job = stories.failed_for_good()
    finished = replace(job.tasks[0], exit_code=0, evidence=None)
    assert others_text((finished, *job.tasks[1:]), "worker-1") == (
        "1 task failed 1.2 s later because of it; 1 task had finished"
    )
    stopped = replace(job.tasks[0], stopped_by_us=True, exit_code=143)
    assert others_text((stopped, *job.tasks[1:]), "worker-1") == (
        "1 task failed 1.2 s later because of it; 1 task stopped 1.2 s later because of it"
    )
    assert (
        others_text((stopped, job.tasks[1]), "worker-1")
        == "the other task was stopped 1.2 s later because of it"
    )
    assert others_text(job.tasks[1:2], "worker-1") is None, "there are no others"
    unknown = tuple(replace(task, ended_order_ms=None) for task in job.tasks)
    assert others_text(unknown, "worker-1") == "the other 2 tasks failed because of it"


def test_attempts_that_ended_the_same_way() -> None:
    job = stories.quota_exceeded()
    assert pattern_text(job.records, 1) is None
    assert pattern_text(job.records, 2) == "attempt 1 had the same cause"
    third = replace(job.records[1], number=3)
    assert pattern_text((*job.records, third), 3) == "attempts 1 and 2 had the same cause"
    elsewhere = replace(job.records[0], culprit=TaskName("worker-2"))
    assert pattern_text((elsewhere, job.records[1]), 2) == "attempt 1 had the same cause, in worker-2"
    assert same_cause(stories.restarted_in_place().records, 2) == ()
    many = tuple(replace(job.records[0], number=number) for number in range(1, 9))
    assert pattern_text(many, 8) == "attempts 1, 2, 3, 4 and more had the same cause"


def test_what_was_done_and_why_it_fell_back() -> None:
    assert recoveries(stories.rank_0_falls_back()) == [
        "starting all tasks again in their places: not possible: worker-0 has rank 0, which only a restart "
        "of the whole job replaces",
        "starting worker-0 alone, wherever there is room: not possible: worker-0 has rank 0, which only a "
        "restart of the whole job replaces",
        "queueing the whole job again: running again after 6.0 s",
    ]
    assert recoveries(stories.card_isolated()) == [
        "queueing the whole job again, away from 1 card of node-a: running again after 20.0 s"
    ]
    assert recoveries(stories.stopped_while_recovering()) == [
        "starting all tasks again in their places: cut short: the job was stopped"
    ]
    assert recoveries(stories.in_the_queue_again()) == ["queueing the whole job again: under way"]


@pytest.mark.parametrize("level", RecoverLevel)
@pytest.mark.parametrize("result", RecoverResult)
def test_every_level_and_result_has_its_words(level: RecoverLevel, result: RecoverResult) -> None:
    one = replace(stories.restarted_in_place().records[0].recoveries[0], level=level, result=result)
    assert "{" not in recovery_text(one)


def test_what_it_cost() -> None:
    assert lost_text(lost(stories.failed_for_good())) == "at most 6.1 GPU-minutes"
    assert lost_text(lost(stories.up())) is None


@pytest.mark.parametrize(
    ("amount_ms", "unit", "text"),
    [
        (1_000, Unit.CORE, "1 core-second"),
        (1_500, Unit.CORE, "1.5 core-seconds"),
        (119_000, Unit.GPU, "119 GPU-seconds"),
        (41 * 60_000, Unit.GPU, "41 GPU-minutes"),
        (3 * 3_600_000, Unit.NPU, "180 NPU-minutes"),
        (1_234 * 3_600_000, Unit.NPU, "1,234 NPU-hours"),
        (120 * 3_600_000, Unit.GPU, "120 GPU-hours"),
        (10, Unit.GPU, "0.1 GPU-seconds"),
    ],
)
def test_amounts(amount_ms: float, unit: Unit, text: str) -> None:
    assert amount_text(amount_ms, unit) == text


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 ms"), (5, "5 ms"), (1_200, "1.2 s"), (59_949, "59.9 s"), (61_000, "1 min 01 s")]
)
def test_short_times(ms: int, text: str) -> None:
    assert soon_text(ms) == text


def test_an_attempt_that_is_not_over_says_so() -> None:
    job = stories.in_the_queue_again()
    assert [ended_text(job, record) for record in job.records] == [
        "worker-1 was killed by SIGKILL from outside",
        "it is queued",
    ]
    assert ended_text(stories.up(), stories.up().records[0]) == "it goes on"
