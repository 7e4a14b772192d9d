"""Knows what happens between a task's last process and the moment nothing of it is left on the node.

Methods run in the loop's thread unless their name ends in `_in_worker`.
"""

import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace

from trackside.agent import lost, tree
from trackside.agent.evidence import examine
from trackside.agent.exit_order import ExitOrder
from trackside.agent.layout import is_plain
from trackside.agent.plan import TMP_PREFIX
from trackside.agent.record import ExitRecord
from trackside.agent.task import Task, Tools, exit_end, exit_totals, short_end
from trackside.collect.probe import ExitTotals
from trackside.domain.event import Level
from trackside.domain.evidence import Evidence
from trackside.domain.exchange import EndCause, Ended, Report, TaskKey

LOG_DISK_FREE_BYTES_MIN = 64 * 1024
LOG_TRUNCATED = "log truncated: the disk was full"
CLEAN_AGAIN_SECONDS = 1.0

_KILLED = "the task's parent process was killed; its processes were ended and its exit code is unknown"
_REBOOTED = "the machine was restarted while the task ran; its exit code is unknown"
_log = logging.getLogger(__name__)


class Endings:
    """End tasks: by what their shims left, or without it."""

    def __init__(self, tools: Tools, exits: ExitOrder, on_end: Callable[[TaskKey], tuple[str, ...]]) -> None:
        self._tools = tools
        self._exits = exits
        self._on_end = on_end

    def exited(self, task: Task, left: ExitRecord) -> None:
        """Go on with what the shim wrote down."""
        ended = exit_end(task, left)
        if ended.cause is EndCause.EXITED:
            moment = self._exits.moment(task.key, left["ended_boot_ms"])
            evidence = examine(self._tools, task, ended, left)
            ended = replace(ended, evidence=evidence, ended_boot_ms=moment)
        self._finish(task, ended, exit_totals(left))

    def lost(self, task: Task) -> None:
        """Clean up after a shim that was killed; the task has ended once nothing of it is left."""
        task.finishing = True
        submit(
            self._tools.cleaners,
            lambda: self._clean_in_worker(task),
            failed=lambda _: self._tools.loop.call(lambda: self._clean_again(task)),
        )

    def end(self, task: Task, ended: Ended, totals: ExitTotals | None = None) -> None:
        """Tell the end, the last measurements before it."""
        if task.ended:
            return
        task.ended = True
        injected = self._on_end(task.key)
        if injected:
            ended = replace(ended, evidence=replace(ended.evidence or Evidence(), injected=injected))
        try:
            if is_plain(task.key):
                task.files.save_ended(ended)
        except OSError as error:  # told from memory; after a crash it is found out again
            _log.warning("the end of %s could not be written down: %s", task.key, error)
        last = self._tools.meters.remove(task.key, ended.at_ms, totals)
        self._tools.report(*last, Report(seq=0, ended=ended))

    def remove(self, task: Task) -> None:
        """Remove all that is left of a task but its log."""
        submit(self._tools.cleaners, lambda: self._remove_in_worker(task))

    def check_log_disk(self, tasks: list[Task]) -> None:
        """Say of these tasks that their logs are cut, if the disk is full."""
        try:
            disk = os.statvfs(self._tools.node.layout.logs_dir)
        except OSError:
            return
        if disk.f_bavail * disk.f_frsize >= LOG_DISK_FREE_BYTES_MIN:
            return
        for task in tasks:
            if not task.truncated_told:
                task.truncated_told = True
                self._tools.note(task.key, LOG_TRUNCATED, Level.WARNING)

    def deliver(self, task: Task) -> None:
        """Begin to watch the task's outputs, once."""
        if not task.delivering and task.staged is not None and task.launch is not None:
            task.delivering = True
            self._tools.outputs.begin(task.launch, task.staged)

    def _finish(self, task: Task, ended: Ended, totals: ExitTotals | None) -> None:
        """Upload what is left, if there is anything to upload, and then tell the end."""
        launch = task.launch
        assert launch is not None
        self.check_log_disk([task])
        ran = ended.cause in (EndCause.EXITED, EndCause.SHIM_LOST)
        if not ran or not (launch.outputs or launch.log_export_url):
            self.end(task, ended, totals)
            return
        self.deliver(task)  # it may have ended before anyone saw it run
        task.finishing = True

        def upload_in_worker() -> None:
            failed = self._tools.outputs.finish(launch)
            self._tools.loop.call(lambda: self._delivered(task, ended, totals, failed))

        words = "outputs could not be uploaded: an unexpected error, see agent.log in the data directory"
        submit(
            self._tools.movers,
            upload_in_worker,
            failed=lambda _: self._tools.loop.call(lambda: self._delivered(task, ended, totals, words)),
        )

    def _delivered(self, task: Task, ended: Ended, totals: ExitTotals | None, failed: str | None) -> None:
        if failed is not None:
            self._tools.note(task.key, failed, Level.ERROR)
            ended = replace(ended, message=failed)
        self.end(task, ended, totals)

    def _clean_in_worker(self, task: Task) -> None:
        tools = self._tools
        lost.clean(
            str(task.key), cgroups=tools.cgroups, launcher=tools.launcher, main_process=task.main_process
        )
        tools.loop.call(lambda: self._cleaned(task))

    def _clean_again(self, task: Task) -> None:
        self._tools.loop.call_later(CLEAN_AGAIN_SECONDS, lambda: self.lost(task))

    def _cleaned(self, task: Task) -> None:
        started = task.files.started()
        rebooted = started is not None and started["boot_id"] != tree.boot_id()
        ended = short_end(task, EndCause.SHIM_LOST, _REBOOTED if rebooted else _KILLED)
        if rebooted:  # the boot clock began anew: it says nothing about the order of these ends
            self._finish(task, replace(ended, ended_boot_ms=None), None)
        else:
            self._finish(task, replace(ended, evidence=examine(self._tools, task, ended, None)), None)

    def _remove_in_worker(self, task: Task) -> None:
        """Remove a task's directories; its state last, so that an interrupted removal is taken up again."""
        work_dir = self._tools.node.layout.work_dir(task.key)
        tmp_dir = task.files.tmp_dir()
        shutil.rmtree(work_dir, ignore_errors=True)
        for directory in (work_dir.parent, work_dir.parent.parent):
            try:
                directory.rmdir()
            except OSError:  # another task's, or another attempt's
                break
        if tmp_dir is not None and os.path.basename(tmp_dir).startswith(TMP_PREFIX):
            shutil.rmtree(tmp_dir, ignore_errors=True)
        self._tools.cgroups.remove(str(task.key))
        task.files.remove()


def submit(
    executor: Executor,
    work: Callable[[], None],
    failed: Callable[[BaseException], None] = lambda _: None,
) -> None:
    """Do something in another thread; what it did not expect is logged and told to `failed`."""

    def done(future: "Future[None]") -> None:
        error = future.exception()
        if error is not None:
            _log.error("a worker failed", exc_info=error)
            failed(error)

    executor.submit(work).add_done_callback(done)
