"""Knows how starts of tasks, attempts and recoveries belong together; draws no times from it.

A recovery either ends an attempt, and another attempt follows it; or it starts one task again, and the
attempt goes on. What could not be carried out is passed over and leaves no start behind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trackside.domain.fault import BY_QUEUE, IN_PLACE, RecoverLevel, RecoverResult, Recovery, Scenario
from trackside.domain.job import Job, Record, StartType, Task, TaskName

SINGLE = (RecoverLevel.TASK_RESTART, RecoverLevel.POD_RESCHEDULE)  # one task is started again
WHOLE = (*IN_PLACE, *BY_QUEUE)  # all of them are
PASSED_OVER = (RecoverResult.DOWNGRADE, RecoverResult.QUOTA_EXCEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of one task."""

    task: Task
    former: Task | None = None  # the start before it, in the same attempt
    answers: Recovery | None = None  # what went wrong with the former; None: it began with its attempt
    scheduled: int  # how often the task had been given a place by then


def starts(job: Job) -> Iterator[Start]:
    """Yield every start of every task, those of one task in order."""
    kinds = {record.number: record.start_type for record in job.records}
    answers = _answers(job)
    last: dict[TaskName, Start] = {}
    for task in (*job.past_tasks, *job.tasks):
        before = last.get(task.name)
        scheduled = before.scheduled if before else 0
        if before is not None and before.task.record == task.record:
            answered = next(answers.get((task.record, task.name), iter(())), None)
            moved = answered is not None and answered.level is RecoverLevel.POD_RESCHEDULE
            one = Start(task=task, former=before.task, answers=answered, scheduled=scheduled + moved)
        else:
            placed = kinds.get(task.record) is not StartType.RESTARTED
            one = Start(task=task, scheduled=scheduled + placed)
        last[task.name] = one
        yield one


def tasks_by_attempt(job: Job) -> dict[int, tuple[Task, ...]]:
    """Return the tasks of every attempt, by rank: of one that was started again, the last start."""
    found: dict[int, dict[str, Task]] = {record.number: {} for record in job.records}
    for task in (*job.past_tasks, *job.tasks):
        found.setdefault(task.record, {})[task.name] = task
    return {
        number: tuple(sorted(tasks.values(), key=lambda task: task.rank)) for number, tasks in found.items()
    }


def taken(record: Record) -> Recovery | None:
    """Return the recovery that follows an attempt; None: none does, or it ended otherwise."""
    last = record.recoveries[-1] if record.recoveries else None
    return last if last is not None and last.level in WHOLE and last.result not in PASSED_OVER else None


def passed_over(record: Record) -> tuple[Recovery, ...]:
    """Return what was passed over for the recovery that follows an attempt, the finest first."""
    chosen = taken(record)
    if chosen is None:
        return ()
    found: list[Recovery] = []
    for one in reversed(record.recoveries[:-1]):
        if one.result not in PASSED_OVER or _hang(one) != _hang(chosen):
            break
        found.append(one)
    return tuple(reversed(found))


def carried_out(job: Job) -> tuple[Recovery, ...]:
    """Return the recoveries by which something was started again, or is about to be."""
    whole = (taken(record) for record in job.records[:-1])
    single = (start.answers for start in starts(job))
    return tuple(one for one in (*whole, *single) if one is not None)


def faults(recoveries: Sequence[Recovery]) -> list[list[Recovery]]:
    """Return the recoveries of an attempt by what went wrong: the tries that answer one fault together."""
    groups: list[list[Recovery]] = []
    for one in recoveries:
        if groups and _fault(groups[-1][-1]) == _fault(one):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _answers(job: Job) -> dict[tuple[int, str], Iterator[Recovery]]:
    found: dict[tuple[int, str], list[Recovery]] = {}
    for record in job.records:
        for one in record.recoveries:
            if one.level in SINGLE and one.task is not None:
                found.setdefault((record.number, one.task), []).append(one)
    return {key: iter(recoveries) for key, recoveries in found.items()}


def _hang(one: Recovery) -> bool:
    return one.scenario is Scenario.HANGED


def _fault(one: Recovery) -> tuple[int, Scenario, str | None]:
    return one.started_at_ms, one.scenario, one.task
