"""Makes the jobs that persistence tests store."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trackside.domain.event import Event
from trackside.domain.job import Job, JobId, JobSpec, NodeId, ProjectId, Record, Role, Task, task_name
from trackside.domain.phase import Phase
from trackside.domain.resources import Resources
from trackside.ports import Update

PROJECT = ProjectId("p1")
OTHER_PROJECT = ProjectId("p2")
SMALL = Resources(cpu_cores=1.0, memory_bytes=2**30)
NODE = NodeId("node-a")


def make_spec(**changes: Any) -> JobSpec:
    """Return a specification of one small worker."""
    return replace(JobSpec(name="train", roles=(Role(resources=SMALL),), command="true"), **changes)


def make_job(number: int = 1, *, spec: JobSpec | None = None, **changes: Any) -> Job:
    """Return a queued job with a new id."""
    job = Job(
        id=JobId(str(uuid.uuid4())),
        number=number,
        project_id=PROJECT,
        owner="ann",
        spec=spec or make_spec(),
        phase=Phase.QUEUED,
        created_at_ms=1_000 + number,
        records=(Record(number=1, queued_at_ms=1_000 + number),),
    )
    return replace(job, **changes)


def making(*messages: str, spec: JobSpec | None = None, **changes: Any) -> Callable[[int], Update]:
    """Return what `insert` takes: a new job, told with these events."""
    job_id = JobId(str(uuid.uuid4()))

    def make(number: int) -> Update:
        job = make_job(number, spec=spec, **{"id": job_id, **changes})
        told = tuple(Event(job_id=job.id, at_ms=job.created_at_ms, message=text) for text in messages)
        return Update(job=job, events=told)

    return make


def changing(**changes: Any) -> Callable[[Job], Update]:
    """Return what `update` takes: replace these fields."""
    return lambda job: Update(job=replace(job, **changes))


def make_task(index: int = 0, attempt: int = 1, **changes: Any) -> Task:
    """Return a placed task."""
    task = Task(
        name=task_name("worker", index),
        role="worker",
        index=index,
        rank=index,
        attempt=attempt,
        node_id=NODE,
        resources=SMALL,
    )
    return replace(task, **changes)
