"""Knows how a job's records read as PAI-DLC's StatusHistory and RestartRecord."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trackside.api.pai_dlc.checks import maybe_time, time_text
from trackside.api.pai_dlc.ids import pod_id
from trackside.api.pai_dlc.phases import CODE_OF_REASON, PLAIN_REASON_OF, STATUS_OF
from trackside.api.pai_dlc.wire_job import RestartError, RestartRecord, StatusTransition
from trackside.domain.fault import RecoverLevel, Recovery
from trackside.domain.job import Job, Record
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason

PENDING, UP, NEVER_UP = "Restarting", "Succeeded", "Failed"


@dataclass(frozen=True, slots=True)
class _Stretch:
    phase: Phase
    start_ms: int
    end_ms: int | None
    reason: Reason | None = None


def status_history(job: Job, *, stopping_at_ms: int | None = None) -> list[StatusTransition]:
    """Return the job's statuses in order; the last has no end."""
    return [
        StatusTransition(
            status=STATUS_OF[one.phase],
            start_time=time_text(one.start_ms),
            end_time=maybe_time(one.end_ms),
            reason_code=CODE_OF_REASON[one.reason.code] if one.reason else PLAIN_REASON_OF[one.phase],
            reason_message=one.reason.text if one.reason else "",
        )
        for one in _stretches(job, stopping_at_ms)
    ]


def restart_records(job: Job) -> list[RestartRecord]:
    """Return every restart of a pod, the oldest first."""
    restarts = [(record, restart) for record in job.records for restart in record.recoveries]
    return [_restart(job, record, one, count) for count, (record, one) in enumerate(restarts, 1)]


def restart_times(job: Job) -> str:
    """Return how many restarts the present attempt used and how many its pods may use together."""
    used = len(_of_pods(job.records[-1])) if job.records else 0
    return f"{used}/{sum(role.restarts_max * role.count for role in job.spec.roles)}"


def _stretches(job: Job, stopping_at_ms: int | None) -> Iterator[_Stretch]:
    first = job.records[0].queued_at_ms if job.records else job.ended_at_ms
    yield _Stretch(Phase.CREATING, job.created_at_ms, first)
    stopping = job.ending.decided_at_ms if job.ending and job.phase is Phase.STOPPING else stopping_at_ms
    for record in job.records:
        last = record is job.records[-1]
        yield from _of_record(record, stopping if last else None)
    if job.final:
        yield _Stretch(job.phase, job.ended_at_ms or job.created_at_ms, None, job.reason)


def _of_record(record: Record, stopping_at_ms: int | None) -> Iterator[_Stretch]:
    """Yield the stretches of one attempt: each lasts until the next begins, the last until the end."""
    begins = [(record.queued_at_ms, Phase.QUEUED)]
    if record.placed_at_ms is not None:
        begins.append((record.placed_at_ms, Phase.STARTING))
    restarts = _spans(record)
    running = record.running_at_ms
    if running is not None and not any(start <= running <= (end or running) for start, end in restarts):
        begins.append((running, Phase.RUNNING))
    for start, end in restarts:
        begins.append((start, Phase.RESTARTING))
        if end is not None:
            begins.append((end, Phase.RUNNING))
    if stopping_at_ms is not None:
        begins = [one for one in begins if one[0] <= stopping_at_ms]
        begins.append((stopping_at_ms, Phase.STOPPING))
    ends = [*(start for start, _ in begins[1:]), record.ended_at_ms]
    for (start, phase), end in zip(begins, ends, strict=True):
        yield _Stretch(phase, start, end)


def _spans(record: Record) -> list[tuple[int, int | None]]:
    """Return when some pod was being started again: restarts that overlap are one span."""
    spans: list[tuple[int, int | None]] = []
    for restart in sorted(_of_pods(record), key=lambda one: one.started_at_ms):
        end = restart.ended_at_ms
        if record.running_at_ms is None:
            end = None  # the attempt was never up as a whole
        elif end is not None and restart.started_at_ms < record.running_at_ms:
            end = max(end, record.running_at_ms)
        if spans and (spans[-1][1] is None or restart.started_at_ms <= spans[-1][1]):
            start, former = spans.pop()
            spans.append((start, None if former is None or end is None else max(former, end)))
        else:
            spans.append((restart.started_at_ms, end))
    return spans


def _of_pods(record: Record) -> list[Recovery]:
    """Return the restarts of single pods: the attempt went on."""
    single = (RecoverLevel.TASK_RESTART, RecoverLevel.POD_RESCHEDULE)
    return [one for one in record.recoveries if one.level in single]


def _restart(job: Job, record: Record, one: Recovery, count: int) -> RestartRecord:
    task = job.task(one.task) if one.task else None
    over = record.ended_at_ms is not None
    phase = (
        Phase.RUNNING
        if record.running_at_ms and record.running_at_ms <= one.started_at_ms
        else Phase.STARTING
    )
    return RestartRecord(
        job_restart_count=count,
        occur_phase=STATUS_OF[phase],
        occur_time=time_text(one.started_at_ms),
        reason=one.reason.text,
        restart_level_type="Pod",
        restart_status=UP if one.ended_at_ms is not None else NEVER_UP if over else PENDING,
        restart_duration_in_sec=_seconds(one),
        trigger_id=str(count),
        detail_error_info_list=[
            RestartError(
                error_code=CODE_OF_REASON[one.reason.code],
                error_msg=one.reason.text,
                detail_error_msg=one.reason.hint,
                error_source="trackside",
                node=task.node_id if task else None,
                pod=pod_id(job, one.task) if one.task else "",
                trigger_restart=True,
                add_node_to_blacklist=False,
                add_job_level_blacklist=False,
            )
        ],
    )


def _seconds(restart: Recovery) -> int | None:
    return (
        None if restart.ended_at_ms is None else max(0, restart.ended_at_ms - restart.started_at_ms) // 1000
    )


def stop_message(events: Sequence[tuple[int, str]]) -> int | None:
    """Return when the job began to stop, from its events; None: it never had to."""
    return next((at_ms for at_ms, message in events if message.startswith("stopping: ")), None)
