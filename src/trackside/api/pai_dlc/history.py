"""Knows how a job's attempts read as PAI-DLC's StatusHistory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trackside.api.pai_dlc.checks import maybe_time, time_text
from trackside.api.pai_dlc.phases import CODE_OF_REASON, PLAIN_REASON_OF, STATUS_OF
from trackside.api.pai_dlc.wire_job import StatusTransition
from trackside.domain.attempts import SINGLE
from trackside.domain.fault import RecoverResult, Recovery
from trackside.domain.job import Job, Record, StartType
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A phase from one moment to the next; the last one of a job has no end."""

    phase: Phase
    start_ms: int
    reason: Reason | None = None


def status_history(job: Job, *, stopping_at_ms: int | None = None) -> list[StatusTransition]:
    """Return the job's statuses in order; the last has no end, and none begins before the one before it."""
    stretches = list(_in_order(_stretches(job, stopping_at_ms)))
    ends = [*(one.start_ms for one in stretches[1:]), None]
    return [
        StatusTransition(
            status=STATUS_OF[one.phase],
            start_time=time_text(one.start_ms),
            end_time=maybe_time(end_ms),
            reason_code=CODE_OF_REASON[one.reason.code] if one.reason else PLAIN_REASON_OF[one.phase],
            reason_message=one.reason.text if one.reason else "",
        )
        for one, end_ms in zip(stretches, ends, strict=True)
    ]


def stop_message(events: Sequence[tuple[int, str]]) -> int | None:
    """Return when the job began to stop, from its events; None: it never had to."""
    return next((at_ms for at_ms, message in events if message.startswith("stopping: ")), None)


def _stretches(job: Job, stopping_at_ms: int | None) -> Iterator[_Stretch]:
    yield _Stretch(Phase.CREATING, job.created_at_ms)
    stopping = job.ending.decided_at_ms if job.ending and job.phase is Phase.STOPPING else stopping_at_ms
    before: Reason | None = None
    for record in job.records:
        last = record is job.records[-1]
        yield from _of_record(record, before, stopping if last else None)
        before = record.reason
    if job.final:
        yield _Stretch(job.phase, job.ended_at_ms or job.created_at_ms, job.reason)


def _in_order(stretches: Iterator[_Stretch]) -> Iterator[_Stretch]:
    latest = 0
    for one in stretches:
        latest = max(latest, one.start_ms)
        yield replace(one, start_ms=latest)


def _of_record(record: Record, before: Reason | None, stopping_at_ms: int | None) -> Iterator[_Stretch]:
    """Yield the stretches of one attempt; `before` says why the attempt before it ended."""
    found = [*_coming_up(record, before), *_once_up(record)]
    if stopping_at_ms is not None:
        found = [one for one in found if one.start_ms <= stopping_at_ms]
        found.append(_Stretch(Phase.STOPPING, stopping_at_ms))
    yield from found


def _coming_up(record: Record, before: Reason | None) -> Iterator[_Stretch]:
    if record.start_type is StartType.RESTARTED:
        yield _Stretch(Phase.RESTARTING, record.queued_at_ms, before)
        return
    yield _Stretch(Phase.QUEUED, record.queued_at_ms, before)
    if record.placed_at_ms is not None:
        yield _Stretch(Phase.STARTING, record.placed_at_ms)


def _once_up(record: Record) -> Iterator[_Stretch]:
    spans = _spans(record)
    running = record.running_at_ms
    if running is not None and not any(start <= running <= (end or running) for start, end, _ in spans):
        yield _Stretch(Phase.RUNNING, running)
    for start, end, reason in spans:
        yield _Stretch(Phase.RESTARTING, start, reason)
        if end is not None:
            yield _Stretch(Phase.RUNNING, end)


def _spans(record: Record) -> list[tuple[int, int | None, Reason]]:
    """Return when some pod was being started again, and why: restarts that overlap are one span."""
    spans: list[tuple[int, int | None, Reason]] = []
    for restart in sorted(_of_pods(record), key=lambda one: one.started_at_ms):
        end = restart.ended_at_ms if restart.result is RecoverResult.SUCCESS else None
        if record.running_at_ms is None:
            end = None  # the attempt was never up as a whole
        elif end is not None and restart.started_at_ms < record.running_at_ms:
            end = max(end, record.running_at_ms)
        if spans and (spans[-1][1] is None or restart.started_at_ms <= spans[-1][1]):
            start, former, why = spans.pop()
            spans.append((start, None if former is None or end is None else max(former, end), why))
        else:
            spans.append((restart.started_at_ms, end, restart.reason))
    return spans


def _of_pods(record: Record) -> list[Recovery]:
    """Return the restarts of single pods: the attempt went on, at least for a while."""
    return [one for one in record.recoveries if one.level in SINGLE and _lasted(one)]


def _lasted(one: Recovery) -> bool:
    """Leave out what was passed over at once."""
    return one.result is RecoverResult.SUCCESS or one.ended_at_ms != one.started_at_ms
