"""Knows which errands are out and what came back; in memory only, for an errand outlives no server.

The engine hands them to the agents, the agents' link brings the answers. Refuses to know what they are for.
"""

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from trackside.domain.errors import Exhausted, IllegalTransition, TaskNotFound
from trackside.domain.exchange import Answered, Errand, ErrandKind, TaskKey
from trackside.domain.job import Job, TaskState, task_names
from trackside.ports import Clock

OPEN_MAX = 8192  # a job of a thousand tasks may be asked for all their stacks, several times
ANSWERS_KEPT_MAX = 1024  # each may hold 64 KiB
IDS_KEPT_MAX = 16_384  # of answers that were told: an agent may tell one again
LAST_WORD_SECONDS = 2.0  # a task's end may be told before the answer of the errand that ended it

_ENDED = "the task ended before this was done"


@dataclass(slots=True, eq=False)
class _Open:
    errand: Errand
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class Errands:
    """Send nodes on errands and wait for their answers. Used in one event loop."""

    def __init__(self, *, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._open: dict[str, _Open] = {}
        self._of_task: dict[TaskKey, dict[str, _Open]] = {}
        self._answers: OrderedDict[str, Answered] = OrderedDict()
        self._told: OrderedDict[str, None] = OrderedDict()

    def ask(
        self,
        job: Job,
        task: str,
        kind: ErrandKind,
        *,
        seconds: float | None = None,
        amount: float | None = None,
    ) -> str:
        """Send the node of a running task on an errand; return the errand's id."""
        found = job.task(task)
        names = task_names(job.spec)
        if task not in names:
            raise TaskNotFound(f"the job has no task {task!r}; it has {', '.join(names[:8])}")
        if found is None:  # it waits for room
            raise IllegalTransition(f"the job is {job.phase}: this needs a task that runs")
        if found.state is not TaskState.RUNNING:
            raise IllegalTransition(f"{task} is {found.state}: this needs a task that runs")
        if len(self._open) >= OPEN_MAX:
            raise Exhausted(f"{OPEN_MAX:,} errands wait for their nodes: try again when some are done")
        errand = Errand(
            id=secrets.token_hex(8),
            key=TaskKey(job.id, found.attempt, found.name),
            kind=kind,
            seconds=seconds,
            amount=amount,
        )
        waiting = self._open[errand.id] = _Open(errand)
        self._of_task.setdefault(errand.key, {})[errand.id] = waiting
        self._wake()
        return errand.id

    async def answer(self, errand_id: str, *, wait_seconds: float) -> Answered | None:
        """Wait for an answer; None if none came in that time: then the errand is still out."""
        waiting = self._open.get(errand_id)
        if waiting is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await waiting.closed.wait()
        return self._answers.get(errand_id)

    def poll(self, errand_id: str) -> Answered | None:
        """Return an answer if there is one."""
        return self._answers.get(errand_id)

    def withdraw(self, errand_id: str) -> None:
        """Ask no longer for an errand nobody waits for; the node may have done it all the same."""
        self._close(errand_id)

    def of(self, key: TaskKey) -> tuple[Errand, ...]:
        """Return the errands that a task's node is to be told of."""
        return tuple(waiting.errand for waiting in self._of_task.get(key, {}).values())

    def told(self, errand_id: str) -> bool:
        """Say whether an answer to this errand was taken before."""
        return errand_id in self._told

    def answered(self, answered: Answered) -> None:
        """Take a node's answer."""
        self._told[answered.id] = None
        while len(self._told) > IDS_KEPT_MAX:
            self._told.popitem(last=False)
        if answered.id in self._open:
            self._settle(answered)

    def task_ended(self, key: TaskKey) -> None:
        """Ask for nothing more of a task that has ended; what it was asked may still be answered."""
        for errand_id in self._of_task.pop(key, {}):
            asyncio.get_running_loop().call_later(LAST_WORD_SECONDS, self._give_up, errand_id)

    def _give_up(self, errand_id: str) -> None:
        waiting = self._open.get(errand_id)
        if waiting is None:
            return
        errand, now_ms = waiting.errand, self._clock.now_ms()
        self._settle(
            Answered(id=errand.id, key=errand.key, kind=errand.kind, at_ms=now_ms, done=False, text=_ENDED)
        )

    def _settle(self, answered: Answered) -> None:
        self._answers[answered.id] = answered
        while len(self._answers) > ANSWERS_KEPT_MAX:
            self._answers.popitem(last=False)
        self._close(answered.id)

    def _close(self, errand_id: str) -> None:
        waiting = self._open.pop(errand_id, None)
        if waiting is None:
            return
        waiting.closed.set()
        of_task = self._of_task.get(waiting.errand.key, {})
        of_task.pop(errand_id, None)
        if not of_task:
            self._of_task.pop(waiting.errand.key, None)
