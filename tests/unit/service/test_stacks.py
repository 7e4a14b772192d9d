"""Stacks of a whole job: asked of every node, kept with the attempt, and what could not be had is said."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.domain.builders import JOB_ID, running
from trackside.clock import SystemClock
from trackside.domain.errors import Exhausted
from trackside.domain.event import Level
from trackside.domain.exchange import Answered, ErrandKind, TaskKey
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import Job, ProjectId, Task, TaskState
from trackside.logstore.stacks import FileStacks
from trackside.service.jobs import Jobs
from trackside.service.stacks import StackTaker

ANA = Caller(user="ana", project_id=ProjectId("p"), role=UserRole.USER)

Say = Callable[[Task], tuple[bool, str] | None]


class HandErrands:
    """Nodes that the test speaks for; None: no answer comes."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._job: dict[str, Task] = {}
        self.withdrawn: list[str] = []

    def ask(self, job: Job, task: str, kind: ErrandKind) -> str:
        assert kind is ErrandKind.STACKS
        found = job.task(task)
        assert found is not None
        if self._say is refuse:
            raise Exhausted("too many errands")
        self._job[task] = found
        return task

    async def answer(self, errand_id: str, *, wait_seconds: float) -> Answered | None:
        task = self._job[errand_id]
        said = self._say(task)
        if said is None:
            return None
        key = TaskKey(JOB_ID, task.attempt, task.name)
        return Answered(id=errand_id, key=key, kind=ErrandKind.STACKS, at_ms=1, done=said[0], text=said[1])

    def withdraw(self, errand_id: str) -> None:
        self.withdrawn.append(errand_id)


def refuse(task: Task) -> None:
    raise AssertionError(task)


class OneJob:
    """The only thing that is asked of jobs here."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def show(self, caller: Caller, job_id: str) -> Job:
        assert (caller, job_id) == (ANA, self.job.id)
        return self.job


def taker(tmp_path: Path, job: Job, say: Say) -> tuple[StackTaker, HandErrands]:
    errands = HandErrands(say)
    jobs = cast("Jobs", OneJob(job))
    return StackTaker(jobs, FileStacks(tmp_path), errands, SystemClock()), errands


def test_every_running_task_is_asked_and_found_again_by_attempt(tmp_path: Path) -> None:
    job = running(3)
    over = replace(job.tasks[2], state=TaskState.ENDED)
    again = replace(job.tasks[1], attempt=4, record=2)
    job = replace(job, tasks=(job.tasks[0], again, over), past_tasks=(job.tasks[1],))
    stacks, _ = taker(tmp_path, job, lambda task: (True, f"{task.name} in all_reduce"))
    (event,) = asyncio.run(stacks.take(job))
    assert event.message == "the stacks of 2 tasks were taken: trackside stacks train"

    def shown(**wanted: Any) -> list[tuple[str, int | None, str]]:
        found, matching = asyncio.run(stacks.shown(ANA, job.id, **wanted))
        assert matching == len(found)
        return [(one.snapshot.task, one.record, one.text) for one in found]

    first = ("worker-0", 1, "worker-0 in all_reduce")
    second = ("worker-1", 2, "worker-1 in all_reduce")
    assert shown() == [first, second]
    assert shown(task="worker-1") == [second]
    assert shown(record=1) == [first]


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (lambda task: None, "its node did not answer in time"),
        (lambda task: (False, "the task has no process any more"), "the task has no process any more"),
        (refuse, "too many errands"),
    ],
)
def test_what_could_not_be_had_is_said(tmp_path: Path, say: Say, why: str) -> None:
    job = running(5)
    stacks, errands = taker(tmp_path, job, say)
    events = asyncio.run(stacks.take(job))
    assert [event.message for event in events] == [
        f"the stacks of worker-{i} could not be taken: {why}" for i in range(3)
    ]
    assert {event.level for event in events} == {Level.WARNING}
    assert len(errands.withdrawn) == (5 if "in time" in why else 0)
    assert asyncio.run(stacks.shown(ANA, job.id)) == ([], 0)
