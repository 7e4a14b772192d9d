"""Who failed first, and who only followed."""

from typing import Any

from tests.unit.domain.builders import after, ended, running
from trackside.domain.evidence import Evidence
from trackside.domain.job import Job
from trackside.domain.phase import Phase
from trackside.domain.reason import Certainty, ReasonCode

LOST = Evidence(collective_error="gloo/transport/tcp/pair.cc:534] Connection closed by peer")
RAISED = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n'


def failed(*ends: tuple[str, int, int, dict[str, Any]]) -> Job:
    """Return a job of three whose tasks ended with (name, code, moment): told in this order."""
    reports = (ended(name, code, ended_boot_ms=at, **more) for name, code, at, more in ends)
    job = after(running(3), *reports)
    assert job.phase is Phase.FAILED
    return job


def test_the_first_by_the_clock_is_named_whoever_was_told_of_first() -> None:
    job = failed(("worker-0", 1, 105, {}), ("worker-2", 7, 100, {}), ("worker-1", 1, 106, {}))
    assert job.records[-1].culprit == "worker-2"
    assert [one.task for one in job.records[-1].exits] == ["worker-2", "worker-0", "worker-1"]
    assert [one.exit_code for one in job.records[-1].exits] == [7, 1, 1]
    assert job.reason is not None
    assert job.reason.evidence[-1] == "2 other tasks failed after it, the first 5 ms later"


def test_who_lost_a_peer_is_not_the_culprit_though_it_ended_first() -> None:
    job = failed(
        ("worker-0", 1, 100, {"evidence": LOST}),
        ("worker-1", 1, 101, {"evidence": LOST}),
        ("worker-2", 7, 103, {}),
    )
    assert job.records[-1].culprit == "worker-2"
    assert {task.reason.code for task in job.tasks[:2] if task.reason} == {ReasonCode.PEER_FAILED}


def test_when_all_lost_a_peer_the_first_is_named() -> None:
    ends = [(f"worker-{i}", 1, 100 + i, {"evidence": LOST}) for i in (1, 0, 2)]
    assert failed(*ends).records[-1].culprit == "worker-0"


def stopped(last: str, **more: Any) -> dict[str, Any]:
    return {"stopped_by_us": True, "evidence": Evidence(traceback=RAISED + last, **more), "signal": 15}


def test_who_had_failed_and_was_stopped_while_it_ended_is_named() -> None:
    job = failed(
        ("worker-0", 1, 100, {"evidence": LOST}),
        ("worker-1", 1, 101, {"evidence": LOST}),
        ("worker-2", 0, 300, stopped("ValueError: bad batch")),
    )
    assert job.records[-1].culprit == "worker-2"
    assert job.reason is not None
    assert (job.reason.code, job.reason.certainty) == (ReasonCode.EXCEPTION, Certainty.LIKELY)
    assert job.reason.text == "worker-2 failed: ValueError: bad batch"


def test_words_that_a_stop_itself_brings_forth_blame_nobody() -> None:
    for last in ("KeyboardInterrupt", "SystemExit: 1"):
        job = failed(
            ("worker-0", 1, 100, {"evidence": LOST}),
            ("worker-1", 1, 101, {"evidence": LOST}),
            ("worker-2", 0, 300, stopped(last)),
        )
        assert job.records[-1].culprit == "worker-0"


def test_a_stopped_task_s_words_do_not_count_where_somebody_failed_by_itself() -> None:
    job = failed(
        ("worker-0", 3, 100, {}),
        ("worker-1", 1, 101, {"evidence": LOST}),
        ("worker-2", 0, 300, stopped("ValueError: late")),
    )
    assert job.records[-1].culprit == "worker-0"
