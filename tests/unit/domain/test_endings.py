"""One dominant cause from what a node saw, and what to do about it."""

import signal
from typing import Any

import pytest

from tests.unit.domain.builders import NODE, after, ended, running
from trackside.domain.evidence import DeviceFault, DeviceKind, Evidence, FullPlace
from trackside.domain.exchange import EndCause
from trackside.domain.reason import Certainty, Reason, ReasonCode
from trackside.domain.resources import GIB

HOST_LINE = "oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/trackside/j.1.worker-0,pid=7"
TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: boom'
SHM = FullPlace(path="/dev/shm", used_bytes=GIB, size_bytes=GIB, shared=False)
DISK = FullPlace(path="/data/work", used_bytes=GIB, size_bytes=GIB, shared=True)
LOST = DeviceFault(card=3, kind=DeviceKind.GPU, code="XID 79", text="it fell off the bus", heals=False)
FAULT = DeviceFault(card=2, kind=DeviceKind.GPU, code="XID 31", text="memory page fault", heals=True)


def reason_of(exit_code: int | None = 1, seen: Evidence | None = None, **fields: Any) -> Reason:
    job = after(running(1), ended("worker-0", exit_code, evidence=seen, **fields))
    assert job.reason is not None
    assert job.reason.task == "worker-0"
    assert job.reason.hint
    return job.reason


def test_the_task_s_own_limit_is_named_with_its_counter() -> None:
    seen = Evidence(oom_kills_before=2, oom_kills_after=3)
    found = reason_of(None, seen, signal=9, oom_killed=True, memory_peak_bytes=GIB)
    assert (found.code, found.certainty) == (ReasonCode.OUT_OF_MEMORY, Certainty.CERTAIN)
    assert found.evidence == ("the out-of-memory counter of its cgroup went up from 2 to 3",)


def test_the_machine_s_want_of_memory_is_named_by_the_kernel() -> None:
    seen = Evidence(oom_kills_before=0, oom_kills_after=1, host_oom=HOST_LINE)
    found = reason_of(None, seen, signal=9, oom_killed=True, memory_peak_bytes=GIB)
    assert (found.code, found.certainty) == (ReasonCode.HOST_OUT_OF_MEMORY, Certainty.CERTAIN)
    assert found.text == f"worker-0 was killed by the kernel: the machine {NODE} had no memory left"
    assert found.evidence[0] == HOST_LINE
    without_groups = reason_of(None, Evidence(host_oom=HOST_LINE), signal=9)
    assert without_groups.code is ReasonCode.HOST_OUT_OF_MEMORY


def test_a_task_far_from_its_limit_was_not_killed_by_it() -> None:
    seen = Evidence(oom_kills_before=0, oom_kills_after=1)
    found = reason_of(None, seen, signal=9, oom_killed=True, memory_peak_bytes=GIB // 4)
    assert (found.code, found.certainty) == (ReasonCode.HOST_OUT_OF_MEMORY, Certainty.LIKELY)
    assert found.evidence[-1] == "it used 256.0 MiB of 1.0 GiB at most"
    unknown = reason_of(None, seen, signal=9, oom_killed=True, memory_peak_bytes=None)
    assert unknown.code is ReasonCode.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (Evidence(host_oom=HOST_LINE, device_faults=(LOST,)), ReasonCode.HOST_OUT_OF_MEMORY),
        (Evidence(device_faults=(LOST,), full=(SHM,)), ReasonCode.DEVICE_FAULT),
        (Evidence(full=(SHM,), traceback=TRACEBACK), ReasonCode.SHM_FULL),
        (Evidence(full=(DISK,), traceback=TRACEBACK), ReasonCode.DISK_FULL),
        (Evidence(full=(DISK, SHM)), ReasonCode.SHM_FULL),
        (Evidence(traceback=TRACEBACK), ReasonCode.EXCEPTION),
        (Evidence(), ReasonCode.EXIT_CODE),
        (None, ReasonCode.EXIT_CODE),
    ],
)
def test_what_explains_more_goes_first(seen: Evidence | None, code: ReasonCode) -> None:
    assert reason_of(1, seen).code is code


def test_a_card_s_fault_says_whether_to_start_again() -> None:
    lost = reason_of(1, Evidence(device_faults=(LOST, FAULT)))
    assert (
        lost.text
        == f"worker-0 failed (exit code 1) after card 3 of {NODE} had reported XID 79: it fell off the bus"
    )
    assert lost.evidence == ("card 3: XID 79 it fell off the bus", "card 2: XID 31 memory page fault")
    assert "looked at" in (lost.hint or "")
    assert reason_of(1, Evidence(device_faults=(FAULT,))).hint == "start it again"


def test_a_full_place_is_named_as_it_was_seen_or_told() -> None:
    seen = reason_of(None, Evidence(full=(SHM,)), signal=signal.SIGBUS)
    assert seen.text == "worker-0 failed (SIGBUS) while its /dev/shm was full (1.0 GiB of 1.0 GiB)"
    line = "OSError: [Errno 28] No space left on device"
    told = FullPlace(path="/data/work", used_bytes=1, size_bytes=GIB, shared=True, told=line)
    assert (
        reason_of(1, Evidence(full=(told,))).text == f"worker-0 failed (exit code 1) for want of room: {line}"
    )


@pytest.mark.parametrize(
    ("exit_code", "code", "text"),
    [
        (137, ReasonCode.KILLED_FROM_OUTSIDE, "exited with code 137: a command of it was killed by SIGKILL"),
        (143, ReasonCode.KILLED_FROM_OUTSIDE, "exited with code 143: a command of it was killed by SIGTERM"),
        (139, ReasonCode.SIGNAL, "exited with code 139: a command of it crashed with SIGSEGV"),
        (134, ReasonCode.SIGNAL, "exited with code 134: a command of it crashed with SIGABRT"),
        (130, ReasonCode.EXIT_CODE, "exited with code 130"),
        (200, ReasonCode.EXIT_CODE, "exited with code 200"),
    ],
)
def test_a_shell_s_code_for_a_signal_is_read(exit_code: int, code: ReasonCode, text: str) -> None:
    found = reason_of(exit_code, Evidence())
    assert (found.code, found.text) == (code, f"worker-0 {text}")


def test_a_command_that_could_not_be_run_is_named() -> None:
    line = "/bin/sh: 1: ./train.sh: not found"
    alone = reason_of(127, Evidence(shell_error=line, shell_error_only=True))
    assert (alone.code, alone.text) == (ReasonCode.CANNOT_START, f"worker-0 could not be started: {line}")
    later = reason_of(127, Evidence(shell_error=line))
    assert (later.code, later.text) == (ReasonCode.EXIT_CODE, f"worker-0 exited with code 127: {line}")


def test_a_lost_shim_leaves_the_last_words() -> None:
    found = reason_of(None, Evidence(traceback=TRACEBACK), cause=EndCause.SHIM_LOST)
    assert (found.code, found.evidence) == (ReasonCode.SHIM_LOST, (TRACEBACK,))
