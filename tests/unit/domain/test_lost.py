"""What faults cost: counted once, in the right unit, and never less than nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.domain import stories
from tests.unit.domain.builders import after, ended, running
from trackside.domain.job import Job, Record, Task
from trackside.domain.lost import Unit, lost
from trackside.domain.reason import ReasonCode

CARDS = 2  # of each task of the stories
MOMENT = st.one_of(st.none(), st.integers(min_value=-(10**13), max_value=10**13))


def test_a_restart_in_place_costs_the_work_and_the_gap() -> None:
    (loss,) = lost(stories.restarted_in_place()).losses
    assert (loss.attempt, loss.cause, loss.task) == (1, ReasonCode.EXCEPTION, None)
    assert (loss.ran_ms, loss.until_running_ms) == (60_000, 1_800)
    assert loss.worked_ms == CARDS * (60_000 + 5_000 + 5_000), "what each task had run, by its own clock"
    assert loss.held_ms == 3 * CARDS * 1_800, "the cards stayed its own"


def test_cards_are_not_held_in_the_queue() -> None:
    (loss,) = lost(stories.queued_again()).losses
    assert loss.until_running_ms == 95_000 - 66_200
    assert loss.held_ms == 3 * CARDS * (95_000 - 90_000), "only from its place to its start"


def test_a_replaced_task_loses_its_own_work_and_keeps_the_others_waiting() -> None:
    (loss,) = lost(stories.pod_replaced()).losses
    assert (loss.task, loss.ran_ms, loss.until_running_ms) == ("worker-2", 30_000, 4_000)
    assert (loss.worked_ms, loss.held_ms) == (CARDS * 30_000, 3 * CARDS * 4_000)


def test_preemption_costs_too() -> None:
    (loss,) = lost(stories.preempted()).losses
    assert (loss.cause, loss.worked_ms) == (ReasonCode.PREEMPTED, 3 * CARDS * 60_000)


def test_the_last_failure_has_nothing_after_it() -> None:
    told = lost(stories.quota_exceeded())
    assert [(one.attempt, one.until_running_ms) for one in told.losses] == [(1, 1_800), (2, None)]
    assert told.by_cause == {ReasonCode.EXIT_CODE: told.total_ms}
    assert told.of(2).total_ms == 3 * CARDS * 5_000


def test_a_job_without_cards_counts_cores() -> None:
    job = after(running(2), ended("worker-0", 1, duration_ms=6_000))
    job = after(job, ended("worker-1", None, signal=15, stopped_by_us=True, duration_ms=6_000))
    assert (lost(job).unit, lost(job).total_ms) == (Unit.CORE, 12_000)


@pytest.mark.parametrize("exit_code", [0, None])
def test_what_somebody_wanted_is_not_lost(exit_code: int | None) -> None:
    job = running(1)
    job = after(job, ended("worker-0", 0)) if exit_code == 0 else stories.stopped_while_recovering()
    assert [one.attempt for one in lost(job).losses] == ([] if exit_code == 0 else [1])


@given(story=st.sampled_from(stories.STORIES), moments=st.lists(MOMENT, min_size=1, max_size=40))
def test_nothing_is_ever_negative_however_clocks_jump(
    story: Callable[[], Job], moments: list[int | None]
) -> None:
    told = lost(_jumbled(story(), moments))
    assert told.total_ms >= 0
    for one in told.losses:
        assert min(one.ran_ms, one.worked_ms, one.held_ms, one.until_running_ms or 0) >= 0
    assert sum(told.by_cause.values()) == pytest.approx(told.total_ms)


@given(story=st.sampled_from(stories.STORIES))
def test_every_start_that_ended_badly_is_counted_once(story: Callable[[], Job]) -> None:
    told = lost(story())
    keys = [(one.attempt, one.task, one.ran_ms) for one in told.losses]
    assert len(keys) == len(set(keys))
    assert told.total_ms == sum(told.of(record.number).total_ms for record in story().records)


def _jumbled(job: Job, moments: list[int | None]) -> Job:
    """Return the job with every time of it replaced by another."""
    times = iter(moments * 1_000)

    def record(one: Record) -> Record:
        over = next(times) if one.ended_at_ms is not None else None
        return replace(
            one,
            placed_at_ms=next(times),
            running_at_ms=next(times),
            ended_at_ms=over,
            duration_ms=next(times),
        )

    def task(one: Task) -> Task:
        return replace(one, started_at_ms=next(times), ended_at_ms=next(times), duration_ms=next(times))

    return replace(
        job,
        records=tuple(record(one) for one in job.records),
        tasks=tuple(task(one) for one in job.tasks),
        past_tasks=tuple(task(one) for one in job.past_tasks),
    )
