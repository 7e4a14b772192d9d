"""Knows when a job's own metrics are read and what is told of them; refuses to know how one is read.

Methods run in the loop's thread. Each reading has a thread of its own, and a source at most one reading
under way: one that hangs delays neither the others nor the sensors. Each kind of trouble of a source is told
once in a task's life; that there is nothing yet is no trouble while the task is young.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trackside.agent.custom_sources import (
    FAILED,
    NOT_OPEN,
    LogReader,
    Reader,
    SourceFailed,
    TaskIsOver,
    make_reader,
)
from trackside.agent.insider import Insider
from trackside.agent.layout import Layout
from trackside.agent.loop import Loop
from trackside.agent.matching import Matcher
from trackside.agent.state import TaskFiles
from trackside.agent.task import now_ms
from trackside.collect.custom import Problem, Read, TaskSeries
from trackside.collect.probe import TaskProbe
from trackside.domain.event import Level
from trackside.domain.exchange import Measured, Noted, Report, TaskKey
from trackside.domain.readings import readings_of

PERIOD_SECONDS = 15.0
FIRST_SECONDS = 2.0  # after the task's start: short jobs have metrics too
SOURCES_PER_TASK_MAX = 32
# A program takes its time until it opens its port or writes its file: so many readings may fail before that
# is told, unless the task ends first.
PATIENCE_READINGS = 2
NOT_YET = frozenset({NOT_OPEN, FAILED})

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Source:
    """One source of one task, and how it stands."""

    key: TaskKey
    reader: Reader
    busy: bool = False
    over: bool = False  # the task has ended, or cannot be read any more
    last_ms: int | None = None  # when the task ended: there is a last reading to be made
    told: set[str] = field(default_factory=set)
    patience: int = PATIENCE_READINGS
    untold: Problem | None = None


class CustomMetrics:
    """Read the own metrics of all tasks of a node."""

    def __init__(
        self,
        loop: Loop,
        layout: Layout,
        report: Callable[..., None],
        *,
        owner: tuple[int, int] | None = None,
        period_seconds: float = PERIOD_SECONDS,
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        self._loop = loop
        self._layout = layout
        self._report = report
        self._period_seconds = period_seconds
        self._first_seconds = first_seconds
        self._owner = owner
        self._matchers: dict[TaskKey, Matcher] = {}
        self._insider = Insider()
        self._sources: dict[TaskKey, list[_Source]] = {}
        self._closed = threading.Event()

    def add(self, probe: TaskProbe) -> None:
        """Read the task's own metrics from now on, if it has any."""
        if probe.key in self._sources or not (probe.custom_metrics or probe.log_patterns):
            return
        key, series = probe.key, TaskSeries(probe.key)
        files = TaskFiles(self._layout.state_dir(key))
        readers: list[Reader] = [
            make_reader(source, probe, self._insider, files, series)
            for source in probe.custom_metrics[:SOURCES_PER_TASK_MAX]
        ]
        _tell_apart(readers)
        if probe.log_patterns:
            patterns = probe.log_patterns[:SOURCES_PER_TASK_MAX]
            # One for each task: expressions that take for ever cost nobody else's log a second.
            matcher = self._matchers[key] = Matcher(self._owner)
            readers.append(LogReader(patterns, self._layout.log_file(key), matcher, series))
        self._sources[key] = [_Source(key, reader) for reader in readers]
        for source in self._sources[key]:
            self._loop.call_later(self._first_seconds, lambda source=source: self._due(source))  # type: ignore[misc]

    def remove(self, key: TaskKey, at_ms: int) -> None:
        """Read them no longer; what the task printed last is still searched, as of its end."""
        for source in self._sources.pop(key, ()):
            source.over = True
            source.reader.cancel()
            if source.untold is not None:
                self._say(source, [source.untold])
            if isinstance(source.reader, LogReader):
                source.last_ms = at_ms
                if not source.busy:
                    self._submit(source)

    def close(self) -> None:
        """End all readings and their processes."""
        self._closed.set()
        for sources in self._sources.values():
            for source in sources:
                source.over = True
                source.reader.cancel()
        for matcher in self._matchers.values():
            matcher.close()
        self._insider.close()

    def _due(self, source: _Source) -> None:
        if source.over or self._closed.is_set():
            return
        if not source.busy:
            self._submit(source)
        self._loop.call_later(self._period_seconds, lambda: self._due(source))

    def _submit(self, source: _Source) -> None:
        source.busy = True
        threading.Thread(
            target=self._read_in_thread, args=(source, source.last_ms), name="custom", daemon=True
        ).start()

    def _read_in_thread(self, source: _Source, last_ms: int | None) -> None:
        outcome: Read | None = None
        try:
            outcome = source.reader.read(last_ms)
        except SourceFailed as error:
            outcome = Read([], [error.problem])
        except TaskIsOver:
            pass
        except Exception:
            if not self._closed.is_set():
                _log.exception("a source of custom metrics failed; the others go on")
        if not self._closed.is_set():
            self._loop.call(lambda: self._read(source, last_ms, outcome))

    def _read(self, source: _Source, last_ms: int | None, outcome: Read | None) -> None:
        source.busy = False
        if outcome is not None and (not source.over or source.last_ms is not None):
            self._tell(source, outcome)
        if source.last_ms is not None and last_ms is None:  # the task ended while it was read
            self._submit(source)
        elif last_ms is not None:
            self._matchers.pop(source.key).close()

    def _tell(self, source: _Source, outcome: Read) -> None:
        if outcome.samples:
            self._report(Report(seq=0, measured=Measured(readings=readings_of(outcome.samples))))
        source.untold = None
        if source.patience > 0 and outcome.problems and outcome.problems[0].kind in NOT_YET:
            source.patience -= 1
            source.untold = outcome.problems[0]
            return
        source.patience = 0
        self._say(source, outcome.problems)

    def _say(self, source: _Source, problems: Sequence[Problem]) -> None:
        """Tell the job's owner of troubles, each kind once."""
        for problem in problems:
            if problem.kind not in source.told:
                source.told.add(problem.kind)
                message = f"custom metrics: {source.reader.name} {problem.text}"
                noted = Noted(key=source.key, at_ms=now_ms(), message=message, level=Level.WARNING)
                self._report(Report(seq=0, noted=noted))


def _tell_apart(readers: Sequence[Reader]) -> None:
    """Give sources that are called alike the place they have in the job's list."""
    names = Counter(reader.name for reader in readers)
    for place, reader in enumerate(readers):
        if names[reader.name] > 1:
            reader.name = f"{reader.name} (custom_metrics[{place}])"
