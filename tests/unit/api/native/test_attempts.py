"""One attempt in Trackside's own words, of jobs that lived by the domain's own rules."""

from collections.abc import Callable

import msgspec
import pytest

from tests.unit.domain import stories
from trackside.api.native.attempts import OPERATIONS
from trackside.api.native.metrics import POINTS_MAX
from trackside.api.native.views_attempts import AttemptView, view_attempt, view_attempts
from trackside.domain.identity import UserRole
from trackside.domain.job import Job
from trackside.domain.roles import permits

NOW_MS = 3_000_000


def told(job: Job, number: int = 1) -> AttemptView:
    return view_attempt(job, job.records[number - 1], now_ms=NOW_MS)


def test_an_attempt_that_failed_tells_everything() -> None:
    view = told(stories.failed_for_good())
    assert (view.number, view.attempts, view.start_type) == (1, 1, "init_or_rescheduled")
    assert (view.started_at_ms, view.running_at_ms, view.ended_at_ms, view.duration_ms) == (
        3_000,
        5_000,
        66_200,
        61_200,
    )
    assert view.reason is not None
    assert (view.reason.code, view.culprit, view.recover) == ("exit-code", "worker-1", None)
    assert view.others == "the other 2 tasks failed 1.2 s later because of it"
    assert [(one.task, one.exit_code, one.after_first_ms) for one in view.exits] == [
        ("worker-1", 1, 0),
        ("worker-0", 1, 1_200),
        ("worker-2", 1, 1_200),
    ]
    first = view.tasks[0]
    assert (first.name, first.exit_code, first.signal, first.start) == ("worker-0", 1, None, 1)
    assert first.collective_error == "ProcessGroupGloo: connection closed by peer"
    assert first.reason is not None
    assert first.reason.code == "peer-failed"
    assert (first.memory_peak_bytes, first.memory_limit_bytes) == (None, 16 * 1024**3), "not seen is not 0"
    assert view.lost.text == "at most 6.1 GPU-minutes"


def test_evidence_is_told_in_full() -> None:
    view = told(stories.restarted_in_place())
    assert view.tasks[1].traceback == stories.TRACEBACK
    (fault,) = told(stories.card_isolated()).tasks[1].device_faults
    assert (fault.card, fault.kind, fault.code, fault.heals) == (1, "gpu", "XID 79", False)
    (recovery,) = told(stories.card_isolated()).recoveries
    assert recovery.isolated is not None
    assert (recovery.isolated.node, recovery.isolated.cards) == ("node-a", (1,))


def test_recoveries_and_what_followed() -> None:
    view = told(stories.rank_0_falls_back())
    assert view.recover == "job_reschedule"
    assert [(one.level, one.result, one.carried_out) for one in view.recoveries] == [
        ("proc_restart", "downgrade", False),
        ("pod_reschedule", "downgrade", False),
        ("job_reschedule", "success", True),
    ]
    assert told(stories.rank_0_falls_back(), 2).recover is None


def test_a_task_started_again_within_an_attempt_is_there_twice() -> None:
    view = told(stories.pod_replaced())
    assert [(task.name, task.start, task.again, task.node) for task in view.tasks] == [
        ("worker-0", 1, False, "node-a"),
        ("worker-1", 1, False, "node-a"),
        ("worker-2", 1, True, "node-a"),
        ("worker-2", 2, False, "node-b"),
    ]
    assert (view.ended_at_ms, view.duration_ms) == (None, NOW_MS - 3_000)


def test_an_attempt_of_which_nothing_ran_links_to_no_metrics() -> None:
    view = told(stories.in_the_queue_again(), 2)
    assert (view.text, view.tasks, view.exits, view.duration_ms) == ("it is queued", (), (), None)
    assert (view.links.metrics, view.links.logs) == (None, {})


@pytest.mark.parametrize("story", stories.STORIES)
def test_every_story_can_be_told_and_adds_up(story: Callable[[], Job]) -> None:
    job = story()
    listed = view_attempts(job, now_ms=NOW_MS)
    assert [one.number for one in listed.attempts] == [record.number for record in job.records]
    assert listed.lost.total_unit_ms == sum(one.lost.total_unit_ms for one in listed.attempts)
    for record in job.records:
        view = view_attempt(job, record, now_ms=NOW_MS)
        read = msgspec.json.decode(msgspec.json.encode(view), type=AttemptView)
        assert read == view
        assert all(one.after_first_ms is None or one.after_first_ms >= 0 for one in view.exits)
        assert view.duration_ms is None or view.duration_ms >= 0


def test_the_link_to_the_samples_is_one_that_is_answered() -> None:
    job = stories.up()
    view = view_attempt(job, job.records[0], now_ms=30 * 86_400_000)
    assert view.links.metrics is not None
    query = dict(part.split("=") for part in view.links.metrics.partition("?")[2].split("&"))
    steps = (int(query["end_ms"]) - int(query["start_ms"])) // int(query["step_ms"])
    assert 0 < steps <= POINTS_MAX


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_whoever_may_see_a_job_may_see_its_attempts(operation: object) -> None:
    action = operation.action  # type: ignore[attr-defined]
    assert permits(UserRole.VIEWER, action)
    assert not permits(UserRole.AGENT, action)
