"""Knows how Trackside itself shows an attempt: the native JSON, in the domain's own words."""

from collections.abc import Sequence
from urllib.parse import quote, urlencode

import msgspec

from trackside.api.native import PREFIX
from trackside.api.native.views import ReasonView, view_reason
from trackside.domain.attempts import carried_out, starts, taken, tasks_by_attempt
from trackside.domain.evidence import Evidence
from trackside.domain.fault import Recovery
from trackside.domain.job import Exit, Job, Record, Task
from trackside.domain.lost import Lost, lost
from trackside.domain.story import (
    ended_text,
    lost_text,
    others_text,
    pattern_text,
    recovery_text,
    same_cause,
)
from trackside.domain.timing import attempt_ms, first_starts

STEPS_MAX = 10_000  # fewer than the operation of the series allows
STEP_MS_MIN = 1_000
LOG_LINES = 200
_NOTHING_SEEN = Evidence()


class LossView(msgspec.Struct, frozen=True, kw_only=True):
    """What one end cost, at most."""

    attempt: int
    cause: str
    task: str | None
    ran_ms: int
    until_running_ms: int | None
    worked_unit_ms: float
    held_unit_ms: float


class LostView(msgspec.Struct, frozen=True, kw_only=True):
    """What was lost at most: times of GPUs, NPUs or cores."""

    text: str | None
    unit: str
    total_unit_ms: float
    by_cause: dict[str, float]
    losses: tuple[LossView, ...]


class IsolationView(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, or some of its cards, that takes no more tasks."""

    node: str
    cards: tuple[int, ...]


class RecoveryView(msgspec.Struct, frozen=True, kw_only=True):
    """One try to bring the job back."""

    text: str
    level: str
    scenario: str
    result: str
    carried_out: bool
    charged: bool
    reason: ReasonView | None
    task: str | None
    started_at_ms: int
    ended_at_ms: int | None
    isolated: IsolationView | None
    note: str | None


class ExitView(msgspec.Struct, frozen=True, kw_only=True):
    """How one task ended, counted from the first that did."""

    task: str
    exit_code: int | None
    signal: int | None
    after_first_ms: int | None
    stopped_by_us: bool


class FullPlaceView(msgspec.Struct, frozen=True, kw_only=True):
    """A file system that had no room."""

    path: str
    used_bytes: int
    size_bytes: int
    shared: bool


class DeviceFaultView(msgspec.Struct, frozen=True, kw_only=True):
    """An error that a card reported."""

    card: int
    kind: str
    code: str
    text: str
    heals: bool


class TaskEndView(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one task and all that was seen of its end."""

    name: str
    rank: int
    start: int  # counts the task's own starts, over all attempts
    again: bool  # it was started again within the attempt: a later entry follows it
    node: str
    cards: tuple[int, ...]
    state: str
    started_at_ms: int | None
    ended_at_ms: int | None
    duration_ms: int | None
    exit_code: int | None
    signal: int | None
    stopped_by_us: bool
    reason: ReasonView | None
    memory_peak_bytes: int | None
    memory_limit_bytes: int
    oom_kills_before: int | None
    oom_kills_after: int | None
    host_oom: str | None
    traceback: str | None
    collective_error: str | None
    full: tuple[FullPlaceView, ...]
    device_faults: tuple[DeviceFaultView, ...]


class AttemptLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read on: paths of this server."""

    attempt: str
    export: str
    metrics: str | None  # nothing ran
    logs: dict[str, str]


class AttemptBrief(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt."""

    number: int
    text: str
    start_type: str
    queued_at_ms: int
    placed_at_ms: int | None
    started_at_ms: int | None
    running_at_ms: int | None
    ended_at_ms: int | None
    duration_ms: int | None
    reason: ReasonView | None
    culprit: str | None
    others: str | None
    pattern: str | None
    same_cause: tuple[int, ...]
    recover: str | None  # the level that followed it
    recoveries: tuple[RecoveryView, ...]
    lost: LostView
    links: AttemptLinks


class AttemptView(AttemptBrief, frozen=True, kw_only=True):
    """Everything known of one attempt."""

    schema: str = "trackside/1"
    job_id: str
    job_name: str
    attempts: int
    job_lost: LostView  # by all attempts together
    exits: tuple[ExitView, ...]
    tasks: tuple[TaskEndView, ...]


class AttemptList(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts of a job, the oldest first, and what they lost together."""

    attempts: tuple[AttemptBrief, ...]
    lost: LostView


def view_attempts(job: Job, *, now_ms: int) -> AttemptList:
    """Return all attempts of a job."""
    made = _Made(job, now_ms)
    return AttemptList(
        attempts=tuple(made.brief(record) for record in job.records),
        lost=_lost(made.lost),
    )


def view_attempt(job: Job, record: Record, *, now_ms: int) -> AttemptView:
    """Return everything known of one attempt."""
    made = _Made(job, now_ms)
    return AttemptView(
        **msgspec.structs.asdict(made.brief(record)),
        job_id=job.id,
        job_name=job.spec.name,
        attempts=len(job.records),
        job_lost=_lost(made.lost),
        exits=_exits(record.exits),
        tasks=made.task_ends(record),
    )


class _Made:
    """What all attempts of a job need, found out once."""

    def __init__(self, job: Job, now_ms: int) -> None:
        self._job = job
        self._now_ms = now_ms
        self._started = first_starts(job)
        self._tasks = tasks_by_attempt(job)
        self._done = {id(one) for one in carried_out(job)}
        self.lost = lost(job)

    def brief(self, record: Record) -> AttemptBrief:
        """Return an attempt without its tasks."""
        job, started = self._job, self._started.get(record.number)
        chosen = taken(record) if record is not job.records[-1] else None
        return AttemptBrief(
            number=record.number,
            text=ended_text(job, record),
            start_type=record.start_type.value,
            queued_at_ms=record.queued_at_ms,
            placed_at_ms=record.placed_at_ms,
            started_at_ms=started,
            running_at_ms=record.running_at_ms,
            ended_at_ms=record.ended_at_ms,
            duration_ms=self._duration_ms(record, started),
            reason=view_reason(record.reason),
            culprit=record.culprit,
            others=others_text(self._tasks[record.number], record.culprit),
            pattern=pattern_text(job.records, record.number),
            same_cause=same_cause(job.records, record.number),
            recover=chosen.level.value if chosen else None,
            recoveries=tuple(self._recovery(one) for one in record.recoveries),
            lost=_lost(self.lost.of(record.number)),
            links=self._links(record, started),
        )

    def task_ends(self, record: Record) -> tuple[TaskEndView, ...]:
        """Return every start of every task of an attempt, by rank and in order."""
        last = {(task.name, task.attempt) for task in self._tasks[record.number]}
        here = [start.task for start in starts(self._job) if start.task.record == record.number]
        ordered = sorted(here, key=lambda task: (task.rank, task.attempt))
        return tuple(_task_end(task, again=(task.name, task.attempt) not in last) for task in ordered)

    def _duration_ms(self, record: Record, started: int | None) -> int | None:
        if started is None:
            return None
        if record.ended_at_ms is None:
            return max(0, self._now_ms - started)
        return attempt_ms(record, started)

    def _recovery(self, one: Recovery) -> RecoveryView:
        away = one.isolated
        isolated = IsolationView(node=away.node_id, cards=away.cards) if away else None
        return RecoveryView(
            text=recovery_text(one),
            level=one.level.value,
            scenario=one.scenario.value,
            result=one.result.value,
            carried_out=id(one) in self._done,
            charged=one.charged,
            reason=view_reason(one.reason),
            task=one.task,
            started_at_ms=one.started_at_ms,
            ended_at_ms=one.ended_at_ms,
            isolated=isolated,
            note=one.note,
        )

    def _links(self, record: Record, started: int | None) -> AttemptLinks:
        job = f"{PREFIX}/jobs/{self._job.id}"
        attempt = f"{job}/attempts/{record.number}"
        metrics = None
        if started is not None:
            end_ms = max(started, self._now_ms if record.ended_at_ms is None else record.ended_at_ms) + 1
            step_ms = max(STEP_MS_MIN, -(-(end_ms - started) // STEPS_MAX))
            span = urlencode({"start_ms": started, "end_ms": end_ms, "step_ms": step_ms})
            metrics = f"{job}/metrics?{span}"
        names = [str(task.name) for task in self._tasks[record.number]]
        logs = {name: f"{attempt}/logs/{quote(name)}?lines={LOG_LINES}" for name in names}
        return AttemptLinks(attempt=attempt, export=f"{attempt}/export", metrics=metrics, logs=logs)


def _exits(exits: Sequence[Exit]) -> tuple[ExitView, ...]:
    first = next((one.order_ms for one in exits if one.order_ms is not None), None)
    return tuple(
        ExitView(
            task=one.task,
            exit_code=one.exit_code,
            signal=one.signal,
            after_first_ms=None if first is None or one.order_ms is None else max(0, one.order_ms - first),
            stopped_by_us=one.stopped_by_us,
        )
        for one in exits
    )


def _task_end(task: Task, *, again: bool) -> TaskEndView:
    seen = task.evidence or _NOTHING_SEEN
    return TaskEndView(
        name=task.name,
        rank=task.rank,
        start=task.attempt,
        again=again,
        node=task.node_id,
        cards=task.cards,
        state=task.state.value,
        started_at_ms=task.started_at_ms,
        ended_at_ms=task.ended_at_ms,
        duration_ms=task.duration_ms,
        exit_code=task.exit_code,
        signal=task.signal,
        stopped_by_us=task.stopped_by_us,
        reason=view_reason(task.reason),
        memory_peak_bytes=task.memory_peak_bytes,
        memory_limit_bytes=task.resources.memory_bytes,
        oom_kills_before=seen.oom_kills_before,
        oom_kills_after=seen.oom_kills_after,
        host_oom=seen.host_oom,
        traceback=seen.traceback,
        collective_error=seen.collective_error,
        full=tuple(msgspec.convert(one, FullPlaceView, from_attributes=True) for one in seen.full),
        device_faults=tuple(
            msgspec.convert(one, DeviceFaultView, from_attributes=True) for one in seen.device_faults
        ),
    )


def _lost(found: Lost) -> LostView:
    return LostView(
        text=lost_text(found),
        unit=found.unit.value,
        total_unit_ms=found.total_ms,
        by_cause={cause.value: amount for cause, amount in found.by_cause.items()},
        losses=tuple(
            LossView(
                attempt=one.attempt,
                cause=one.cause.value,
                task=one.task,
                ran_ms=one.ran_ms,
                until_running_ms=one.until_running_ms,
                worked_unit_ms=one.worked_ms,
                held_unit_ms=one.held_ms,
            )
            for one in found.losses
        ),
    )
