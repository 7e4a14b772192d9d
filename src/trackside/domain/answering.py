"""Knows how a fault is answered: which tasks drain, which are put back, and what the job is to become."""

from collections.abc import Sequence
from dataclasses import replace

from trackside.domain import recovery
from trackside.domain.closing import Change, tell, with_record, with_task
from trackside.domain.event import Level
from trackside.domain.fault import IN_PLACE, RecoverLevel, Recovery, Scenario
from trackside.domain.job import Ending, Job, Task, TaskState
from trackside.domain.phase import Phase, advance

IN_WORDS = {
    RecoverLevel.NPU_PROC_RESTART: "starting all tasks again where they were",
    RecoverLevel.GPU_PROC_RESTART: "starting all tasks again where they were",
    RecoverLevel.PROC_RESTART: "starting all tasks again where they were",
    RecoverLevel.POD_RESCHEDULE: "replacing it",
    RecoverLevel.JOB_RESCHEDULE: "queueing the job again",
    RecoverLevel.JOB_RESCHEDULE_WITH_TAINT: "isolating what is faulty and queueing the job again",
}


def answer_fault(job: Job, over: Task, at_ms: int) -> Change:
    """Answer a task that ended badly: replace it alone, or let the others drain towards what comes next.

    Which task was first is certain only when all have ended, so what is decided here for the whole job is
    decided again then.
    """
    fault = recovery.task_fault(over, at_ms=over.ended_at_ms or at_ms)
    answer = recovery.choose(job, fault)
    words = (tell(job, at_ms, IN_WORDS[answer.level], task=over.name),) if answer.level else ()
    if answer.level is not RecoverLevel.POD_RESCHEDULE:
        return replace(without_waiting(job), ending=ending_of(answer, fault, at_ms)), words
    return _put_back(job, over, answer.steps, at_ms, state=TaskState.WAITING), words


def start_again(job: Job, over: Task, at_ms: int) -> Change:
    """Put a task that has ended back into its place, by its role's own policy; the attempt goes on."""
    assert over.reason is not None
    step = Recovery(
        level=RecoverLevel.TASK_RESTART,
        scenario=Scenario.FAILED,
        reason=over.reason,
        task=over.name,
        started_at_ms=at_ms,
        charged=False,
    )
    job = _put_back(with_task(job, over, at_ms), over, (step,), at_ms, state=TaskState.PLACED)
    again = sum(one.level is RecoverLevel.TASK_RESTART for one in job.records[-1].recoveries)
    told = f"{over.reason.text}; starting it again ({again})"
    return job, (tell(job, at_ms, told, Level.WARNING, task=over.name, attempt=over.attempt),)


def ending_of(answer: recovery.Answer, fault: recovery.Fault, at_ms: int) -> Ending:
    """Return what a job drains towards."""
    phase = Phase.FAILED
    if answer.level is not None:
        phase = Phase.RESTARTING if answer.level in IN_PLACE else Phase.QUEUED
    return Ending(phase=phase, reason=fault.reason, decided_at_ms=at_ms, scenario=fault.scenario)


def without_waiting(job: Job) -> Job:
    """Take back what was to replace a task: it ended, and nothing will follow it in this attempt."""
    waiting = {task.name for task in job.tasks if task.state is TaskState.WAITING}
    if not waiting:
        return job
    past = list(job.past_tasks)
    ended = {}
    for task in reversed(job.past_tasks):
        if task.name in waiting and task.name not in ended:
            ended[task.name] = task
            past.remove(task)
    tasks = tuple(ended.get(task.name, task) for task in job.tasks)
    return replace(job, tasks=tasks, past_tasks=tuple(past))


def with_recoveries(job: Job, steps: Sequence[Recovery]) -> Job:
    """Write down in the current attempt what was tried."""
    record = job.records[-1]
    return with_record(job, replace(record, recoveries=(*record.recoveries, *steps)))


def _put_back(job: Job, over: Task, steps: Sequence[Recovery], at_ms: int, *, state: TaskState) -> Job:
    """Put a fresh task where one has ended."""
    again = Task(
        name=over.name,
        role=over.role,
        index=over.index,
        rank=over.rank,
        attempt=over.attempt + 1,
        record=over.record,
        node_id=over.node_id,
        resources=over.resources,
        cards=over.cards,
        state=state,
    )
    job = with_recoveries(with_task(job, again, at_ms), steps)
    phase = job.phase if job.phase is Phase.RESTARTING else advance(job.phase, Phase.RESTARTING)
    return replace(job, past_tasks=(*job.past_tasks, over), phase=phase)
