"""A process that stands in for a task's, with a task's files, and what reads its own metrics."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackside.agent import record, tree
from trackside.agent.custom import CustomMetrics
from trackside.agent.custom_sources import CommandReader
from trackside.agent.insider import Insider
from trackside.agent.layout import Layout
from trackside.agent.loop import Loop
from trackside.agent.state import TaskFiles
from trackside.collect.custom import TaskSeries
from trackside.collect.probe import TaskProbe
from trackside.domain.exchange import Report, TaskKey
from trackside.domain.job import JobId, MetricSource, TaskName
from trackside.domain.metric import Sample
from trackside.domain.resources import Resources

KEY = TaskKey(JobId("job"), 1, TaskName("worker-0"))
DEADLINE_SECONDS = 30.0
EVIL_LINE = "a" * 40 + "b"


class TaskStandIn:
    """A task's files, and a process that is its main one."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self.files = TaskFiles(self.layout.state_dir(KEY))
        self.files.directory.mkdir(parents=True)
        self.log = self.layout.log_file(KEY)
        self.log.parent.mkdir(parents=True)
        self.work = root / "work"
        self.work.mkdir()
        self.series = TaskSeries(KEY)
        self.insider = Insider()
        self.main: subprocess.Popen[str] | None = None

    def begin(self, *command: str) -> "subprocess.Popen[str]":
        main = self.main = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        plan = {
            "key": str(KEY),
            "env": {"PATH": os.environ["PATH"], "JOBS_OWN": "yes", tree.KEY_VARIABLE: str(KEY)},
            "cwd": str(self.work),
            "user": None,
            "covers": [],
            "cgroup_joins": [],
            "cgroup_unified": None,
        }
        (self.files.directory / record.PLAN).write_text(json.dumps(plan))
        started = {
            "pid": main.pid,
            "start_ticks": tree.start_ticks(main.pid),
            "boot_id": tree.boot_id(),
            "at_ms": 1,
        }
        (self.files.directory / record.STARTED).write_bytes(record.line(started))
        return main

    def command(self, *command: str) -> CommandReader:
        return CommandReader(command, self.insider, self.files, self.series)

    def probe(self, *sources: MetricSource, patterns: tuple[tuple[str, str], ...] = ()) -> TaskProbe:
        given = Resources(cpu_cores=1, memory_bytes=1)
        return TaskProbe(
            key=KEY, shim_pid=os.getpid(), resources=given, custom_metrics=sources, log_patterns=patterns
        )

    def end(self) -> None:
        main, self.main = self.main, None
        if main is not None:
            main.kill()
            main.communicate()


class Node:
    """Custom metrics on a loop that runs in a thread."""

    def __init__(self, task: TaskStandIn, period_seconds: float = 0.05) -> None:
        self.loop = Loop()
        self.reports: list[Report] = []
        self.custom = CustomMetrics(
            self.loop, task.layout, self._report, period_seconds=period_seconds, first_seconds=0.01
        )
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def _report(self, *reports: Report) -> None:
        self.reports.extend(reports)

    def samples(self, metric: str) -> list[Sample]:
        reports = list(self.reports)
        return [s for r in reports if r.measured for s in r.measured.each() if s.metric == metric]

    def notes(self) -> list[str]:
        return [report.noted.message for report in list(self.reports) if report.noted]

    def close(self) -> None:
        self.loop.call(lambda: (self.custom.close(), self.loop.stop()))
        self.thread.join(DEADLINE_SECONDS)
        self.loop.close()


def until(what: Callable[[], Any]) -> Any:
    """Return what there is once there is something."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := what()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
    return found


def name_of(pid: int) -> str | None:
    """Return what a process is called; None if it is gone."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        text = stat.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if " Z " in text else Path(f"/proc/{pid}/comm").read_text().strip()
