"""Knows the kernel's log: which of its lines tell of tasks killed for memory and of faulty cards.

The lines are read a few at a time and only what matters is kept. Where the log cannot be read there is
nothing, which is not the same as nothing having happened.
"""

import errno
import logging
import os
import re
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from trackside.domain.evidence import LINE_CHARS_MAX

KERNEL_LOG = "/dev/kmsg"
READ_BYTES = 16_384  # a record of the device is at most 8 KiB
READS_MAX = 20_000  # at one look: more than the kernel keeps
KEPT_MAX = 1_000

_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")  # level, number, microseconds, flags; text
_OOM = re.compile(
    r"oom-kill:constraint=(?P<constraint>\w+),.*?(?:oom_memcg=(?P<limited>[^,]*),)?"
    r"task_memcg=(?P<group>[^,]*),task=.*,pid=(?P<pid>\d+),uid="
)
# Kernels before 4.19 have only this line.
_OLD_OOM = re.compile(r"(?P<memcg>Memory cgroup )?[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d+) ")
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<address>[\da-fA-F:.]+)\): (?P<xid>\d+)(?P<text>.*)")
_XID_PID = re.compile(r"pid='?(\d+)")

_log = logging.getLogger(__name__)


class OomKill(NamedTuple):
    """A process that the kernel killed for memory."""

    boot_ms: int
    pid: int
    group: str | None  # the victim's memory cgroup
    limited: str | None  # the cgroup that was at its limit; None: the whole machine had no memory
    line: str


class Xid(NamedTuple):
    """An error of an NVIDIA card."""

    boot_ms: int
    address: str  # on the PCI bus, as "0000:3b:00"
    xid: int
    pid: int | None
    text: str


Fact = OomKill | Xid


def parse(text: str, boot_ms: int) -> Fact | None:
    """Return what a line of the kernel tells, if it is of interest."""
    found = _OOM.search(text)
    if found is not None:
        memcg = found["constraint"] == "CONSTRAINT_MEMCG"
        limited = (found["limited"] or found["group"]) if memcg else None
        return OomKill(boot_ms, int(found["pid"]), found["group"], limited, text[:LINE_CHARS_MAX])
    found = _OLD_OOM.search(text)
    if found is not None:
        limited = "" if found["memcg"] else None
        return OomKill(boot_ms, int(found["pid"]), None, limited, text[:LINE_CHARS_MAX])
    found = _XID.search(text)
    if found is not None:
        pid = _XID_PID.search(found["text"])
        words = found["text"].lstrip(", ").strip()[:LINE_CHARS_MAX]
        return Xid(boot_ms, found["address"].lower(), int(found["xid"]), int(pid[1]) if pid else None, words)
    return None


class KernelLog:
    """Reads what the kernel has said since the last look, and keeps what is of interest."""

    def __init__(self, path: str = KERNEL_LOG) -> None:
        self._facts: deque[Fact] = deque(maxlen=KEPT_MAX)
        self._rest = b""
        self._looked_ms = 0  # what is read now was said after this
        self._fd: int | None = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            _log.info("the kernel's log cannot be read (%s): kills by it are known by their counters", error)

    def look(self) -> None:
        """Read what is new; bounded, and at once where there is nothing."""
        now_ms = _boot_ms()
        for _ in range(READS_MAX):
            piece = self._read()
            if not piece:
                break
            *lines, self._rest = (self._rest + piece).split(b"\n")
            self._take(lines, now_ms)
        self._looked_ms = now_ms

    def facts(self, since_ms: int, until_ms: int) -> Iterable[Fact]:
        """Return what was told between two moments of the boot clock."""
        return [fact for fact in self._facts if since_ms <= fact.boot_ms <= until_ms]

    def close(self) -> None:
        """Let go of the log."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self) -> bytes:
        if self._fd is None:
            return b""
        while True:
            try:
                return os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                return b""
            except OSError as error:
                if error.errno != errno.EPIPE:  # records were overwritten before they were read: go on
                    _log.warning("the kernel's log cannot be read any more: %s", error)
                    self.close()
                    return b""

    def _take(self, lines: list[bytes], now_ms: int) -> None:
        for line in lines:
            found = _RECORD.match(line.decode(errors="replace"))
            fact = parse(found[2], self._moment(int(found[1]), now_ms)) if found else None
            if fact is not None:
                self._facts.append(fact)

    def _moment(self, log_us: int, now_ms: int) -> int:
        """Return a record's time on the boot clock; the log drifts and is held to what is known."""
        asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        return min(max(log_us // 1000 + asleep_ns // 1_000_000, self._looked_ms), now_ms)


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
