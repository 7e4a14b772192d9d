"""Knows every task of this node and moves each from order to end; refuses to know HTTP and sensors' insides.

All methods run in the loop's thread. What may take long (staging, uploads, cleaning up) goes to workers,
which come back through the loop. A task's files are written before the step they tell of, so that an agent
killed anywhere goes on from them.
"""

import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Protocol

from trackside.agent import lost, tree
from trackside.agent.cgroup import Cgroups
from trackside.agent.launcher import Launcher
from trackside.agent.layout import GONE, is_plain
from trackside.agent.loop import Loop
from trackside.agent.plan import TMP_PREFIX, Node, direct, make_plan, make_work_dir
from trackside.agent.record import ExitRecord
from trackside.agent.stage import Staged, StagingError
from trackside.agent.state import TaskFiles
from trackside.collect.probe import CgroupDirs, ExitTotals, TaskProbe
from trackside.domain.event import Level
from trackside.domain.exchange import (
    EndCause,
    Ended,
    Launch,
    Noted,
    Orders,
    Report,
    Started,
    Stop,
    TaskKey,
)

GONE_REMEMBERED_MAX = 100_000
LAUNCH_TRIES_MAX = 3
LOOK_AGAIN_SECONDS = 0.01
LOG_DISK_FREE_BYTES_MIN = 64 * 1024
LOG_TRUNCATED = "log truncated: the disk was full"

_log = logging.getLogger(__name__)


class Outputs(Protocol):
    """What takes care of a task's outputs."""

    def begin(self, launch: Launch, staged: Staged) -> None:
        """Begin to upload what the task writes."""
        ...

    def finish(self, launch: Launch) -> str | None:
        """Upload the rest; return what could not be uploaded. Blocks."""
        ...


class Meters(Protocol):
    """What measures tasks."""

    def add(self, probe: TaskProbe) -> None:
        """Measure a task from now on."""
        ...

    def remove(self, key: TaskKey, at_ms: int, totals: ExitTotals | None) -> tuple[Report, ...]:
        """Measure it no longer; return the last of its measurements."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Everything the tasks need from the rest of the agent."""

    node: Node
    ip: str
    loop: Loop
    launcher: Launcher
    cgroups: Cgroups
    workers: Executor
    report: Callable[..., None]
    stage: Callable[[Launch], Staged]
    outputs: Outputs
    meters: Meters


@dataclass(slots=True, eq=False)
class _Task:
    """What is known of one task while the agent lives."""

    key: TaskKey
    files: TaskFiles
    launch: Launch | None = None
    stop: Stop | None = None
    staged: Staged | None = None
    dirs: CgroupDirs | None = None
    doorbell: socket.socket | None = None
    pidfd: int | None = None
    main_process: tuple[int, int | None] | None = None
    started_told: bool = False
    truncated_told: bool = False
    tries: int = 0
    ended: bool = False
    cleaning: bool = False


class Tasks:
    """All tasks of this node."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._tasks: dict[TaskKey, _Task] = {}
        # An answer with orders may be older than the end it does not know of yet.
        self._gone: OrderedDict[TaskKey, None] = OrderedDict()

    # --- orders

    def take(self, orders: Orders) -> None:
        """Act on orders; each may come any number of times. Stops first: they forbid a start."""
        for stop in orders.stop:
            self._take_stop(stop)
        for launch in orders.launch:
            self._take_launch(launch)

    def _take_launch(self, launch: Launch) -> None:
        key = launch.key
        if key in self._tasks or key in self._gone:
            return
        task = self._new(key)
        task.launch = launch
        if not is_plain(key):
            self._end(task, _short(task, EndCause.CANNOT_START, "the task's name is not a plain name"))
            return
        try:
            task.files.save_order(launch)
        except OSError as error:
            self._end(task, _short(task, EndCause.CANNOT_START, _disk_words(error)))
            return
        self._stage(task)

    def _take_stop(self, stop: Stop) -> None:
        if stop.key in self._gone or not is_plain(stop.key):
            return
        task = self._tasks.get(stop.key)
        if task is None:
            task = self._new(stop.key)
            task.stop = stop
            self._end(task, _short(task, EndCause.NOT_STARTED, "stopped before it was started"))
            return
        if task.ended or task.stop == stop:
            return
        task.stop = stop
        try:
            task.files.save_stop(stop)
        except OSError as error:  # the signal below still tells a shim; only the grace may be another one
            _log.warning("a stop order could not be written down: %s", error)
        self._signal(task)

    def _new(self, key: TaskKey) -> _Task:
        task = _Task(key, TaskFiles(self._tools.node.layout.state_dir(key)))
        self._tasks[key] = task
        return task

    # --- start

    def _stage(self, task: _Task) -> None:
        launch = task.launch
        assert launch is not None
        try:
            task_dir = make_work_dir(self._tools.node, launch)
        except OSError as error:
            self._end(task, _short(task, EndCause.CANNOT_START, _disk_words(error)))
            return
        staged = direct(launch, task_dir)
        if staged is not None:  # nothing to fetch: no need to change threads
            self._staged(task, staged)
            return
        self._tools.workers.submit(self._stage_in_worker, task, launch)

    def _stage_in_worker(self, task: _Task, launch: Launch) -> None:
        outcome = self._try_stage(launch)
        self._tools.loop.call(lambda: self._staged(task, outcome))

    def _try_stage(self, launch: Launch) -> Staged | StagingError:
        try:
            return self._tools.stage(launch)
        except StagingError as error:
            return error

    def _staged(self, task: _Task, outcome: Staged | StagingError) -> None:
        if task.stop is not None:
            self._end(task, _short(task, EndCause.NOT_STARTED, "stopped before its process began"))
        elif isinstance(outcome, StagingError):
            self._end(task, _short(task, EndCause.STAGING_FAILED, str(outcome)))
        else:
            self._start(task, outcome)

    def _start(self, task: _Task, staged: Staged) -> None:
        """Ask the forker for the task's shim."""
        launch, tools = task.launch, self._tools
        assert launch is not None
        task.tries += 1
        task.staged = staged
        try:
            if direct(launch, staged.working_dir) is None:
                task.files.save_staged(staged)
            task.dirs = tools.cgroups.create(str(task.key), launch.resources)
            tmp_dir = task.files.tmp_dir() or self._make_tmp_dir()
            task.files.save_plan(make_plan(tools.node, launch, staged, task.dirs, tmp_dir))
            doorbell = tools.launcher.launch(task.files.directory)
        except OSError as error:
            self._end(task, _short(task, EndCause.CANNOT_START, _disk_words(error)))
            return
        task.doorbell = doorbell
        tools.loop.watch(doorbell.fileno(), lambda: self._rung(task))

    def _make_tmp_dir(self) -> str:
        # Not below the task's directory: paths there are too long for Unix sockets, which programs put here.
        made = tempfile.mkdtemp(prefix=TMP_PREFIX)
        who = self._tools.node.who
        if who.drop:
            os.chown(made, who.uid, who.gid)
        return made

    def _rung(self, task: _Task) -> None:
        """Hear that a shim has begun, or that it never will."""
        assert task.doorbell is not None
        self._tools.loop.unwatch(task.doorbell.fileno())
        task.doorbell.close()
        task.doorbell = None
        self._look(task)

    # --- watch

    def _look(self, task: _Task) -> None:
        """Find out by its files how a task stands: the one way, after a start, an exit, a restart."""
        if task.ended or task.cleaning or task.pidfd is not None:
            return
        shim_pid = task.files.shim_pid()
        if shim_pid is not None:
            self._hold(task, shim_pid)
            return
        self._tell_started(task)
        left = task.files.exit()
        if left is not None:
            self._exited(task, left)
        elif task.files.claimed():
            self._lost(task)
        else:
            self._never_claimed(task)

    def _hold(self, task: _Task, shim_pid: int) -> None:
        """Watch a living shim."""
        try:
            pidfd = os.pidfd_open(shim_pid)
        except ProcessLookupError:
            self._tools.loop.call(lambda: self._look(task))
            return
        if task.files.shim_pid() != shim_pid:  # it ended and its number may name another process
            os.close(pidfd)
            self._tools.loop.call(lambda: self._look(task))
            return
        task.pidfd = pidfd
        self._tools.loop.watch(pidfd, lambda: self._shim_ended(task))
        if task.stop is not None:
            self._signal(task)
        self._await_started(task, shim_pid)

    def _await_started(self, task: _Task, shim_pid: int) -> None:
        if task.pidfd is None or task.ended:
            return
        if not self._tell_started(task):  # only after an agent's restart in the middle of a start
            self._tools.loop.call_later(LOOK_AGAIN_SECONDS, lambda: self._await_started(task, shim_pid))
            return
        assert task.launch is not None
        launch = task.launch
        self._tools.meters.add(
            TaskProbe(
                key=task.key,
                shim_pid=shim_pid,
                resources=launch.resources,
                cards=launch.cards,
                cgroup=task.dirs,
            )
        )
        if task.staged is not None:
            self._tools.outputs.begin(launch, task.staged)

    def _tell_started(self, task: _Task) -> bool:
        started = task.files.started()
        if started is None:
            return False
        if not task.started_told:
            task.started_told = True
            if started["boot_id"] == tree.boot_id():
                task.main_process = (started["pid"], started["start_ticks"])
            told = Started(key=task.key, at_ms=started["at_ms"], pid=started["pid"], ip=self._tools.ip)
            self._tools.report(Report(seq=0, started=told))
        return True

    def _shim_ended(self, task: _Task) -> None:
        assert task.pidfd is not None
        self._tools.loop.unwatch(task.pidfd)
        os.close(task.pidfd)
        task.pidfd = None
        self._look(task)

    def _signal(self, task: _Task) -> None:
        if task.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(task.pidfd, signal.SIGTERM)

    def _never_claimed(self, task: _Task) -> None:
        """Start again what no shim took: the forker died, or the agent before it could ask."""
        if task.stop is not None:
            self._end(task, _short(task, EndCause.NOT_STARTED, "stopped before its process began"))
        elif task.tries >= LAUNCH_TRIES_MAX:
            message = "the process that starts tasks failed repeatedly: see forker.log in the data directory"
            self._end(task, _short(task, EndCause.CANNOT_START, message))
        else:
            staged = task.files.staged()
            self._stage(task) if staged is None else self._start(task, staged)

    # --- end

    def _exited(self, task: _Task, left: ExitRecord) -> None:
        ended = Ended(
            key=task.key,
            at_ms=left["at_ms"],
            cause=EndCause(left["cause"]),
            exit_code=left["exit_code"],
            signal=left["signal"],
            duration_ms=left["duration_ms"],
            ended_boot_ms=left["ended_boot_ms"],
            stopped_by_us=left["stop_asked"],
            oom_killed=left["oom_kills"] > 0,
            memory_peak_bytes=left["memory_peak_bytes"],
            message=left["message"],
        )
        totals = ExitTotals(
            cpu_seconds=left["cpu_seconds"],
            max_rss_bytes=left["max_rss_bytes"],
            read_bytes=left["read_bytes"],
            write_bytes=left["write_bytes"],
            ended_boot_ms=left["ended_boot_ms"],
        )
        self._finish(task, ended, totals)

    def _finish(self, task: _Task, ended: Ended, totals: ExitTotals | None) -> None:
        """Upload what is left, if there is anything to upload, and then tell the end."""
        launch = task.launch
        assert launch is not None
        self.check_log_disk([task])
        if ended.cause not in (EndCause.EXITED, EndCause.SHIM_LOST) or not (
            launch.outputs or launch.log_export_url
        ):
            self._end(task, ended, totals)
            return
        if task.cleaning:
            return
        task.cleaning = True
        self._tools.workers.submit(self._upload, task, launch, ended, totals)

    def _upload(self, task: _Task, launch: Launch, ended: Ended, totals: ExitTotals | None) -> None:
        failed = self._tools.outputs.finish(launch)
        if failed is not None:
            self.note(task.key, failed, Level.ERROR)
        self._tools.loop.call(lambda: self._end(task, _with_message(ended, failed), totals))

    def _lost(self, task: _Task) -> None:
        """Clean up after a shim that was killed; the task has ended once nothing of it is left."""
        task.cleaning = True
        self._tools.workers.submit(self._clean, task)

    def _clean(self, task: _Task) -> None:
        tools = self._tools
        try:
            lost.clean(
                str(task.key),
                cgroups=tools.cgroups,
                launcher=tools.launcher,
                main_process=task.main_process,
            )
        except OSError as error:
            _log.warning("cleaning up after %s failed and is tried again: %s", task.key, error)
            tools.loop.call(lambda: tools.loop.call_later(1.0, lambda: self._lost(task)))
            return
        tools.loop.call(lambda: self._cleaned(task))

    def _cleaned(self, task: _Task) -> None:
        task.cleaning = False
        message = "the task's parent process was killed; its processes were ended, its exit code is unknown"
        self._finish(task, _short(task, EndCause.SHIM_LOST, message), None)

    def _end(self, task: _Task, ended: Ended, totals: ExitTotals | None = None) -> None:
        """Tell the end, the last measurements before it."""
        if task.ended:
            return
        task.ended = True
        try:
            if is_plain(task.key):
                task.files.save_ended(ended)
        except OSError as error:  # told from memory; after a crash it is found out again
            _log.warning("the end of %s could not be written down: %s", task.key, error)
        last = self._tools.meters.remove(task.key, ended.at_ms, totals)
        self._tools.report(*last, Report(seq=0, ended=ended))

    def forget(self, keys: list[TaskKey]) -> None:
        """Remove what is left of tasks whose end the server knows; the logs stay."""
        for key in keys:
            task = self._tasks.pop(key, None)
            self._gone[key] = None
            if task is not None and is_plain(key):
                self._tools.workers.submit(self._remove, task)
        while len(self._gone) > GONE_REMEMBERED_MAX:
            self._gone.popitem(last=False)

    def _remove(self, task: _Task) -> None:
        tools = self._tools
        work_dir = tools.node.layout.work_dir(task.key)
        tmp_dir = task.files.tmp_dir()
        shutil.rmtree(work_dir, ignore_errors=True)
        for directory in (work_dir.parent, work_dir.parent.parent):
            try:
                directory.rmdir()
            except OSError:  # another task's, or another attempt's
                break
        if tmp_dir is not None and os.path.basename(tmp_dir).startswith(TMP_PREFIX):
            shutil.rmtree(tmp_dir, ignore_errors=True)
        tools.cgroups.remove(str(task.key))
        task.files.remove()

    # --- the rest

    def adopt(self, told: set[TaskKey]) -> None:
        """Go on with what an earlier agent left; `told` are the ends that wait to be sent already."""
        for directory in sorted(self._tools.node.layout.tasks_dir.iterdir()):
            if directory.name.startswith(GONE):
                shutil.rmtree(directory, ignore_errors=True)
            else:
                self._adopt(TaskFiles(directory), told)

    def _adopt(self, files: TaskFiles, told: set[TaskKey]) -> None:
        ended, launch = files.ended(), files.order()
        if ended is not None:
            task = self._new(ended.key)
            task.launch, task.ended = launch, True
            if ended.key not in told:
                self._tools.report(Report(seq=0, ended=ended))
            return
        if launch is None:  # the order was never written down: it comes again
            files.remove()
            return
        task = self._new(launch.key)
        task.launch, task.stop, task.staged = launch, files.stop(), files.staged()
        dirs = self._tools.cgroups.dirs(str(task.key))
        task.dirs = dirs if dirs.unified or dirs.memory else None
        self._look(task)

    def check_log_disk(self, tasks: list[_Task] | None = None) -> None:
        """Say of running tasks when the disk of their logs is full."""
        looked_at = [task for task in self._tasks.values() if task.pidfd is not None]
        looked_at = tasks if tasks is not None else looked_at
        try:
            disk = os.statvfs(self._tools.node.layout.logs_dir)
        except OSError:
            return
        if not looked_at or disk.f_bavail * disk.f_frsize >= LOG_DISK_FREE_BYTES_MIN:
            return
        for task in looked_at:
            if not task.truncated_told:
                task.truncated_told = True
                self.note(task.key, LOG_TRUNCATED, Level.WARNING)

    def note(self, key: TaskKey, message: str, level: Level) -> None:
        """Tell something about a task; may be called from any thread."""
        self._tools.report(Report(seq=0, noted=Noted(key=key, at_ms=_now_ms(), message=message, level=level)))

    @property
    def any_key(self) -> TaskKey | None:
        """Return the key of some task that is not over."""
        return next((key for key, task in self._tasks.items() if not task.ended), None)


def _short(task: _Task, cause: EndCause, message: str) -> Ended:
    """Return the end of a task that left no exit status."""
    return Ended(
        key=task.key,
        at_ms=_now_ms(),
        cause=cause,
        stopped_by_us=task.stop is not None,
        ended_boot_ms=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
        message=message,
    )


def _with_message(ended: Ended, message: str | None) -> Ended:
    return ended if message is None else replace(ended, message=message)


def _disk_words(error: OSError) -> str:
    why = error.strerror or str(error)
    return f"the node could not prepare the task: {why}. Check the disk of its data directory"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
