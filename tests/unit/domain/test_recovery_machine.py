"""Whatever happens in whatever order: budgets hold, one attempt lives at a time, and records add up."""

from dataclasses import replace
from typing import Any

from hypothesis import Phase as HypothesisPhase
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.domain.builders import JOB_ID, NODE, a_job, a_spec
from trackside.domain import rules
from trackside.domain.closing import Change
from trackside.domain.evidence import DeviceFault, DeviceKind, Evidence
from trackside.domain.exchange import EndCause, Ended, Report, Started, TaskKey
from trackside.domain.fault import BY_QUEUE, RecoverLevel, RecoverResult, RecoveryPolicy, Scenario
from trackside.domain.job import Job, Slot, Task, TaskState
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.recovery import ENVIRONMENT, HANG_ROW_MAX, STEADY_MS, budget, used
from trackside.domain.timing import running_ms

JUMP_MS_MAX = 3_600_000
ALIVE = (TaskState.PLACED, TaskState.STARTING, TaskState.RUNNING)
ENDS: list[dict[str, Any]] = [
    {"exit_code": 0},
    {"exit_code": 1},
    {"exit_code": 127},
    {"signal": 9},
    {"signal": 11},
    {"signal": 9, "oom_killed": True},
    {"cause": EndCause.SHIM_LOST},
    {"cause": EndCause.CANNOT_START, "message": "no such file"},
    {"exit_code": 1, "evidence": Evidence(collective_error="Connection closed by peer")},
    {
        "exit_code": 1,
        "evidence": Evidence(
            device_faults=(
                DeviceFault(card=0, kind=DeviceKind.NPU, code="ECC", text="multi-bit", heals=True),
            )
        ),
    },
    {
        "exit_code": 1,
        "evidence": Evidence(
            device_faults=(
                DeviceFault(card=1, kind=DeviceKind.GPU, code="XID 79", text="off the bus", heals=False),
            )
        ),
    },
]
RECOVERING_LEVELS = [level for level in RecoverLevel if level is not RecoverLevel.TASK_RESTART]


class Machine(RuleBasedStateMachine):
    """A job, its node, its queue, its owner and its detector, all of them moody."""

    @initialize(
        workers=st.integers(1, 4),
        job_retries=st.integers(0, 5),
        task_retries=st.integers(0, 3),
        process_retries=st.integers(0, 3),
        unconditional=st.booleans(),
        hang_restart=st.booleans(),
    )
    def begin(self, workers: int, **policy: Any) -> None:
        self.wall_ms = self.steady_ms = 10_000_000
        self.job = a_job(workers, spec=a_spec(workers, recovery=RecoveryPolicy(**policy)))
        self.begun: set[TaskKey] = set()
        self.final: Job | None = None

    def _apply(self, change: Change | None) -> None:
        if change is not None:
            self.job = change[0]
        if self.job.final:
            assert self.final is None or self.job == self.final
            self.final = self.job

    def _pass(self, ms: int) -> None:
        self.steady_ms += ms
        self.wall_ms += ms

    def _alive(self) -> list[Task]:
        return [task for task in self.job.tasks if task.state in ALIVE]

    def _key(self, task: Task) -> TaskKey:
        return TaskKey(JOB_ID, task.attempt, task.name)

    @rule(ms=st.integers(0, 5_000))
    def time_passes(self, ms: int) -> None:
        self._pass(ms)

    @rule()
    def a_long_time_passes(self) -> None:
        self._pass(STEADY_MS)

    @rule(ms=st.integers(-JUMP_MS_MAX, JUMP_MS_MAX))
    def the_wall_clock_jumps(self, ms: int) -> None:
        self.wall_ms = max(0, self.wall_ms + ms)

    @precondition(lambda self: self.job.phase is Phase.QUEUED)
    @rule()
    def there_is_room(self) -> None:
        slots = [Slot(NODE, (rank,)) for rank in range(self.job.spec.node_count)]
        self._apply(rules.place(self.job, slots, master_port=20_000, at_ms=self.wall_ms))

    @precondition(lambda self: any(task.state is TaskState.PLACED for task in self.job.tasks))
    @rule(pick=st.integers(0, 99))
    def a_task_starts(self, pick: int) -> None:
        waiting = [task for task in self.job.tasks if task.state is TaskState.PLACED]
        task = waiting[pick % len(waiting)]
        key = self._key(task)
        assert key not in self.begun, "a key is never started twice"
        self.begun.add(key)
        self._apply(
            rules.apply_report(
                self.job, Report(seq=1, started=Started(key=key, at_ms=self.wall_ms, pid=1, ip="127.0.0.1"))
            )
        )

    @precondition(lambda self: bool(self._alive()))
    @rule(pick=st.integers(0, 99), how=st.sampled_from(ENDS), ran_ms=st.sampled_from([0, 5, STEADY_MS]))
    def a_task_ends(self, pick: int, how: dict[str, Any], ran_ms: int) -> None:
        alive = self._alive()
        self._end(alive[pick % len(alive)], ran_ms, **how)

    @precondition(lambda self: self.job.ending is not None and bool(self._alive()))
    @rule()
    def those_told_to_stop_stop(self) -> None:
        for task in self._alive():
            if task.state is TaskState.PLACED:
                self._end(task, 0, cause=EndCause.NOT_STARTED, stopped_by_us=True)
            else:
                self._end(task, 5, signal=15, stopped_by_us=True)

    def _end(self, task: Task, ran_ms: int, **how: Any) -> None:
        self.begun.add(self._key(task))
        values: dict[str, Any] = {"cause": EndCause.EXITED} | how
        news = Ended(
            key=self._key(task),
            at_ms=self.wall_ms,
            duration_ms=ran_ms,
            ended_boot_ms=self.steady_ms,
            **values,
        )
        report = Report(seq=2, ended=news)
        self._apply(rules.apply_report(self.job, report))
        assert rules.apply_report(self.job, report) is None, "old news changes nothing"

    @precondition(lambda self: any(task.state is TaskState.WAITING for task in self.job.tasks))
    @rule(room=st.booleans())
    def a_replacement_is_looked_for(self, room: bool) -> None:
        task = next(task for task in self.job.tasks if task.state is TaskState.WAITING)
        if room:
            self._apply(rules.replace_task(self.job, task.rank, Slot(NODE), at_ms=self.wall_ms))
        else:
            self._apply(rules.cannot_replace(self.job, "no room", at_ms=self.wall_ms))

    @rule()
    def it_seems_to_hang(self) -> None:
        reason = Reason(text="it does not move", code=ReasonCode.HANGED)
        self._apply(rules.suspect(self.job, reason, at_ms=self.wall_ms))

    @rule()
    def it_moves_again(self) -> None:
        self._apply(rules.clear(self.job, at_ms=self.wall_ms))

    @rule()
    def waiting_is_given_up(self) -> None:
        self._apply(rules.give_up_waiting(self.job, at_ms=self.wall_ms))

    @rule()
    def it_is_preempted(self) -> None:
        other = replace(a_job(), spec=a_spec(priority=3))
        self._apply(rules.preempt(self.job, other, at_ms=self.wall_ms))

    @precondition(lambda self: not self.job.final)
    @rule(sure=st.integers(0, 9))
    def it_is_stopped(self, sure: int) -> None:
        if sure == 0:
            self._apply(rules.ask_stop(self.job, by="ana", at_ms=self.wall_ms))

    @invariant()
    def budgets_hold(self) -> None:
        if not hasattr(self, "job"):
            return
        for level in RECOVERING_LEVELS:
            if level is not RecoverLevel.PROC_RESTART or not self.job.spec.recovery.hang_restart:
                assert used(self.job, level) <= budget(self.job, level)
        rows = {"hang": 0, "own": 0}
        for record in self.job.records:
            taken = [
                one
                for one in record.recoveries
                if one.level is not RecoverLevel.POD_RESCHEDULE
                and one.result not in (RecoverResult.DOWNGRADE, RecoverResult.QUOTA_EXCEEDED)
            ]
            hanged = any(one.scenario is Scenario.HANGED for one in taken)
            rows["hang"] = rows["hang"] + 1 if hanged else 0
            assert rows["hang"] <= HANG_ROW_MAX
            own = [one for one in taken if one.reason.code not in ENVIRONMENT and not hanged]
            assert not own or self.job.spec.recovery.unconditional or self.job.final

    @invariant()
    def one_attempt_lives_at_a_time(self) -> None:
        if not hasattr(self, "job"):
            return
        job = self.job
        assert all(task.state is TaskState.ENDED for task in job.past_tasks)
        assert all(task.record == job.records[-1].number for task in job.tasks)
        keys = [(task.name, task.attempt) for task in (*job.past_tasks, *job.tasks)]
        assert len(keys) == len(set(keys))
        if job.final or job.phase is Phase.QUEUED:
            assert not self._alive()
            assert job.ending is None

    @invariant()
    def records_add_up(self) -> None:
        if not hasattr(self, "job"):
            return
        job = self.job
        assert [record.number for record in job.records] == list(range(1, len(job.records) + 1))
        for record in job.records[:-1]:
            assert record.ended_at_ms is not None
            assert record.reason is not None
            assert len(record.exits) == job.spec.node_count
        assert (job.records[-1].ended_at_ms is not None) == job.final
        under_way = [
            one
            for record in job.records
            for one in record.recoveries
            if one.result is RecoverResult.RECOVERING
        ]
        assert not job.final or not under_way
        assert sum(one.level in BY_QUEUE for one in under_way) <= 1
        if job.phase is Phase.RUNNING and job.ending is None:
            assert not [one for one in under_way if one.level is not RecoverLevel.TASK_RESTART]

    @invariant()
    def time_is_never_negative(self) -> None:
        if not hasattr(self, "job"):
            return
        job = self.job
        assert running_ms(job, now_ms=self.wall_ms) >= 0
        assert [at for at, _ in job.node_counts] == sorted(at for at, _ in job.node_counts)
        for record in job.records:
            assert record.ended_at_ms is None or record.ended_at_ms >= record.queued_at_ms
            assert (record.duration_ms or 0) >= 0
            for one in record.recoveries:
                assert one.ended_at_ms is None or one.ended_at_ms >= one.started_at_ms
        for task in (*job.past_tasks, *job.tasks):
            if task.ended_at_ms is not None and task.started_at_ms is not None:
                assert task.ended_at_ms >= task.started_at_ms


TestRecovery = Machine.TestCase
# Not shrunk: that takes minutes, and the last steps of what it finds say enough.
TestRecovery.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, phases=[HypothesisPhase.generate]
)
