"""Knows how to say why a task ended, from what its node saw."""

from collections.abc import Callable

from trackside.domain.exchange import EndCause, Ended
from trackside.domain.job import Job, Task
from trackside.domain.reason import Certainty, Reason, ReasonCode
from trackside.domain.wording import signal_name, size_text

SHELL_CANNOT_EXECUTE = 126
SHELL_NOT_FOUND = 127
_SHELL_CODES = {
    SHELL_CANNOT_EXECUTE: ("the command could not be executed", "check that it is executable (chmod +x)"),
    SHELL_NOT_FOUND: ("the command was not found", "check its name, its path and the job's environment"),
}


def end_reason(job: Job, task: Task, news: Ended) -> Reason:
    """Return why the task is over, in one sentence."""
    if news.stopped_by_us and news.cause is EndCause.EXITED and job.ending is not None:
        return _stopped(job, task)
    return _BY_CAUSE[news.cause](job, task, news)


def exit_code(news: Ended) -> int | None:
    """Return the exit code as shells give it: 128 + n when signal n ended the process."""
    return 128 + news.signal if news.signal is not None else news.exit_code


def _exited(job: Job, task: Task, news: Ended) -> Reason:
    del job
    if news.oom_killed:
        return _out_of_memory(task, news)
    if news.signal is not None:
        name = signal_name(news.signal)
        return Reason(
            text=f"{task.name} was ended by {name}",
            code=ReasonCode.SIGNAL,
            task=task.name,
            hint="nothing in Trackside sent it: see the end of its log, and who else may kill processes here",
        )
    if news.exit_code == 0 and news.message:  # it did its work, but what it made could not be kept
        return Reason(
            text=f"{task.name}: {news.message}",
            code=ReasonCode.UPLOAD_FAILED,
            task=task.name,
            hint="check the output's place in the object store, and run the job again",
        )
    if news.exit_code == 0:
        return Reason(text=f"{task.name} exited 0", code=ReasonCode.COMPLETED, task=task.name)
    meaning, hint = _SHELL_CODES.get(news.exit_code or 0, ("", "the end of its log says more"))
    text = f"{task.name} exited with code {news.exit_code}" + (f": {meaning}" if meaning else "")
    return Reason(text=text, code=ReasonCode.EXIT_CODE, task=task.name, hint=hint)


def _out_of_memory(task: Task, news: Ended) -> Reason:
    limit = task.resources.memory_bytes
    peak = min(news.memory_peak_bytes or limit, limit)
    return Reason(
        text=f"{task.name} ran out of memory ({size_text(peak)} of {size_text(limit)})",
        code=ReasonCode.OUT_OF_MEMORY,
        task=task.name,
        evidence=("the out-of-memory counter of its cgroup went up",),
        hint="ask for a flavor with more memory, or make the job use less",
    )


def _stopped(job: Job, task: Task) -> Reason:
    assert job.ending is not None
    cause = job.ending.reason
    if cause.task is not None and cause.task != task.name:
        return Reason(
            text=f"{task.name} was stopped because {cause.task} failed",
            code=ReasonCode.PEER_FAILED,
            task=task.name,
        )
    return Reason(text=f"{task.name} was {cause.text}", code=cause.code, task=task.name)


def _not_started(job: Job, task: Task, news: Ended) -> Reason:
    del news
    cause = job.ending.reason if job.ending else None
    text = f"{task.name} was not started" + (f": {cause.text}" if cause else "")
    return Reason(text=text, code=cause.code if cause else ReasonCode.STOPPED_BY_USER, task=task.name)


def _told(code: ReasonCode, hint: str) -> Callable[[Job, Task, Ended], Reason]:
    def reason(job: Job, task: Task, news: Ended) -> Reason:
        del job
        return Reason(text=f"{task.name}: {news.message}", code=code, task=task.name, hint=hint)

    return reason


def _shim_lost(job: Job, task: Task, news: Ended) -> Reason:
    del job, news
    return Reason(
        text=f"{task.name} ended with an unknown exit code: the process that watched it was killed",
        code=ReasonCode.SHIM_LOST,
        certainty=Certainty.UNKNOWN,
        task=task.name,
        hint="its remaining processes were cleaned up; the log has what it printed",
    )


_BY_CAUSE: dict[EndCause, Callable[[Job, Task, Ended], Reason]] = {
    EndCause.EXITED: _exited,
    EndCause.NOT_STARTED: _not_started,
    EndCause.CANNOT_START: _told(ReasonCode.CANNOT_START, "check the command and its permissions"),
    EndCause.STAGING_FAILED: _told(ReasonCode.STAGING_FAILED, "check the object store paths of the job"),
    EndCause.SHIM_LOST: _shim_lost,
}
