"""Knows how to say why a task ended, from what its node saw: one dominant cause and what to do next.

Causes are tried in the order of how much they explain: what the kernel counted comes before what a card
reported, that before a full disk, that before the task's own last words.
"""

import signal as signals
from collections.abc import Callable
from dataclasses import replace

from trackside.domain.evidence import Evidence, FullPlace
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
# Signals a process gets for what it does itself; any other came from somebody.
CRASHES = (
    signals.SIGSEGV,
    signals.SIGABRT,
    signals.SIGBUS,
    signals.SIGFPE,
    signals.SIGILL,
    signals.SIGTRAP,
    signals.SIGSYS,
    signals.SIGPIPE,
    signals.SIGXCPU,
    signals.SIGXFSZ,
)
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a name to compare with
_REHEARSED = "this was done to it on purpose: trackside events says by whom"
KILLS = (signals.SIGKILL, signals.SIGTERM)
SHELL_SIGNAL_BASE = 128
NEAR_LIMIT = 0.9  # a task that its own limit ended had come at least this near to it
_SEE_LOG = "the end of its log says more"
_NOT_US = "neither Trackside nor the kernel sent it: see who else may kill processes here"
_CHECK_COMMAND = "check its name, its path and the job's environment"
_NOTHING_SEEN = Evidence()


def end_reason(job: Job, task: Task, news: Ended) -> Reason:
    """Return why the task is over, in one sentence."""
    if news.stopped_by_us and news.cause is EndCause.EXITED and job.ending is not None:
        return _stopped(job, task)
    reason = _BY_CAUSE[news.cause](job, task, news)
    injected = news.evidence.injected if news.evidence is not None else ()
    if not injected or reason.code is ReasonCode.COMPLETED:
        return reason
    return replace(reason, evidence=(*reason.evidence, *injected), hint=_REHEARSED)


def exit_code(news: Ended) -> int | None:
    """Return the exit code as shells give it: 128 + n when signal n ended the process."""
    return 128 + news.signal if news.signal is not None else news.exit_code


def _exited(job: Job, task: Task, news: Ended) -> Reason:
    del job
    seen = news.evidence or _NOTHING_SEEN
    if news.oom_killed:
        return _out_of_memory(task, news, seen)
    if news.exit_code == 0 and news.message:  # it did its work, but what it made could not be kept
        return Reason(
            text=f"{task.name}: {news.message}",
            code=ReasonCode.UPLOAD_FAILED,
            task=task.name,
            hint="check the output's place in the object store, and run the job again",
        )
    if news.exit_code == 0:
        return Reason(text=f"{task.name} exited 0", code=ReasonCode.COMPLETED, task=task.name)
    told = (find(task, news, seen) for find in _BY_EVIDENCE)
    return next((reason for reason in told if reason is not None), None) or _exit_code(task, news, seen)


def _out_of_memory(task: Task, news: Ended, seen: Evidence) -> Reason:
    """Tell the task's own limit from the machine's: the counter goes up for both."""
    limit = task.resources.memory_bytes
    counter = "the out-of-memory counter of its cgroup went up"
    if seen.oom_kills_after is not None:
        counter += f" from {seen.oom_kills_before or 0} to {seen.oom_kills_after}"
    near = news.memory_peak_bytes is None or news.memory_peak_bytes >= NEAR_LIMIT * limit
    if seen.host_oom is not None or not near:
        peak = news.memory_peak_bytes
        used = () if peak is None else (f"it used {size_text(peak)} of {size_text(limit)} at most",)
        return _killed_by_host(task, (*_words(seen.host_oom), counter, *used), certain=bool(seen.host_oom))
    peak = min(news.memory_peak_bytes or limit, limit)
    return Reason(
        text=f"{task.name} ran out of memory ({size_text(peak)} of {size_text(limit)})",
        code=ReasonCode.OUT_OF_MEMORY,
        task=task.name,
        evidence=(counter,),
        hint="ask for a flavor with more memory, or make the job use less",
    )


def _host_out_of_memory(task: Task, news: Ended, seen: Evidence) -> Reason | None:
    del news
    return None if seen.host_oom is None else _killed_by_host(task, (seen.host_oom,), certain=True)


def _killed_by_host(task: Task, evidence: tuple[str, ...], *, certain: bool) -> Reason:
    return Reason(
        text=f"{task.name} was killed by the kernel: the machine {task.node_id} had no memory left",
        code=ReasonCode.HOST_OUT_OF_MEMORY,
        certainty=Certainty.CERTAIN if certain else Certainty.LIKELY,
        task=task.name,
        evidence=evidence,
        hint="the flavors of this machine add up to more memory than it has, or others use it too",
    )


def _device_fault(task: Task, news: Ended, seen: Evidence) -> Reason | None:
    if not seen.device_faults:
        return None
    first = seen.device_faults[0]
    return Reason(
        text=f"{task.name} failed ({_how(news)}) after card {first.card} of {task.node_id} "
        f"had reported {first.code}: {first.text}",
        code=ReasonCode.DEVICE_FAULT,
        certainty=Certainty.LIKELY,
        task=task.name,
        evidence=tuple(f"card {one.card}: {one.code} {one.text}" for one in seen.device_faults),
        hint="start it again" if first.heals else "have the card looked at before it is used again",
    )


def _full(task: Task, news: Ended, seen: Evidence) -> Reason | None:
    if not seen.full:
        return None
    place = min(seen.full, key=lambda one: one.shared)
    in_memory = place.path == SHARED_MEMORY
    name = f"its {place.path}" if in_memory else f"the disk at {place.path}"
    text = f"{task.name} failed ({_how(news)}) while {name} was full ({_room(place)})"
    if place.told is not None:
        text = f"{task.name} failed ({_how(news)}) for want of room: {place.told}"
    return Reason(
        text=text,
        code=ReasonCode.SHM_FULL if in_memory else ReasonCode.DISK_FULL,
        certainty=Certainty.LIKELY,
        task=task.name,
        evidence=(f"{place.path}: {_room(place)} used when it ended", *_last_words(seen)),
        hint="let it keep less there, or give it more memory" if in_memory else "make room on that disk",
    )


def _signal(task: Task, news: Ended, seen: Evidence) -> Reason | None:
    if news.signal is None:
        return _signal_of_child(task, news, seen)
    crashed = news.signal in CRASHES
    name = signal_name(news.signal)
    return Reason(
        text=f"{task.name} crashed with {name}"
        if crashed
        else f"{task.name} was killed by {name} from outside",
        code=ReasonCode.SIGNAL if crashed else ReasonCode.KILLED_FROM_OUTSIDE,
        task=task.name,
        evidence=_last_words(seen),
        hint=_SEE_LOG if crashed else _NOT_US,
    )


def _signal_of_child(task: Task, news: Ended, seen: Evidence) -> Reason | None:
    """Read an exit code as shells give it for a command that a signal ended."""
    number = (news.exit_code or 0) - SHELL_SIGNAL_BASE
    if number not in (*CRASHES, *KILLS):
        return None
    crashed = number in CRASHES
    what = "a command of it crashed with" if crashed else "a command of it was killed by"
    return Reason(
        text=f"{task.name} exited with code {news.exit_code}: {what} {signal_name(number)}",
        code=ReasonCode.SIGNAL if crashed else ReasonCode.KILLED_FROM_OUTSIDE,
        certainty=Certainty.LIKELY,
        task=task.name,
        evidence=_last_words(seen),
        hint=_SEE_LOG if crashed else _NOT_US,
    )


def _not_run(task: Task, news: Ended, seen: Evidence) -> Reason | None:
    """Say which command could not be run; if nothing ran before it, the task did not start at all."""
    if seen.shell_error is None:
        return None
    _, hint = _SHELL_CODES.get(news.exit_code or 0, ("", _CHECK_COMMAND))
    if seen.shell_error_only:
        text, code = f"{task.name} could not be started: {seen.shell_error}", ReasonCode.CANNOT_START
    else:
        text = f"{task.name} exited with code {news.exit_code}: {seen.shell_error}"
        code = ReasonCode.EXIT_CODE
    return Reason(text=text, code=code, task=task.name, hint=hint)


def _exception(task: Task, news: Ended, seen: Evidence) -> Reason | None:
    if seen.traceback is None:
        return None
    last = seen.traceback.strip().splitlines()[-1]
    return Reason(
        text=f"{task.name} exited with code {news.exit_code}: {last}",
        code=ReasonCode.EXCEPTION,
        task=task.name,
        evidence=_last_words(seen),
        hint="the traceback is in its log",
    )


def _exit_code(task: Task, news: Ended, seen: Evidence) -> Reason:
    meaning, hint = _SHELL_CODES.get(news.exit_code or 0, ("", _SEE_LOG))
    text = f"{task.name} exited with code {news.exit_code}" + (f": {meaning}" if meaning else "")
    return Reason(text=text, code=ReasonCode.EXIT_CODE, task=task.name, evidence=_last_words(seen), hint=hint)


_BY_EVIDENCE: tuple[Callable[[Task, Ended, Evidence], Reason | None], ...] = (
    _host_out_of_memory,
    _device_fault,
    _full,
    _not_run,
    _signal,
    _exception,
)


def _how(news: Ended) -> str:
    return f"exit code {news.exit_code}" if news.signal is None else signal_name(news.signal)


def _room(place: FullPlace) -> str:
    return f"{size_text(place.used_bytes)} of {size_text(place.size_bytes)}"


def _words(*words: str | None) -> tuple[str, ...]:
    return tuple(one for one in words if one)


def _last_words(seen: Evidence) -> tuple[str, ...]:
    return _words(seen.traceback, seen.collective_error)


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
    del job
    seen = news.evidence or _NOTHING_SEEN
    return Reason(
        text=f"{task.name} ended with an unknown exit code: the process that watched it was killed",
        code=ReasonCode.SHIM_LOST,
        certainty=Certainty.UNKNOWN,
        task=task.name,
        evidence=_words(seen.host_oom, *_last_words(seen)),
        hint="its remaining processes were cleaned up; the log has what it printed",
    )


_BY_CAUSE: dict[EndCause, Callable[[Job, Task, Ended], Reason]] = {
    EndCause.EXITED: _exited,
    EndCause.NOT_STARTED: _not_started,
    EndCause.CANNOT_START: _told(ReasonCode.CANNOT_START, "check the command and its permissions"),
    EndCause.STAGING_FAILED: _told(ReasonCode.STAGING_FAILED, "check the object store paths of the job"),
    EndCause.SHIM_LOST: _shim_lost,
}
