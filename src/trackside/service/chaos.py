"""Knows who may make faults on purpose, and sees to it that the job's events tell of each."""

import secrets
from dataclasses import dataclass

from trackside.domain.chaos import FAULTS, SEED_MAX, Injection, injection, picks
from trackside.domain.errors import Invalid, SwitchedOff, Unavailable
from trackside.domain.event import Event, Level
from trackside.domain.exchange import Answered
from trackside.domain.identity import Caller
from trackside.domain.job import Job, TaskState, task_names
from trackside.ports import Clock, JobStore
from trackside.service.errands import Errands
from trackside.service.jobs import Jobs

ANSWER_SECONDS_MAX = 28.0  # a client waits for 30

_OFF = (
    "faults cannot be made on purpose here: put `chaos = true` into the server's configuration and start it "
    "again, on a machine whose jobs may fail"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A fault that was asked for, and what its node answered."""

    injection: Injection
    seed: int | None  # None: nothing was left to chance
    answered: Answered


class Chaos:
    """Make faults on purpose, where that is switched on."""

    def __init__(self, *, jobs: Jobs, store: JobStore, errands: Errands, clock: Clock, enabled: bool) -> None:
        self._jobs = jobs
        self._store = store
        self._errands = errands
        self._clock = clock
        self._enabled = enabled

    async def inject(
        self,
        caller: Caller,
        job_id: str,
        *,
        word: str | None,
        task: str | None,
        seconds: float | None = None,
        amount: float | None = None,
        random: bool = False,
        seed: int | None = None,
    ) -> Injected:
        """Make one fault and wait for the node's answer; a refusal is an answer too."""
        if not self._enabled:
            raise SwitchedOff(_OFF)
        job = self._jobs.show(caller, job_id)
        if random:
            seed = secrets.randbelow(SEED_MAX) if seed is None else seed
            word, task = _picked(job, seed, word, task)
        elif seed is not None:
            raise Invalid("a seed only means something where something is left to chance: ask for random")
        fault = injection(word or "", task or _only_task(job), seconds=seconds, amount=amount)
        answered = await self._done(caller, job, fault)
        return Injected(injection=fault, seed=seed, answered=answered)

    async def _done(self, caller: Caller, job: Job, fault: Injection) -> Answered:
        errand_id = self._errands.ask(job, fault.task, fault.kind, seconds=fault.seconds, amount=fault.amount)
        try:
            told = f"fault injected by {caller.user}: {fault.text}"
            await self._store.add_events([self._event(job, fault, told)])
            answered = await self._errands.answer(errand_id, wait_seconds=ANSWER_SECONDS_MAX)
        finally:
            self._errands.withdraw(errand_id)  # nobody would know of what is done later
        if answered is None:
            raise Unavailable(f"the node of {fault.task} did not answer; the fault was withdrawn")
        return answered

    def _event(self, job: Job, fault: Injection, message: str) -> Event:
        return Event(
            job_id=job.id,
            at_ms=self._clock.now_ms(),
            message=message,
            level=Level.WARNING,
            task=fault.task,
        )


def _picked(job: Job, seed: int, word: str | None, task: str | None) -> tuple[str, str]:
    """Let the seed choose what was not said."""
    if not 0 <= seed <= SEED_MAX:
        raise Invalid(f"a seed is 0 to {SEED_MAX:,}, not {seed:,}")
    tasks = (task,) if task else task_names(job.spec)
    return next(picks(seed, job.spec.name, tasks, (word,) if word else tuple(FAULTS)))


def _only_task(job: Job) -> str:
    running = [task.name for task in job.tasks if task.state is TaskState.RUNNING]
    if len(running) == 1:
        return running[0]
    if not running:
        raise Invalid(f"{job.spec.name} has no task that runs")
    names = ", ".join(running[:8]) + (" …" if len(running) > 8 else "")
    raise Invalid(f"say which task, or ask for random: {names}")
