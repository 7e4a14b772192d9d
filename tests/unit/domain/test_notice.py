"""What is kept of a job when something happens to it."""

from dataclasses import replace

from tests.unit.notify.making import OUT_OF_MEMORY
from tests.unit.persistence.making import make_job, make_spec
from trackside.domain.event import Event, EventKind
from trackside.domain.job import Job, Record, TaskName
from trackside.domain.notice import EVENT_NAMES, KIND_OF_NAME, Notice, notice_of
from trackside.domain.phase import Phase


def noticed(job: Job, kind: EventKind = EventKind.FAILED, **changes: object) -> Notice:
    event = Event(job_id=job.id, at_ms=7, message="it happened", kind=kind)
    return notice_of(job, replace(event, **changes), notice_id="n1")  # type: ignore[arg-type]


def test_every_kind_has_one_name() -> None:
    assert set(EVENT_NAMES) == set(EventKind)
    assert {KIND_OF_NAME[name] for name in EVENT_NAMES.values()} == set(EventKind)


def test_a_notice_shows_the_job_and_why() -> None:
    job = make_job(spec=make_spec(declared={"x": {"y": "hidden"}}), phase=Phase.FAILED, reason=OUT_OF_MEMORY)
    notice = noticed(job)
    assert (notice.phase, notice.reason, notice.culprit) == (Phase.FAILED, OUT_OF_MEMORY, "worker-5")
    assert (notice.attempt, notice.message, notice.at_ms) == (1, "it happened", 7)
    assert notice.declared == {"x": {"y": "hidden"}}
    assert "hidden" not in repr(notice)


def test_the_event_knows_task_and_attempt_best() -> None:
    notice = noticed(make_job(reason=OUT_OF_MEMORY), task="worker-1", attempt=4)
    assert (notice.culprit, notice.attempt) == ("worker-1", 4)


def test_a_restart_tells_why_the_last_attempt_ended() -> None:
    ended = Record(
        number=1, queued_at_ms=1, reason=replace(OUT_OF_MEMORY, task=None), culprit=TaskName("worker-2")
    )
    job = make_job(records=(ended, Record(number=2, queued_at_ms=2)))
    notice = noticed(job, EventKind.RESTARTED)
    assert (notice.reason, notice.culprit, notice.attempt) == (ended.reason, "worker-2", 2)


def test_a_start_carries_no_old_reason() -> None:
    notice = noticed(make_job(reason=OUT_OF_MEMORY), EventKind.STARTED)
    assert (notice.reason, notice.culprit) == (None, None)


def test_a_job_without_attempts_has_none() -> None:
    assert noticed(make_job(records=())).attempt is None
