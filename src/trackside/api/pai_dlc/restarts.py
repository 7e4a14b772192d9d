"""Knows how a job's recoveries read as PAI-DLC's RestartRecord and RestartTimes.

One fault can be answered by several tries, each coarser than the one before: they share a TriggerID. A try
that could not be carried out is told as failed, with why, and restarts nothing.
"""

from collections.abc import Iterator

from trackside.api.pai_dlc.checks import time_text
from trackside.api.pai_dlc.ids import pod_id
from trackside.api.pai_dlc.phases import CODE_OF_REASON, STATUS_OF
from trackside.api.pai_dlc.wire_job import RestartError, RestartRecord
from trackside.domain.attempts import SINGLE, carried_out, faults, starts, tasks_by_attempt
from trackside.domain.fault import RecoverLevel, RecoverResult, Recovery, Scenario
from trackside.domain.job import Job, Record, StartType, Task
from trackside.domain.phase import Phase
from trackside.domain.reason import ReasonCode

FOLLOWERS_MAX = 16  # pods told that failed because of the first

STATUS_OF_RESULT: dict[RecoverResult, str] = {
    RecoverResult.RECOVERING: "Restarting",
    RecoverResult.SUCCESS: "Succeeded",
    RecoverResult.FAILED: "Failed",
    RecoverResult.DOWNGRADE: "Failed",
    RecoverResult.QUOTA_EXCEEDED: "Failed",
    RecoverResult.TERMINATED: "Stopped",
}
FAIL_REASON_OF: dict[RecoverResult, str | None] = {
    RecoverResult.RECOVERING: None,
    RecoverResult.SUCCESS: None,
    RecoverResult.FAILED: "the job failed before all pods ran again",
    RecoverResult.DOWNGRADE: "it could not be carried out",
    RecoverResult.QUOTA_EXCEEDED: "no more restarts are allowed",
    RecoverResult.TERMINATED: "the job was stopped before all pods ran again",
}
LEVEL_OF: dict[RecoverLevel, str] = {level: "Pod" if level in SINGLE else "Job" for level in RecoverLevel}
SOURCE_OF: dict[Scenario, str] = {
    Scenario.CHIP: "Device",
    Scenario.NODE: "Node",
    Scenario.FAILED: "Pod",
    Scenario.HANGED: "Job",
}


def restart_records(job: Job) -> list[RestartRecord]:
    """Return every try to restart the job or one of its pods, the oldest first."""
    return list(_Restarts(job).records())


def restart_times(job: Job) -> str:
    """Return how many restarts were used and how many there may be, of all levels together.

    Restarts of pods in their place are counted anew in every attempt; those after a hang are never counted.
    """
    policy = job.spec.recovery
    in_place = sum(role.restarts_max * role.count for role in job.spec.roles)
    most = in_place + policy.process_retries + policy.task_retries + policy.job_retries
    charged = sum(one.charged for one in carried_out(job))
    return f"{charged + _in_place(job.records[-1]) if job.records else 0}/{most}"


class _Restarts:
    """The restarts of one job; what all of them need is looked up once."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._done = {id(one) for one in carried_out(job)}
        self._tasks = tasks_by_attempt(job)
        again = [start for start in starts(job) if start.answers is not None]
        self._ended = {id(start.answers): start.former for start in again}

    def records(self) -> Iterator[RestartRecord]:
        """Yield the tries, fault by fault."""
        count, trigger = 0, 0
        for record in self._job.records:
            for tries in faults(record.recoveries):
                trigger += 1
                for one in tries:
                    count += id(one) in self._done
                    yield self._record(record, one, count, trigger)

    def _record(self, record: Record, one: Recovery, count: int, trigger: int) -> RestartRecord:
        failed = FAIL_REASON_OF[one.result]
        return RestartRecord(
            job_restart_count=count,
            occur_phase=STATUS_OF[_phase(record, one.started_at_ms)],
            occur_time=time_text(one.started_at_ms),
            reason=one.reason.text,
            restart_level_type=LEVEL_OF[one.level],
            restart_status=STATUS_OF_RESULT[one.result],
            restart_fail_reason=None if failed is None else one.note or failed,
            restart_duration_in_sec=_seconds(one),
            trigger_id=str(trigger),
            detail_error_info_list=list(self._errors(record, one)),
        )

    def _errors(self, record: Record, one: Recovery) -> Iterator[RestartError]:
        blamed = self._task(record, one)
        yield RestartError(
            error_code=CODE_OF_REASON[one.reason.code],
            error_msg=one.reason.text,
            detail_error_msg="\n".join(one.reason.evidence) or one.reason.hint,
            error_source=SOURCE_OF[one.scenario],
            node=blamed.node_id if blamed else None,
            pod=pod_id(self._job, blamed.name) if blamed else "",
            trigger_restart=id(one) in self._done,
            add_node_to_blacklist=one.isolated is not None and not one.isolated.cards,
            add_job_level_blacklist=one.isolated is not None,
        )
        if one.level not in SINGLE:
            yield from self._followers(record)

    def _task(self, record: Record, one: Recovery) -> Task | None:
        """Return the start of the task that failed."""
        name = one.task or one.reason.task
        ended = self._ended.get(id(one))
        return ended or next((task for task in self._tasks[record.number] if task.name == name), None)

    def _followers(self, record: Record) -> Iterator[RestartError]:
        """Yield the pods that failed because another one had."""
        failed = (task for task in self._tasks[record.number] if _followed(task))
        for _, task in zip(range(FOLLOWERS_MAX), failed, strict=False):
            assert task.reason is not None
            yield RestartError(
                error_code=CODE_OF_REASON[task.reason.code],
                error_msg=task.reason.text,
                detail_error_msg="\n".join(task.reason.evidence) or _last_words(task),
                error_source=SOURCE_OF[Scenario.FAILED],
                node=task.node_id,
                pod=pod_id(self._job, task.name),
                trigger_restart=False,
                add_node_to_blacklist=False,
                add_job_level_blacklist=False,
            )


def _followed(task: Task) -> bool:
    return task.reason is not None and task.reason.code is ReasonCode.PEER_FAILED and not task.stopped_by_us


def _last_words(task: Task) -> str | None:
    return task.evidence.collective_error if task.evidence else None


def _phase(record: Record, at_ms: int) -> Phase:
    if record.running_at_ms is not None and record.running_at_ms <= at_ms:
        return Phase.RUNNING
    return Phase.RESTARTING if record.start_type is StartType.RESTARTED else Phase.STARTING


def _in_place(record: Record) -> int:
    return sum(one.level is RecoverLevel.TASK_RESTART for one in record.recoveries)


def _seconds(one: Recovery) -> int | None:
    return None if one.ended_at_ms is None else max(0, one.ended_at_ms - one.started_at_ms) // 1000
