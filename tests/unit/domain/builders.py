"""Small jobs for tests."""

from typing import Any

from trackside.domain import rules
from trackside.domain.exchange import EndCause, Ended, Report, Started, TaskKey
from trackside.domain.job import Job, JobId, JobSpec, NodeId, ProjectId, Record, Role, Slot, TaskName
from trackside.domain.phase import Phase
from trackside.domain.resources import GIB, Resources

JOB_ID = JobId("11111111-1111-4111-8111-111111111111")
NODE = NodeId("node-a")
SMALL = Resources(cpu_cores=1, memory_bytes=GIB)


def a_spec(workers: int = 2, **fields: Any) -> JobSpec:
    """Return a spec of `workers` small workers."""
    values: dict[str, Any] = {
        "name": "train",
        "command": "true",
        "roles": (Role(name="worker", count=workers, resources=SMALL),),
    }
    return JobSpec(**(values | fields))


def a_job(workers: int = 2, **fields: Any) -> Job:
    """Return a queued job."""
    values: dict[str, Any] = {
        "id": JOB_ID,
        "short_id": "abcdefghij012345",
        "number": 1,
        "family": 1,
        "project_id": ProjectId("p"),
        "owner": "ana",
        "spec": a_spec(workers),
        "phase": Phase.QUEUED,
        "created_at_ms": 1_000,
        "records": (Record(number=1, queued_at_ms=1_000),),
    }
    return Job(**(values | fields))


def placed(job: Job, at_ms: int = 2_000) -> Job:
    """Return the job with all tasks placed on one node."""
    slots = [Slot(NODE)] * job.spec.node_count
    return rules.place(job, slots, master_port=20_001, at_ms=at_ms)[0]


def key(name: str, attempt: int = 1) -> TaskKey:
    """Return the key of a task."""
    return TaskKey(JOB_ID, attempt, TaskName(name))


def started(name: str, at_ms: int = 3_000, attempt: int = 1) -> Report:
    """Return the report that a task started."""
    return Report(seq=1, started=Started(key=key(name, attempt), at_ms=at_ms, pid=7, ip="127.0.0.1"))


def ended(name: str, exit_code: int | None = 0, at_ms: int = 9_000, **fields: Any) -> Report:
    """Return the report that a task ended."""
    values: dict[str, Any] = {"cause": EndCause.EXITED, "duration_ms": 5_000}
    attempt = fields.pop("attempt", 1)
    return Report(
        seq=2, ended=Ended(key=key(name, attempt), at_ms=at_ms, exit_code=exit_code, **(values | fields))
    )


def after(job: Job, *reports: Report) -> Job:
    """Return the job once the reports are applied; those that change nothing are passed over."""
    for report in reports:
        change = rules.apply_report(job, report)
        job = change[0] if change else job
    return job


def running(workers: int = 2) -> Job:
    """Return a job of which every task runs."""
    return after(placed(a_job(workers)), *(started(f"worker-{i}") for i in range(workers)))
