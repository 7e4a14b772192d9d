import signal
from dataclasses import replace

import pytest

from tests.unit.domain.builders import (
    NODE,
    SMALL,
    a_job,
    a_spec,
    after,
    ended,
    key,
    placed,
    running,
    started,
)
from trackside.domain import rules
from trackside.domain.errors import IllegalTransition
from trackside.domain.event import Level
from trackside.domain.exchange import EndCause, Measured, Noted, Report
from trackside.domain.job import Job, NodeId, ProjectId, RestartPolicy, Role, Slot, TaskState
from trackside.domain.phase import Phase
from trackside.domain.reason import Certainty, ReasonCode
from trackside.domain.resources import GIB, Resources


def test_placing_gives_every_task_its_node_rank_and_cards() -> None:
    slots = [Slot(NodeId("a"), (0, 1)), Slot(NodeId("b"), (4, 5))]
    job, events = rules.place(a_job(2), slots, master_port=20_500, at_ms=2_000)
    assert job.phase is Phase.STARTING
    assert [(t.name, t.rank, t.node_id, t.cards) for t in job.tasks] == [
        ("worker-0", 0, "a", (0, 1)),
        ("worker-1", 1, "b", (4, 5)),
    ]
    assert job.records[-1].placed_at_ms == 2_000
    assert job.records[-1].master_port == 20_500
    assert events[0].message == "starting 2 tasks on a, b"


def test_roles_are_ranked_in_their_order() -> None:
    roles = (
        Role(name="master", count=1, resources=Resources(cpu_cores=1, memory_bytes=GIB)),
        Role(name="worker", count=2, resources=Resources(cpu_cores=1, memory_bytes=GIB)),
    )
    job = placed(a_job(spec=a_spec(roles=roles)))
    assert [(t.name, t.rank) for t in job.tasks] == [("master-0", 0), ("worker-0", 1), ("worker-1", 2)]


def test_a_job_runs_once_all_its_tasks_are_up() -> None:
    half = after(placed(a_job(2)), started("worker-1", 3_000))
    assert half.phase is Phase.STARTING
    job = after(half, started("worker-0", 3_500))
    assert job.phase is Phase.RUNNING
    assert job.started_at_ms == 3_500
    assert job.records[-1].running_at_ms == 3_500
    assert job.node_counts == ((3_000, 1), (3_500, 2))


def test_a_job_succeeds_when_every_task_exited_0() -> None:
    job = after(running(), ended("worker-0", at_ms=8_000), ended("worker-1", at_ms=9_000, duration_ms=6_000))
    assert job.phase is Phase.SUCCEEDED
    assert job.ended_at_ms == 9_000
    assert job.reason is not None
    assert job.reason.code is ReasonCode.COMPLETED
    assert job.records[-1].duration_ms == 6_000
    assert job.records[-1].culprit is None
    assert job.node_counts[-1] == (9_000, 0)


def test_the_first_bad_end_decides_and_the_others_are_stopped_because_of_it() -> None:
    job = after(running(3), ended("worker-1", 3, at_ms=8_000))
    assert job.phase is Phase.RUNNING
    assert job.ending is not None
    job = after(
        job,
        ended("worker-0", None, signal=signal.SIGTERM, stopped_by_us=True, at_ms=8_100),
        ended("worker-2", 1, stopped_by_us=True, at_ms=8_200),
    )
    assert job.phase is Phase.FAILED
    assert job.reason is not None
    assert job.reason.text == "worker-1 exited with code 3"
    assert job.records[-1].culprit == "worker-1"
    assert [task.exit_code for task in job.tasks] == [143, 3, 1]
    first = job.tasks[0].reason
    assert first is not None
    assert first.text == "worker-0 was stopped because worker-1 failed"
    assert first.code is ReasonCode.PEER_FAILED


@pytest.mark.parametrize(
    ("fields", "code", "text", "exit_code"),
    [
        ({"exit_code": 3}, ReasonCode.EXIT_CODE, "worker-0 exited with code 3", 3),
        (
            {"exit_code": 127},
            ReasonCode.EXIT_CODE,
            "worker-0 exited with code 127: the command was not found",
            127,
        ),
        (
            {"exit_code": 126},
            ReasonCode.EXIT_CODE,
            "worker-0 exited with code 126: the command could not be executed",
            126,
        ),
        (
            {"exit_code": None, "signal": 9},
            ReasonCode.KILLED_FROM_OUTSIDE,
            "worker-0 was killed by SIGKILL from outside",
            137,
        ),
        (
            {"exit_code": None, "signal": 77},
            ReasonCode.KILLED_FROM_OUTSIDE,
            "worker-0 was killed by signal 77 from outside",
            205,
        ),
        ({"exit_code": None, "signal": 11}, ReasonCode.SIGNAL, "worker-0 crashed with SIGSEGV", 139),
        (
            {"exit_code": None, "signal": 9, "oom_killed": True, "memory_peak_bytes": GIB},
            ReasonCode.OUT_OF_MEMORY,
            "worker-0 ran out of memory (1.0 GiB of 1.0 GiB)",
            137,
        ),
        (
            {"exit_code": None, "cause": EndCause.CANNOT_START, "message": "no such file: ./run"},
            ReasonCode.CANNOT_START,
            "worker-0: no such file: ./run",
            None,
        ),
        (
            {"exit_code": None, "cause": EndCause.STAGING_FAILED, "message": "nothing at obs://b/x"},
            ReasonCode.STAGING_FAILED,
            "worker-0: nothing at obs://b/x",
            None,
        ),
        (
            {"exit_code": 0, "message": "outputs could not be uploaded: the disk is full"},
            ReasonCode.UPLOAD_FAILED,
            "worker-0: outputs could not be uploaded: the disk is full",
            0,
        ),
        (
            {"exit_code": None, "cause": EndCause.SHIM_LOST},
            ReasonCode.SHIM_LOST,
            "worker-0 ended with an unknown exit code: the process that watched it was killed",
            None,
        ),
    ],
)
def test_each_bad_end_has_its_sentence(
    fields: dict[str, object], code: ReasonCode, text: str, exit_code: int | None
) -> None:
    job = after(running(1), ended("worker-0", **fields))  # type: ignore[arg-type]
    assert job.phase is Phase.FAILED
    assert job.reason is not None
    assert (job.reason.code, job.reason.text) == (code, text)
    assert job.tasks[0].exit_code == exit_code
    if code is ReasonCode.SHIM_LOST:
        assert job.reason.certainty is Certainty.UNKNOWN


def test_a_job_none_of_whose_tasks_ran_could_not_be_created() -> None:
    bad = ended("worker-0", None, cause=EndCause.STAGING_FAILED, message="nothing there", duration_ms=None)
    never = ended("worker-1", None, cause=EndCause.NOT_STARTED, stopped_by_us=True, duration_ms=None)
    job = after(placed(a_job(2)), bad, never)
    assert job.phase is Phase.CREATE_FAILED
    assert job.started_at_ms is None
    assert job.records[-1].duration_ms is None
    second = job.tasks[1].reason
    assert second is not None
    assert second.text == "worker-1 was not started: worker-0: nothing there"


def test_not_started_without_a_known_cause_is_said_plainly() -> None:
    job = after(placed(a_job(1)), ended("worker-0", None, cause=EndCause.NOT_STARTED))
    assert job.reason is not None
    assert job.reason.text == "worker-0 was not started"


def test_a_task_that_ended_before_its_start_was_heard_of_still_ran() -> None:
    job = after(placed(a_job(1)), ended("worker-0", 0, at_ms=9_000, duration_ms=4_000))
    assert job.phase is Phase.SUCCEEDED
    assert job.started_at_ms == 5_000
    assert job.tasks[0].started_at_ms == 5_000


def test_an_end_is_never_before_its_start_when_the_wall_clock_jumps_back() -> None:
    job = after(running(1), ended("worker-0", 0, at_ms=1_000, duration_ms=5_000))
    assert job.tasks[0].ended_at_ms == 8_000
    assert job.ended_at_ms == 8_000


def test_old_news_and_fenced_attempts_change_nothing() -> None:
    job = running(1)
    assert rules.apply_report(job, started("worker-0")) is None
    assert rules.apply_report(job, ended("worker-0", attempt=7)) is None
    assert rules.apply_report(job, ended("worker-9")) is None
    assert rules.apply_report(job, Report(seq=1, measured=Measured(samples=()))) is None
    done = after(job, ended("worker-0"))
    assert rules.apply_report(done, ended("worker-0", 5)) is None
    two = after(running(2), ended("worker-0"))
    assert rules.apply_report(two, ended("worker-0", 5)) is None


def test_a_note_becomes_an_event() -> None:
    note = Noted(key=key("worker-0"), at_ms=5, message="log truncated", level=Level.WARNING)
    change = rules.apply_report(running(1), Report(seq=1, noted=note))
    assert change is not None
    event = change[1][0]
    assert (event.message, event.level, event.task, event.attempt) == (
        "log truncated",
        Level.WARNING,
        "worker-0",
        1,
    )


def test_stopping_a_queued_job_ends_it_at_once() -> None:
    job, events = rules.ask_stop(a_job(), by="ana", at_ms=5_000)
    assert job.phase is Phase.STOPPED
    assert job.ended_at_ms == 5_000
    assert job.started_at_ms is None
    assert events[-1].message == "stopped: stopped by ana"


def test_stopping_a_running_job_waits_for_its_tasks() -> None:
    job, _ = rules.ask_stop(running(2), by="ana", at_ms=5_000)
    assert job.phase is Phase.STOPPING
    again, events = rules.ask_stop(job, by="bob", at_ms=5_100)
    assert (again.ending, events) == (job.ending, ())
    job = after(
        again,
        ended("worker-0", None, signal=15, stopped_by_us=True),
        ended("worker-1", 0, stopped_by_us=True),
    )
    assert job.phase is Phase.STOPPED
    assert job.reason is not None
    assert job.reason.text == "stopped by ana"
    assert job.records[-1].culprit is None
    told = job.tasks[0].reason
    assert told is not None
    assert told.text == "worker-0 was stopped by ana"


def test_a_failing_job_stays_failed_when_somebody_stops_it_too() -> None:
    job = after(running(2), ended("worker-0", 4))
    job, _ = rules.ask_stop(job, by="ana", at_ms=9_500)
    job = after(job, ended("worker-1", None, signal=9, stopped_by_us=True))
    assert job.phase is Phase.FAILED


def test_a_job_that_is_over_cannot_be_stopped() -> None:
    done = after(running(1), ended("worker-0"))
    with pytest.raises(IllegalTransition):
        rules.ask_stop(done, by="ana", at_ms=1)


def test_overdue_says_the_limit() -> None:
    job = replace(running(1), spec=a_spec(1, max_seconds=5_400))
    assert rules.overdue_reason(job).text == "stopped after 1 h 30 min, the longest it may run"


def test_a_silent_node_makes_its_jobs_lost_and_its_return_brings_them_back() -> None:
    for job in (running(1), placed(a_job(1))):
        lost = rules.lose_node(job, NODE, at_ms=70_000)
        assert lost is not None
        assert lost[0].phase is Phase.LOST
        assert rules.lose_node(lost[0], NODE, at_ms=71_000) is None
        back = rules.regain_node(lost[0], NODE, at_ms=80_000)
        assert back is not None
        assert back[0].phase is job.phase
        assert rules.regain_node(back[0], NODE, at_ms=81_000) is None
    assert rules.lose_node(running(1), NodeId("elsewhere"), at_ms=1) is None
    assert rules.lose_node(a_job(1), NODE, at_ms=1) is None


def test_a_lost_job_that_was_over_meanwhile_ends_as_it_ended() -> None:
    lost = rules.lose_node(running(1), NODE, at_ms=70_000)
    assert lost is not None
    assert after(lost[0], ended("worker-0", 0)).phase is Phase.SUCCEEDED


def test_a_task_that_starts_late_in_a_stopping_job_is_noted_as_running() -> None:
    job, _ = rules.ask_stop(placed(a_job(1)), by="ana", at_ms=2_500)
    job = after(job, started("worker-0"))
    assert job.phase is Phase.STOPPING
    assert job.tasks[0].state is TaskState.RUNNING


def preempted(job: Job) -> Job:
    other = replace(a_job(1), spec=a_spec(1, name="urgent", priority=3))
    change = rules.preempt(job, other, at_ms=8_000)
    assert change is not None
    return change[0]


def test_a_preempted_job_drains_and_waits_again_with_its_past_kept() -> None:
    job = preempted(running(2))
    assert job.phase is Phase.RUNNING
    assert job.ending is not None
    assert job.ending.phase is Phase.QUEUED
    job = after(job, ended("worker-0", None, signal=15, stopped_by_us=True))
    assert job.phase is Phase.RUNNING, "one task still holds its room"
    job = after(job, ended("worker-1", 0, stopped_by_us=True))
    assert job.phase is Phase.QUEUED
    assert (job.ending, job.tasks, job.ended_at_ms) == (None, (), None)
    assert [task.attempt for task in job.past_tasks] == [1, 1]
    first, second = job.records
    assert first.reason is not None
    assert (first.reason.code, first.reason.text) == (
        ReasonCode.PREEMPTED,
        "preempted by urgent (priority 3)",
    )
    assert (first.culprit, first.ended_at_ms, first.duration_ms) == (None, 9_000, 5_000)
    assert (second.number, second.queued_at_ms, second.placed_at_ms) == (2, 9_000, None)
    assert job.started_at_ms == 3_000
    told = job.past_tasks[0].reason
    assert told is not None
    assert told.text == "worker-0 was preempted by urgent (priority 3)"


def test_the_next_attempt_is_started_under_keys_of_its_own() -> None:
    job = after(preempted(running(1)), ended("worker-0", None, signal=15, stopped_by_us=True))
    again = placed(job, at_ms=20_000)
    assert [task.attempt for task in again.tasks] == [2]
    assert rules.apply_report(again, ended("worker-0", at_ms=21_000)) is None, "the first attempt is fenced"
    done = after(again, started("worker-0", 21_000, attempt=2), ended("worker-0", at_ms=30_000, attempt=2))
    assert done.phase is Phase.SUCCEEDED
    assert [record.number for record in done.records] == [1, 2]


def test_a_key_is_new_also_after_restarts_in_place() -> None:
    role = Role(resources=SMALL, restart=RestartPolicy.ON_FAILURE, restarts_max=3)
    job = placed(a_job(spec=a_spec(roles=(role,))))
    job = after(job, started("worker-0"), ended("worker-0", 1), started("worker-0", attempt=2))
    job = after(preempted(job), ended("worker-0", None, signal=15, stopped_by_us=True, attempt=2))
    assert job.phase is Phase.QUEUED
    assert placed(job).tasks[0].attempt == 3


def test_a_job_that_was_done_when_it_was_preempted_has_succeeded() -> None:
    job = after(preempted(running(1)), ended("worker-0", 0))
    assert job.phase is Phase.SUCCEEDED
    assert job.reason is not None
    assert job.reason.code is ReasonCode.COMPLETED


def test_a_preempted_job_can_still_be_stopped() -> None:
    job, _ = rules.ask_stop(preempted(running(1)), by="ana", at_ms=8_500)
    assert job.phase is Phase.STOPPING
    job = after(job, ended("worker-0", None, signal=15, stopped_by_us=True))
    assert job.phase is Phase.STOPPED
    assert len(job.records) == 1


def test_only_what_runs_can_be_preempted_and_names_stay_in_their_project() -> None:
    other = replace(a_job(1), project_id=ProjectId("elsewhere"), spec=a_spec(1, name="secret", priority=2))
    assert rules.preempt(a_job(1), other, at_ms=1) is None
    assert rules.preempt(preempted(running(1)), other, at_ms=1) is None
    assert rules.preempt(after(running(1), ended("worker-0")), other, at_ms=1) is None
    change = rules.preempt(placed(a_job(1)), other, at_ms=1)
    assert change is not None
    assert change[0].ending is not None
    assert change[0].ending.reason.text == "preempted by a job of another project (priority 2)"
