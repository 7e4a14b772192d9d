"""Knows when a running job counts as hanging: pure functions from what was measured of its tasks.

A detector is plain data (a HangPolicy and Limits) and judges whatever series it is given: those of a running
job, or those that were recorded of one that is over. It reads no clock: every task is judged by the times of
its own readings, up to the newest, so that neither a node's clock that is wrong nor one that jumps can make a
hang. What was not measured says nothing: a gap in the readings ends what can be said of the time before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from statistics import fmean, median, pvariance

from trackside.domain.fault import HangPolicy, HangRule
from trackside.domain.job import TaskName
from trackside.domain.reason import Certainty, Reason, ReasonCode
from trackside.domain.wording import counted, duration_text

NAMES_TOLD_MAX = 4
EVIDENCE_MAX = 8
FAR_MS = 253_402_300_799_000  # the last second that has a date
HINT = "trackside stacks JOB shows where every task stood at that moment"

Series = Sequence[tuple[int, float]]  # (ms, value), ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The numbers of the rules: MindCluster's where it states some."""

    readings_min: int = 5  # in a window, else it says nothing
    gap_steps_max: float = 3.0  # between two readings, in steps
    use_variance_max: float = 1.0  # of a card's use in percent: below it the use is flat
    use_median_max: float = 1.0  # how far the medians of the window's halves may be apart
    use_idle_percent: float = 5.0  # a card that never does more does nothing
    cpu_seconds_max: float = 5.0  # of a task without cards in a window, and at most
    cpu_share_max: float = 0.05  # of one core: for windows shorter than any job can ask for


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What was measured of one running task since it started, `step_ms` apart."""

    task: TaskName
    step_ms: int
    io_bytes: Series = ()  # what its processes read and wrote, counted up
    log_bytes: Series = ()  # how large its log is
    cpu_cores: Series = ()  # how many it used
    cards: Mapping[int, Series] = field(default_factory=dict)  # the use of each of its cards, in percent
    family: str = ""  # what its cards are called; empty: it has none


class State(StrEnum):
    """What can be said of a task or a job."""

    MOVES = "moves"
    HANGS = "hangs"
    UNSURE = "unsure"  # too little was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a look at a job came to."""

    state: State
    reason: Reason | None = None  # of a hang
    tasks: tuple[TaskName, ...] = ()  # that hang
    everyone: bool = False  # no task of the job moves


@dataclass(frozen=True, slots=True)
class _Flat:
    """How even the use of a card was."""

    median: float
    variance: float
    idle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a look at one task came to."""

    task: TaskName
    state: State
    since_ms: int = 0
    until_ms: int = 0
    flats: tuple[_Flat, ...] = ()  # of its cards
    cpu_seconds: float = 0.0  # of one without cards


def judge(
    courses: Sequence[Course],
    policy: HangPolicy,
    *,
    succeeded: Sequence[tuple[TaskName, int]] = (),
    ended_at_ms: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Finding:
    """Say whether a job hangs.

    `courses` are those of its running tasks; `succeeded` says which of the others exited 0, and when;
    `ended_at_ms` is when the last of them ended.
    """
    if not courses:
        return Finding(state=State.UNSURE)
    if policy.exit_seconds is not None and succeeded:
        late = _exit_hang(courses, succeeded, policy.exit_seconds, limits)
        if late is not None:
            return late
    if policy.rule is HangRule.SILENCE:
        return _silence(courses, policy, ended_at_ms, limits)
    if policy.rule is HangRule.ACTIVITY:
        return _activity(courses, policy, limits)
    return Finding(state=State.MOVES)


def still_since(series: Series, gap_ms: float) -> tuple[int, bool] | None:
    """Return since when a counter has its newest value, and whether it was seen to have another before."""
    if not series:
        return None
    since_ms, last = series[-1]
    for at_ms, value in reversed(series[:-1]):
        if value != last:
            return since_ms, True
        if since_ms - at_ms > gap_ms:
            return since_ms, False
        since_ms = at_ms
    return since_ms, False


def _activity(courses: Sequence[Course], policy: HangPolicy, limits: Limits) -> Finding:
    """Judge by input and output first, and only where these stand still by accelerators or processors."""
    looks = [_look(course, policy.window_seconds * 1000, limits) for course in courses]
    still = [look for look in looks if look.state is State.HANGS]
    moving = sum(look.state is State.MOVES for look in looks)
    if len(still) == len(looks):
        return _found(looks, courses, others=0)
    # Where most wait for a few, those few are slow or busy; the rest has to.
    if still and moving >= len(still):
        return _found(still, courses, others=moving)
    unsure = len(looks) - moving - len(still)
    return Finding(state=State.UNSURE if unsure and (still or not moving) else State.MOVES)


def _look(course: Course, window_ms: int, limits: Limits) -> _Look:
    gap_ms = course.step_ms * limits.gap_steps_max
    known = still_since(course.io_bytes, gap_ms)
    if known is None:
        return _Look(task=course.task, state=State.UNSURE)
    (since_ms, changed), until_ms = known, course.io_bytes[-1][0]
    readings = sum(at_ms >= since_ms for at_ms, _ in course.io_bytes)
    if until_ms - since_ms < window_ms or readings < limits.readings_min:
        return _Look(task=course.task, state=State.MOVES if changed else State.UNSURE)
    window = _Window(until_ms - window_ms, until_ms, gap_ms, limits)
    state, flats, cpu_seconds = window.of_cards(course) if course.family else window.of_cores(course)
    return _Look(
        task=course.task,
        state=state,
        since_ms=since_ms,
        until_ms=until_ms,
        flats=flats,
        cpu_seconds=cpu_seconds,
    )


@dataclass(frozen=True, slots=True)
class _Window:
    """A time in which a task neither read nor wrote."""

    start_ms: int
    end_ms: int
    gap_ms: float
    limits: Limits

    def of_cards(self, course: Course) -> tuple[State, tuple[_Flat, ...], float]:
        """Judge by the use of the task's cards: one that goes up and down works."""
        flats: list[_Flat] = []
        states = {State.UNSURE} if not course.cards else set()
        for series in course.cards.values():
            inside = self._inside(series)
            flat = _evenness(inside, self.limits) if inside else None
            states.add(State.UNSURE if inside is None else State.MOVES if flat is None else State.HANGS)
            flats += [flat] if flat else []
        for state in (State.MOVES, State.UNSURE):
            if state in states:
                return state, (), 0.0
        return State.HANGS, tuple(flats), 0.0

    def of_cores(self, course: Course) -> tuple[State, tuple[_Flat, ...], float]:
        """Judge by the processor time of a task without cards."""
        inside = self._inside(course.cpu_cores)
        if inside is None:
            return State.UNSURE, (), 0.0
        seconds = (self.end_ms - self.start_ms) / 1000
        used = fmean(inside) * seconds
        most = min(self.limits.cpu_seconds_max, self.limits.cpu_share_max * seconds)
        return State.HANGS if used < most else State.MOVES, (), used

    def _inside(self, series: Series) -> list[float] | None:
        """Return the readings of the window; None if they do not cover it."""
        inside = [(at_ms, value) for at_ms, value in series if self.start_ms <= at_ms <= self.end_ms]
        times = [self.start_ms, *(at_ms for at_ms, _ in inside), self.end_ms]
        if len(inside) < self.limits.readings_min or any(b - a > self.gap_ms for a, b in pairwise(times)):
            return None
        return [value for _, value in inside]


def _evenness(use: Sequence[float], limits: Limits) -> _Flat | None:
    """Return how even the use of a card was; None if it changed."""
    half = len(use) // 2
    middle, variance, idle = median(use), pvariance(use), max(use) <= limits.use_idle_percent
    moved = abs(median(use[half:]) - median(use[:half])) > limits.use_median_max
    if not idle and (variance > limits.use_variance_max or moved):
        return None
    return _Flat(middle, variance, idle)


def _found(looks: Sequence[_Look], courses: Sequence[Course], *, others: int) -> Finding:
    since_ms, until_ms = max(look.since_ms for look in looks), min(look.until_ms for look in looks)
    families = {course.task: course.family for course in courses}
    flats = [flat for look in looks for flat in look.flats]
    proof = [_cards_text(families[looks[0].task], flats)] if flats else []
    cpu = [look for look in looks if not look.flats]
    if cpu:
        proof.append(f"{max(look.cpu_seconds for look in cpu):.1f} s of processor time in the window")
    names = tuple(look.task for look in looks)
    who = _who(names, everyone=not others, alone=len(courses) == 1)
    verb = "seems" if len(names) == 1 else "seem"
    rest = f" while {counted(others, 'other')} {'moves' if others == 1 else 'move'}" if others else ""
    lasted = duration_text(max(0, until_ms - since_ms))
    text = (
        f"{who}{verb} to hang since {_when(since_ms)}{rest}: "
        f"no input or output for {lasted} and {' and '.join(proof)}"
    )
    return Finding(
        state=State.HANGS,
        reason=_reason(text, looks, task=names[0] if others else None),
        tasks=names,
        everyone=not others,
    )


def _cards_text(family: str, flats: Sequence[_Flat]) -> str:
    low, high = min(flat.median for flat in flats), max(flat.median for flat in flats)
    middle = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
    variance = max(flat.variance for flat in flats)
    how = "next to nothing" if all(flat.idle for flat in flats) and variance else f"flat at {middle} %"
    return f"{family} use {how} (median {middle}, variance {variance:.1f})"


def _silence(
    courses: Sequence[Course], policy: HangPolicy, ended_at_ms: int | None, limits: Limits
) -> Finding:
    """Judge by the logs alone: all must be silent, and since then no task may have ended."""
    looks = []
    for course in courses:
        known = still_since(course.log_bytes, course.step_ms * limits.gap_steps_max)
        if known is None:
            return Finding(state=State.UNSURE)
        looks.append((course, *known))
    since_ms = max([since for _, since, _ in looks] + [ended_at_ms or 0])
    until_ms = min(course.log_bytes[-1][0] for course in courses)
    few = any(sum(at >= since_ms for at, _ in one.log_bytes) < limits.readings_min for one in courses)
    if until_ms - since_ms < policy.window_seconds * 1000 or few:
        latest = max(looks, key=lambda look: look[1])
        return Finding(state=State.MOVES if latest[2] else State.UNSURE)
    names = tuple(course.task for course in courses)
    who = _who(names, everyone=True, alone=len(courses) == 1)
    verb = "seems" if len(names) == 1 else "seem"
    text = (
        f"{who}{verb} to hang since {_when(since_ms)}: nothing was written to stdout or stderr "
        f"for {duration_text(until_ms - since_ms)}"
    )
    reason = Reason(text=text, code=ReasonCode.HANGED, certainty=Certainty.LIKELY, hint=HINT)
    return Finding(state=State.HANGS, reason=reason, tasks=names, everyone=True)


def _exit_hang(
    courses: Sequence[Course], succeeded: Sequence[tuple[TaskName, int]], seconds: int, limits: Limits
) -> Finding | None:
    """Return the hang of a job that does not end though one of its tasks is done; None: it has time left."""
    first, done_ms = min(succeeded, key=lambda one: one[1])
    watched = min(_watched_ms(course, done_ms, limits) for course in courses)
    if watched < seconds * 1000:
        return None
    names = tuple(course.task for course in courses)
    runs = "runs" if len(names) == 1 else "run"
    text = (
        f"seems to hang at its end since {_when(done_ms)}: {first} succeeded {duration_text(watched)} ago "
        f"and {_listed(names)} still {runs}"
    )
    reason = Reason(text=text, code=ReasonCode.HANGED, certainty=Certainty.LIKELY, hint=HINT)
    return Finding(state=State.HANGS, reason=reason, tasks=names, everyone=True)


def _watched_ms(course: Course, from_ms: int, limits: Limits) -> int:
    """Return for how long since then a task was seen to run without a gap: a clock that jumped is no time."""
    gap_ms = course.step_ms * limits.gap_steps_max
    times = [at_ms for at_ms, _ in course.io_bytes or course.log_bytes]
    if not times:
        return 0
    begin_ms = times[-1]
    for at_ms in reversed(times[:-1]):
        if begin_ms - at_ms > gap_ms:
            break
        begin_ms = at_ms
    return max(0, times[-1] - max(begin_ms, from_ms))


def _who(names: Sequence[TaskName], *, everyone: bool, alone: bool) -> str:
    if alone:
        return ""
    return f"all {counted(len(names), 'task')} " if everyone else f"{_listed(names)} "


def _listed(names: Sequence[TaskName]) -> str:
    rest = len(names) - NAMES_TOLD_MAX
    shown = ", ".join(names[:NAMES_TOLD_MAX])
    return f"{shown} and {rest} more" if rest > 0 else shown


def _reason(text: str, looks: Iterable[_Look], *, task: TaskName | None) -> Reason:
    evidence = tuple(
        f"{look.task}: no input or output since {_when(look.since_ms)}" for look in list(looks)[:EVIDENCE_MAX]
    )
    return Reason(
        text=text,
        code=ReasonCode.HANGED,
        certainty=Certainty.LIKELY,
        task=task,
        evidence=evidence,
        hint=HINT,
    )


def _when(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(min(at_ms, FAR_MS) / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
