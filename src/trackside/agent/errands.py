"""Knows which errands this node was sent on, does each once, and undoes what is to last only for a while.

What is begun is written down in the task's directory before it is begun: an agent that was killed in the
middle undoes it when it is back, and never does it twice. All methods run in the loop's thread; handlers run
in workers. Refuses to know what the errands do: that is in a table of handlers.
"""

import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice

from trackside.agent import tree
from trackside.agent.endings import submit
from trackside.agent.loop import Loop
from trackside.agent.orders import UNKNOWN
from trackside.agent.state import ErrandRecord, TaskFiles
from trackside.agent.task import now_ms
from trackside.collect.probe import CgroupDirs
from trackside.domain.event import Level
from trackside.domain.exchange import Answered, Errand, ErrandKind, Noted, Report, TaskKey
from trackside.domain.resources import Resources

REMEMBERED_MAX = 10_000
KEPT_PER_TASK_MAX = 64
HARM_TOLD_MAX = 8
HARM_LINGERS_SECONDS = 60.0  # what was over for longer did not end a task
ANSWER_AGAIN_SECONDS = 5.0
ANSWER_KEPT_CHARS_MAX = 2000

NOT_RUNNING = "the task does not run on this node"
INTERRUPTED = "the agent was restarted in the middle of it; what lasts was undone and it is not tried again"
UNDER_WAY = "one of this kind is under way: wait until it is over"
_UNEXPECTED = "an unexpected error, see agent.log in the data directory"
_log = logging.getLogger(__name__)


class Cannot(Exception):
    """This errand cannot be done here, and nothing of it was; the text is for whoever asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The running task an errand is about."""

    key: TaskKey
    files: TaskFiles
    shim_pid: int
    main_pid: int
    main_ticks: int | None
    dirs: CgroupDirs | None
    resources: Resources

    def processes(self) -> set[int]:
        """Return every living process of the task; its shim is none of them."""
        if self.files.shim_pid() != self.shim_pid:  # it has ended, and its number may name another process
            return set()
        return tree.descendants([self.shim_pid])

    @property
    def alive(self) -> bool:
        """Say whether the task's main process still runs."""
        same = tree.start_ticks(self.main_pid) == self.main_ticks
        return same and tree.state(self.main_pid) not in (*"ZX", None)


def _nothing(errand: Errand, target: Target) -> None:
    del errand, target


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """How one kind of errand is done, and undone where it lasts. `undo` may find nothing left to undo."""

    do: Callable[[Errand, Target], str]  # returns what was found or done; raises Cannot
    undo: Callable[[Errand, Target], None] = _nothing
    lasts: bool = False  # until `undo`
    seconds_max: float = 20.0  # for `do`


@dataclass(slots=True, eq=False)
class _Known:
    """An errand that was taken; `target` is set from when it may have begun until it is over."""

    errand: Errand
    answer: Answered | None = None
    told_at: float = 0.0
    answered: bool = False  # also by an earlier agent, whose words are in the spool or with the server
    target: Target | None = None
    back: bool = False  # its handler has come back
    refused: bool = False  # nothing of it was done
    over_at: float | None = None

    @property
    def harms(self) -> bool:
        """Say whether the task may have ended because of this."""
        if self.errand.kind == ErrandKind.STACKS or self.refused:
            return False
        return self.over_at is None or time.monotonic() - self.over_at < HARM_LINGERS_SECONDS

    @property
    def words(self) -> str:
        """Return what was done, for the evidence of the task's end."""
        told = f": {self.answer.text}" if self.answer is not None else ""
        return f"injected on purpose: {in_words(self.errand.kind)}{told}"


class Errands:
    """Take errands, answer them, undo them."""

    def __init__(
        self,
        *,
        loop: Loop,
        workers: Executor,
        menders: Executor,
        report: Callable[..., None],
        handlers: Mapping[str, Handler],
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._menders = menders  # apart, so that no slow errand keeps another one from being undone
        self._report = report
        self._handlers = handlers
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._of_task: dict[TaskKey, list[_Known]] = {}

    def take(self, errand: Errand, target: Target | None) -> None:
        """Do an errand; one that was taken before is only answered again, after a while."""
        if self._taken(errand.id):
            return
        handler = self._handlers.get(errand.kind)
        if handler is None:
            self.refuse(errand, UNKNOWN)
            return
        known = self._remember(errand)
        if target is None:
            self._answer(known, done=False, text=NOT_RUNNING)
            return
        if handler.lasts and self._lasts(target.key, errand.kind):
            self._answer(known, done=False, text=UNDER_WAY)
            return
        known.target = target
        self._keep(target.key, known)
        try:
            self._write_down(target)
        except OSError as error:
            known.target = None
            self._answer(known, done=False, text=f"it could not be written down: {error.strerror}")
            return
        self._begin(known, handler, target)

    def refuse(self, errand: Errand, why: str) -> None:
        """Answer that an errand is not done."""
        if not self._taken(errand.id):
            self._answer(self._remember(errand), done=False, text=why)

    def recall(self, key: TaskKey, files: TaskFiles) -> None:
        """Remember what an earlier agent did to a task."""
        for record in files.errands():
            known = self._remember(record.errand)
            known.answered, known.back, known.refused = record.answered, True, record.refused
            known.over_at = time.monotonic() if record.over else None
            self._keep(key, known)

    def adopt(self, target: Target) -> None:
        """Undo what an earlier agent left undone of a task that still runs, and answer what it did not."""
        for known in self._of_task.get(target.key, []):
            if known.over_at is None:
                known.target = target
            self._answer(known, done=False, text=INTERRUPTED)
            self._end(known, note="the agent was restarted")

    def task_ended(self, key: TaskKey) -> tuple[str, ...]:
        """Let go of all that was done to a task; return in words what was done to harm it."""
        taken = self._of_task.pop(key, [])
        harm = tuple(known.words for known in taken if known.harms)
        for known in taken:
            self._end(known, note=None)
        return harm[-HARM_TOLD_MAX:]

    def close(self) -> None:
        """Undo everything at once: nobody will do it later."""
        for known in self._known.values():
            if known.target is not None:
                try:
                    self._handlers[known.errand.kind].undo(known.errand, known.target)
                except OSError as error:  # the next agent finds it written down, and tries
                    _log.warning("%s could not be undone: %s", in_words(known.errand.kind), error)

    def _taken(self, errand_id: str) -> bool:
        """Say whether an errand was taken before; a kept answer is told again after a while."""
        known = self._known.get(errand_id)
        if known is None:
            return False
        if known.answer is not None and time.monotonic() - known.told_at > ANSWER_AGAIN_SECONDS:
            self._tell(known, known.answer)
        return True

    def _lasts(self, key: TaskKey, kind: str) -> bool:
        return any(one.errand.kind == kind and one.target is not None for one in self._of_task.get(key, ()))

    def _begin(self, known: _Known, handler: Handler, target: Target) -> None:
        def do_in_worker() -> None:
            self._loop.call(lambda: self._loop.call_later(handler.seconds_max, lambda: self._late(known)))
            outcome = _outcome(handler, known.errand, target)
            self._loop.call(lambda: self._came_back(known, outcome))

        submit(
            self._workers,
            do_in_worker,
            failed=lambda _: self._loop.call(lambda: self._came_back(known, _Outcome(False, _UNEXPECTED))),
        )

    def _came_back(self, known: _Known, outcome: "_Outcome") -> None:
        known.back = True
        late, target = known.answered, known.target
        if not outcome.begun:
            known.target, known.refused = None, True
        self._answer(known, done=outcome.done, text=outcome.text)
        handler, seconds = self._handlers[known.errand.kind], known.errand.seconds
        if not outcome.begun and target is not None:
            self._undone(known, target, None)
        elif not outcome.done or late or not handler.lasts or known.errand.key not in self._of_task:
            self._end(known, note=None)
        elif seconds is not None:
            self._loop.call_later(seconds, lambda: self._end(known, note="its time is over"))

    def _late(self, known: _Known) -> None:
        seconds = self._handlers[known.errand.kind].seconds_max
        self._answer(known, done=False, text=f"the node was not done with it after {seconds:g} s")

    def _end(self, known: _Known, *, note: str | None) -> None:
        """Undo an errand and forget that it lasts; one whose handler has not come back yet ends then."""
        target = known.target
        if target is None or not known.back:
            return
        known.target, known.over_at = None, time.monotonic()
        handler = self._handlers[known.errand.kind]

        def undo_in_worker() -> None:
            try:
                handler.undo(known.errand, target)
            except OSError:
                if target.alive:  # else all that was to be undone went with the task
                    raise
            self._loop.call(lambda: self._undone(known, target, note if handler.lasts else None))

        submit(self._menders, undo_in_worker)

    def _undone(self, known: _Known, target: Target, note: str | None) -> None:
        if target.key not in self._of_task:  # the task is over: nothing to write down, nothing to tell
            return
        try:
            self._write_down(target)
        except OSError as error:  # it would be undone once more, which harms nothing
            _log.warning("the end of an errand could not be written down: %s", error)
        if note is not None:
            words = f"{in_words(known.errand.kind)} of {target.key.task} undone: {note}"
            said = Noted(key=target.key, at_ms=now_ms(), message=words, level=Level.INFO)
            self._report(Report(seq=0, noted=said))

    def _answer(self, known: _Known, *, done: bool, text: str) -> None:
        if known.answered:
            return
        errand = known.errand
        known.answered = True
        answer = Answered(
            id=errand.id, key=errand.key, kind=errand.kind, at_ms=now_ms(), done=done, text=text
        )
        self._tell(known, answer)
        if len(text) <= ANSWER_KEPT_CHARS_MAX:  # the spool keeps a long one until it is heard
            known.answer = answer
        if known.target is not None:
            with contextlib.suppress(OSError):  # it would only be answered once more
                self._write_down(known.target)

    def _tell(self, known: _Known, answer: Answered) -> None:
        known.told_at = time.monotonic()
        self._report(Report(seq=0, answered=answer))

    def _write_down(self, target: Target) -> None:
        kept = self._of_task.get(target.key, [])
        target.files.save_errands(
            [ErrandRecord(one.errand, one.answered, one.target is None, one.refused) for one in kept]
        )

    def _keep(self, key: TaskKey, known: _Known) -> None:
        """Count an errand among those of its task; the oldest that is over makes room."""
        kept = self._of_task.setdefault(key, [])
        if len(kept) >= KEPT_PER_TASK_MAX:
            over = next((one for one in kept if one.target is None), None)
            kept[:] = [one for one in kept if one is not over]
        kept.append(known)

    def _remember(self, errand: Errand) -> _Known:
        known = self._known[errand.id] = _Known(errand)
        for old in list(islice(self._known, max(0, len(self._known) - REMEMBERED_MAX))):
            if self._known[old].target is None:  # what is under way goes when it is over
                del self._known[old]
        return known


def in_words(kind: str) -> str:
    """Return a kind as a person would write it."""
    return kind.replace("_", " ")


@dataclass(frozen=True, slots=True)
class _Outcome:
    done: bool
    text: str
    begun: bool = True


def _outcome(handler: Handler, errand: Errand, target: Target) -> _Outcome:
    try:
        return _Outcome(True, handler.do(errand, target))
    except Cannot as refusal:
        return _Outcome(False, str(refusal), begun=False)
    except OSError as error:
        return _Outcome(False, f"the system did not let it: {error.strerror or error}")
