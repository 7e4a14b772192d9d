"""Knows which faults can be made on purpose, how much of each, and how a seed picks them; makes none."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trackside.domain.errors import Invalid
from trackside.domain.exchange import ErrandKind
from trackside.domain.wording import duration_text

SECONDS_DEFAULT = 30.0
SECONDS_MAX = 3600.0
SEED_MAX = 2**53 - 1  # what every JSON reader keeps whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What `amount` means for a fault, and what it may be."""

    what: str
    low: float
    high: float
    default: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault, as people name it."""

    word: str
    kind: ErrandKind
    lasts: bool  # for some seconds, then it is undone
    measure: Measure | None = None


FAULTS: dict[str, Fault] = {
    fault.word: fault
    for fault in (
        Fault(
            word="kill",
            kind=ErrandKind.KILL,
            lasts=False,
            measure=Measure(what="a signal's number", low=1, high=64, default=9),
        ),
        Fault(word="freeze", kind=ErrandKind.FREEZE, lasts=True),
        Fault(word="exhaust-memory", kind=ErrandKind.EXHAUST_MEMORY, lasts=False),
        Fault(
            word="fill-shm",
            kind=ErrandKind.FILL_SHM,
            lasts=True,
            measure=Measure(what="how full, in percent", low=1, high=100, default=100),
        ),
        Fault(
            word="slow",
            kind=ErrandKind.SLOW_DOWN,
            lasts=True,
            measure=Measure(what="what is left of its CPU, in percent", low=1, high=99, default=10),
        ),
        Fault(word="cut-off", kind=ErrandKind.CUT_OFF, lasts=True),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault for one task, with all its numbers."""

    word: str
    task: str
    seconds: float | None  # None: it is over at once
    amount: float | None

    @property
    def kind(self) -> ErrandKind:
        """Return what the node is asked for."""
        return FAULTS[self.word].kind

    @property
    def text(self) -> str:
        """Say it in half a sentence."""
        parts = [f"{self.word} of {self.task}"]
        measure = FAULTS[self.word].measure
        if measure is not None and self.amount is not None:
            parts.append(f"({measure.what}: {self.amount:g})")
        if self.seconds is not None:
            parts.append(f"for {duration_text(round(self.seconds * 1000))}")
        return " ".join(parts)


def injection(word: str, task: str, *, seconds: float | None, amount: float | None) -> Injection:
    """Return a fault with what was left out filled in, or raise Invalid."""
    fault = FAULTS.get(word)
    if fault is None:
        raise Invalid(f"there is no fault called {word!r}; there are {', '.join(FAULTS)}")
    if not fault.lasts and seconds is not None:
        raise Invalid(f"{word} is over at once: leave out for how long")
    if seconds is not None and not 0 < seconds <= SECONDS_MAX:
        raise Invalid(f"a fault lasts more than 0 and at most {SECONDS_MAX:,.0f} seconds, not {seconds:g}")
    return Injection(
        word=word,
        task=task,
        seconds=(seconds or SECONDS_DEFAULT) if fault.lasts else None,
        amount=_amount(fault, amount),
    )


def picks(seed: int, job_name: str, tasks: Sequence[str], words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (fault, task) for ever: the same for the same seed and job, whatever became of the job."""
    dice = random.Random(f"{seed}/{job_name}")  # noqa: S311 - meant to be repeated
    while True:
        yield dice.choice(words), dice.choice(tasks)


def _amount(fault: Fault, amount: float | None) -> float | None:
    measure = fault.measure
    if measure is None:
        if amount is not None:
            raise Invalid(f"{fault.word} has no amount: leave it out")
        return None
    if amount is None:
        return measure.default
    if not measure.low <= amount <= measure.high:
        may_be = f"{measure.what}, {measure.low:g} to {measure.high:g}"
        raise Invalid(f"the amount of {fault.word} is {may_be}, not {amount:g}")
    return amount
