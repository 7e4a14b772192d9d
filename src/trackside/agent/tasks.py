"""Knows every task of this node and moves each from order to start to exit; refuses to know HTTP.

All methods run in the loop's thread. A task's files are written before the step they tell of, so that an
agent killed anywhere goes on from them.
"""

import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections import OrderedDict

from trackside.agent import tree
from trackside.agent.endings import Endings, submit
from trackside.agent.errands import Errands, Target
from trackside.agent.exit_order import ExitOrder
from trackside.agent.layout import GONE, is_plain
from trackside.agent.orders import UNKNOWN, Unread
from trackside.agent.plan import TMP_PREFIX, direct, make_plan, make_work_dir
from trackside.agent.shim import GO, PROCESS
from trackside.agent.stage import Staged, StagingError
from trackside.agent.state import TaskFiles
from trackside.agent.task import Task, Tools, disk_words, short_end
from trackside.collect.probe import TaskProbe
from trackside.domain.exchange import EndCause, Launch, Orders, Report, Started, Stop, TaskKey

GONE_REMEMBERED_MAX = 100_000
LAUNCH_TRIES_MAX = 3
NO_SHIM = 0  # of a task that has ended
LOOK_AGAIN_SECONDS = 0.01

_NO_FORKER = "the process that starts tasks failed repeatedly: see forker.log in the data directory"
_UNEXPECTED = "the task's files could not be prepared: an unexpected error, see agent.log"
_log = logging.getLogger(__name__)


class Tasks:
    """All tasks of this node."""

    def __init__(self, tools: Tools, errands: Errands) -> None:
        self._tools = tools
        self._errands = errands
        self._exits = ExitOrder(tools.loop)
        self._endings = Endings(tools, self._exits, errands.task_ended)
        self._tasks: dict[TaskKey, Task] = {}
        # An answer with orders may be older than the end it does not know of yet.
        self._gone: OrderedDict[TaskKey, None] = OrderedDict()

    # --- orders

    def take(self, orders: Orders, unread: Unread | None = None) -> None:
        """Act on orders; each may come any number of times. Stops first: they forbid a start."""
        for stop in orders.stop:
            self._take_stop(stop)
        for launch in orders.launch:
            self._take_launch(launch)
        for errand in orders.errands:
            task = self._tasks.get(errand.key)
            self._errands.take(errand, None if task is None else _target(task))
        if unread is not None:
            self._refuse_unread(unread)

    def _refuse_unread(self, unread: Unread) -> None:
        for key in unread.launches:
            if key not in self._tasks and key not in self._gone:
                self._refuse(self._new(key), EndCause.CANNOT_START, f"its order is {UNKNOWN}")
        for errand in unread.errands:
            self._errands.refuse(errand, UNKNOWN)

    def _take_launch(self, launch: Launch) -> None:
        key = launch.key
        if key in self._tasks or key in self._gone:
            return
        task = self._new(key)
        task.launch = launch
        if not is_plain(key):
            self._refuse(task, EndCause.CANNOT_START, "the task's name is not a plain name")
            return
        try:
            task.files.save_order(launch)
        except OSError as error:
            self._refuse(task, EndCause.CANNOT_START, disk_words(error))
            return
        self._stage(task)

    def _take_stop(self, stop: Stop) -> None:
        if stop.key in self._gone or not is_plain(stop.key):
            return
        task = self._tasks.get(stop.key)
        if task is None:
            task = self._new(stop.key)
            task.stop = stop
            self._refuse(task, EndCause.NOT_STARTED, "stopped before it was started")
            return
        if task.ended or task.stop == stop:
            return
        task.stop = stop
        try:
            task.files.save_stop(stop)
        except OSError as error:  # the signal below still tells a shim; only the grace may be another one
            _log.warning("a stop order could not be written down: %s", error)
        if task.staging:  # what is being fetched is thrown away when it comes
            self._refuse(task, EndCause.NOT_STARTED, "stopped before its process began")
        self._signal(task)

    def _new(self, key: TaskKey) -> Task:
        task = Task(key, TaskFiles(self._tools.node.layout.state_dir(key)))
        self._tasks[key] = task
        return task

    def _refuse(self, task: Task, cause: EndCause, message: str) -> None:
        """End a task that was not begun; a shim that waits for it goes away."""
        if task.doorbell is not None:
            task.doorbell.close()
            task.doorbell = None
        self._endings.end(task, short_end(task, cause, message))

    # --- start

    def _stage(self, task: Task) -> None:
        launch, tools = task.launch, self._tools
        assert launch is not None
        staged = direct(launch, tools.node.layout.work_dir(task.key))
        try:
            if staged is not None:
                task.doorbell = tools.launcher.ask(task.files.directory)
            make_work_dir(tools.node, launch)
        except OSError as error:
            self._refuse(task, EndCause.CANNOT_START, disk_words(error))
            return
        if staged is not None:  # nothing to fetch: no need to change threads
            self._staged(task, staged)
            return

        task.staging = True

        def stage_in_worker() -> None:
            try:
                outcome: Staged | str = self._tools.stage(launch)
            except StagingError as error:
                outcome = str(error)
            self._tools.loop.call(lambda: self._staged(task, outcome))

        submit(
            self._tools.movers,
            stage_in_worker,
            failed=lambda _: self._tools.loop.call(lambda: self._staged(task, _UNEXPECTED)),
        )

    def _staged(self, task: Task, outcome: Staged | str) -> None:
        task.staging = False
        if task.ended:
            if task.key in self._gone:
                self._endings.remove(task)
        elif task.stop is not None:
            self._refuse(task, EndCause.NOT_STARTED, "stopped before its process began")
        elif isinstance(outcome, str):
            self._refuse(task, EndCause.STAGING_FAILED, outcome)
        else:
            self._start(task, outcome)

    def _start(self, task: Task, staged: Staged) -> None:
        """Ask the forker for the task's shim."""
        launch, tools = task.launch, self._tools
        assert launch is not None
        task.tries += 1
        task.staged = staged
        try:
            doorbell = task.doorbell = task.doorbell or tools.launcher.ask(task.files.directory)
            if direct(launch, staged.working_dir) is None:
                task.files.save_staged(staged)
            task.dirs = tools.cgroups.create(str(task.key), launch.resources)
            tmp_dir = task.files.tmp_dir() or self._make_tmp_dir()
            task.files.save_plan(make_plan(tools.node, launch, staged, task.dirs, tmp_dir))
            with contextlib.suppress(ConnectionError):  # the forker died with it: the bell tells, below
                doorbell.send(GO)
        except OSError as error:
            self._refuse(task, EndCause.CANNOT_START, disk_words(error))
            return
        tools.loop.watch(doorbell.fileno(), lambda: self._rung(task))

    def _make_tmp_dir(self) -> str:
        # Not below the task's directory: paths there are too long for Unix sockets, which programs put here.
        made = tempfile.mkdtemp(prefix=TMP_PREFIX)
        who = self._tools.node.who
        if who.drop:
            os.chown(made, who.uid, who.gid)
        return made

    def _rung(self, task: Task) -> None:
        """Hear that a shim has begun, or that it never will; before that it hands its process over."""
        assert task.doorbell is not None
        told, fds = b"", list[int]()
        with contextlib.suppress(ConnectionError):
            told, fds, _, _ = socket.recv_fds(task.doorbell, len(PROCESS), 1, socket.MSG_CMSG_CLOEXEC)
        for fd in fds:
            task.exit_watched = True
            self._exits.hold(task.key, fd)
        if told:
            return
        self._tools.loop.unwatch(task.doorbell.fileno())
        task.doorbell.close()
        task.doorbell = None
        self._look(task)

    # --- watch

    def _look(self, task: Task) -> None:
        """Find out by its files how a task stands: the one way, after a start, an exit, a restart."""
        if task.ended or task.finishing or task.pidfd is not None:
            return
        shim_pid = task.files.shim_pid()
        if shim_pid is not None:
            self._hold(task, shim_pid)
            return
        self._tell_started(task)
        left = task.files.exit()
        if left is not None:
            self._tools.meters.missed(self._probe(task, NO_SHIM))
            self._endings.exited(task, left)
        elif task.files.claimed():
            self._endings.lost(task)
        else:
            self._never_claimed(task)

    def _hold(self, task: Task, shim_pid: int) -> None:
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

    def _await_started(self, task: Task, shim_pid: int) -> None:
        if task.pidfd is None or task.ended:
            return
        if not self._tell_started(task):  # only after an agent's restart in the middle of a start
            self._tools.loop.call_later(LOOK_AGAIN_SECONDS, lambda: self._await_started(task, shim_pid))
            return
        self._tools.meters.add(self._probe(task, shim_pid))
        self._endings.deliver(task)

    def _probe(self, task: Task, shim_pid: int) -> TaskProbe:
        launch = task.launch
        assert launch is not None
        return TaskProbe(
            key=task.key,
            shim_pid=shim_pid,
            resources=launch.resources,
            cards=launch.cards,
            cgroup=task.dirs,
            custom_metrics=launch.custom_metrics,
            log_patterns=launch.log_patterns,
            log_file=self._tools.node.layout.log_file(task.key),
        )

    def _tell_started(self, task: Task) -> bool:
        started = task.files.started()
        if started is None:
            return False
        if not task.started_told:
            task.started_told = True
            if started["boot_id"] == tree.boot_id():
                task.main_process = (started["pid"], started["start_ticks"])
                if not task.exit_watched:  # an earlier agent had it
                    task.exit_watched = True
                    self._exits.find(task.key, *task.main_process)
            told = Started(key=task.key, at_ms=started["at_ms"], pid=started["pid"], ip=self._tools.ip)
            self._tools.report(Report(seq=0, started=told))
        return True

    def _shim_ended(self, task: Task) -> None:
        assert task.pidfd is not None
        self._tools.loop.unwatch(task.pidfd)
        os.close(task.pidfd)
        task.pidfd = None
        self._look(task)

    def _signal(self, task: Task) -> None:
        if task.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(task.pidfd, signal.SIGTERM)

    def _never_claimed(self, task: Task) -> None:
        """Start again what no shim took: the forker died, or the agent before it could ask."""
        if task.stop is not None:
            self._refuse(task, EndCause.NOT_STARTED, "stopped before its process began")
        elif task.tries >= LAUNCH_TRIES_MAX:
            self._refuse(task, EndCause.CANNOT_START, _NO_FORKER)
        elif task.staged is None:
            self._stage(task)
        else:
            self._start(task, task.staged)

    # --- after the end, and after a restart

    def forget(self, keys: list[TaskKey]) -> None:
        """Let go of tasks whose end the server knows."""
        for key in keys:
            task = self._tasks.pop(key, None)
            self._gone[key] = None
            if task is not None and is_plain(key) and not task.staging:
                self._endings.remove(task)
        while len(self._gone) > GONE_REMEMBERED_MAX:
            self._gone.popitem(last=False)

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
        self._errands.recall(task.key, files)
        self._look(task)
        target = _target(task)
        if target is not None:
            self._errands.adopt(target)

    def check_log_disk(self) -> None:
        """Say of running tasks when the disk of their logs is full."""
        running = [task for task in self._tasks.values() if task.pidfd is not None]
        if running:
            self._endings.check_log_disk(running)

    @property
    def any_key(self) -> TaskKey | None:
        """Return the key of some task that is not over."""
        return next((key for key, task in self._tasks.items() if not task.ended), None)


def _target(task: Task) -> Target | None:
    """Return a task as errands see it; None if its process does not run."""
    shim_pid = task.files.shim_pid()
    if task.ended or task.launch is None or task.main_process is None or shim_pid is None:
        return None
    main_pid, main_ticks = task.main_process
    return Target(
        key=task.key,
        files=task.files,
        shim_pid=shim_pid,
        main_pid=main_pid,
        main_ticks=main_ticks,
        dirs=task.dirs,
        resources=task.launch.resources,
    )
