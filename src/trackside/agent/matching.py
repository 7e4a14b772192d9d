"""Knows how to search lines with regular expressions that nobody has vouched for.

Such an expression can take for ever, and nothing stops one inside a process: so they are searched with in
a process of their own that has few rights and a limit of processor time, and dies of it.
"""

import contextlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import trackside
from trackside.agent import child, linux

CPU_SECONDS_MAX = 1.0  # for one expression over the lines of one period
WALL_SECONDS_MAX = 20.0  # on a machine that is very busy
MEMORY_BYTES_MAX = 512 * 1024**2
ANSWER_BYTES_MAX = 64 * 1024

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from trackside.agent.matching import serve; "
    "serve(int(sys.argv[2]), int(sys.argv[3]))"
)


class Refused(Exception):
    """The expression cannot be searched with; the text says why."""


class Matcher:
    """Search lines in another process, which is started for the first of them; used by one task's log."""

    def __init__(self, owner: tuple[int, int] | None) -> None:
        self._owner = owner or (-1, -1)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def last(self, pattern: str, lines: list[str]) -> str | None:
        """Return what the pattern found last: its first group, or all of it; None if it is nowhere."""
        with self._lock:
            if self._closed:  # a reading that was about to begin
                raise Refused("the agent ends")
            process = self._process = self._process or self._start()
            answer = _ask(process, json.dumps([pattern, lines]).encode() + b"\n")
            if answer is None:
                self._end()
                raise Refused(f"its expression needs more than {CPU_SECONDS_MAX:g} s for what was printed")
        found = json.loads(answer)
        if found is False:
            raise Refused("its expression is not a regular one")
        return None if found is None else str(found)

    def close(self) -> None:
        """End the process, also one that is searching, and start no other."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()

    def _start(self) -> "subprocess.Popen[bytes]":
        root = str(Path(trackside.__file__).parent.parent)
        command = [sys.executable, "-I", "-S", "-c", _BOOT, root, *map(str, self._owner)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", env={}
        )

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def _ask(process: "subprocess.Popen[bytes]", question: bytes) -> bytes | None:
    """Return the answer; None if the process died of the question."""
    assert process.stdin is not None
    assert process.stdout is not None
    answer = b""
    try:
        process.stdin.write(question)
        process.stdin.flush()
        while not answer.endswith(b"\n"):
            if not select.select([process.stdout], [], [], WALL_SECONDS_MAX)[0]:
                return None
            piece = os.read(process.stdout.fileno(), ANSWER_BYTES_MAX)
            if not piece:
                return None
            answer += piece
    except BrokenPipeError:
        return None
    return answer


def serve(uid: int, gid: int) -> None:
    """Answer questions until there are no more; a question that takes too long is the last."""
    linux.set_name("trackside-match")
    if uid >= 0:
        child.drop_privileges(uid, gid)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # which is to die
    for question in sys.stdin:
        pattern, lines = json.loads(question)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MAX)
        try:
            answer: str | bool | None = find_last(pattern, lines)
        except (re.error, RecursionError, OverflowError):
            answer = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def find_last(pattern: str, lines: list[str]) -> str | None:
    """Return what the pattern found in the last line that has it."""
    expression = re.compile(pattern)
    for line in reversed(lines):
        found = list(expression.finditer(line))
        if found:
            return found[-1].group(1) if expression.groups else found[-1].group()
    return None
