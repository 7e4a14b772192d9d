from dataclasses import replace

from tests.unit.domain.builders import a_job, after, ended, placed, running, started
from trackside.domain.fault import RecoverLevel, Recovery, Scenario
from trackside.domain.job import Record
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.timing import first_starts, running_ms, running_time

REASON = Reason(text="x", code=ReasonCode.EXIT_CODE)
RESTART = Recovery(
    level=RecoverLevel.TASK_RESTART,
    scenario=Scenario.FAILED,
    reason=REASON,
    task="worker-0",
    started_at_ms=5_000,
)


def test_a_job_that_never_ran_ran_no_time() -> None:
    assert running_ms(a_job(), now_ms=99_000) == 0
    assert running_ms(placed(a_job()), now_ms=99_000) == 0


def test_a_running_job_has_run_since_its_first_task_came_up() -> None:
    job = after(placed(a_job(2)), started("worker-0", 3_000), started("worker-1", 4_000))
    assert running_time(job) == (0, 3_000)
    assert running_ms(job, now_ms=10_000) == 7_000
    assert running_ms(job, now_ms=1_000) == 0, "a clock that went back gives no negative time"


def test_an_attempt_that_is_over_lasted_what_the_node_measured() -> None:
    job = after(running(1), ended("worker-0", at_ms=50_000, duration_ms=5_000))
    assert running_ms(job, now_ms=99_000) == 5_000


def test_an_attempt_with_restarts_lasted_from_its_first_start_to_its_end() -> None:
    job = after(running(1), ended("worker-0", at_ms=13_000, duration_ms=2_000))
    record = replace(job.records[-1], recoveries=(RESTART,))
    assert running_ms(replace(job, records=(record,)), now_ms=99_000) == 10_000


def test_attempts_add_up() -> None:
    job = after(running(1), ended("worker-0", at_ms=8_000, duration_ms=5_000))
    later = Record(number=2, queued_at_ms=8_500)
    assert running_ms(replace(job, records=(*job.records, later)), now_ms=99_000) == 5_000
    assert first_starts(job) == {1: 3_000}
