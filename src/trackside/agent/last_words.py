"""Knows what the end of a log says about why its task ended: tracebacks, lost peers, full disks, the shell.

Pure functions of text, which may be cut off at its beginning. Refuses to know files and tasks.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trackside.domain.evidence import LINE_CHARS_MAX, TRACEBACK_CHARS_MAX

RECENT_LINES = 200  # a peer lost longer ago was got over
LAST_LINES = 20  # in which a full disk is mentioned if it was what ended the task
BLOCK_LINES_MAX = 2_000  # of one traceback: a recursion has a thousand frames

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HEAD = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(:( .*)?)?$")
# What a launcher raises when one of its processes failed says less than what that process raised.
_OF_LAUNCHERS = ("ChildFailedError", "ProcessRaisedException", "ProcessExitedException")
_UNREAD = ("SyntaxError: ", "IndentationError: ", "TabError: ")

# A line of one of the libraries that ranks talk through, which says that another rank is gone.
COLLECTIVE_ERRORS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (library, re.compile(pattern))
    for library, pattern in (
        ("gloo", r"gloo.*(Connection (closed|reset) by peer|Broken pipe|[Tt]imed? ?out)"),
        (
            "nccl",
            r"ncclRemoteError|remote process (has )?exited|Watchdog caught collective operation timeout",
        ),
        ("nccl", r"NCCL WARN.*([Cc]onnection (closed|reset|refused)|Broken pipe|closed by remote peer)"),
        # Also raised for what a rank itself did wrong.
        (
            "torch",
            r"DistBackendError(?!.*(ncclInvalid|ncclUnhandled|[Ii]nvalid usage|CUDA error|cuda error))",
        ),
        (
            "torch",
            r"(DistNetworkError|DistStoreError|TCPStore|c10d|socket\.cpp|ProcessGroup\w*)"
            r".*(Connection (closed|reset|refused|was (likely )?closed)|Broken pipe|failed to recv"
            r"|got 0 bytes|[Tt]imed? ?out)",
        ),
        ("hccl", r"\bEI000[26]\b|H(CCL|ccl).*([Tt]imed? ?out|notify wait)"),
        (
            "mpi",
            r"MPI_ABORT was invoked|mpi(run|exec).*(noticed|has exited)|MPI_ERR_PROC_FAILED"
            r"|peer process has unexpectedly disconnected|BAD TERMINATION OF ONE OF YOUR APPLICATION",
        ),
        ("horovod", r"HorovodInternalError"),
    )
)
_NO_ROOM = re.compile(
    r"No space left on device|\bENOSPC\b|\[Errno 28\]|Disk quota exceeded|[Ii]nsufficient shared memory"
    r"|out of shared memory"
)
_IN_SHM = re.compile(r"/dev/shm|shared memory|\(shm\)|</torch_|/psm_")  # noqa: S108 - words to look for
# dash: "sh: 1: ./x: not found"; bash: "/bin/sh: line 1: ./x: Permission denied", "./x: bad interpreter"
_SHELL = re.compile(
    r"(?P<shell>[\w./-]*sh): (?:line )?(?:\d+: )?(?:exec: )?(?P<program>[^:]+): "
    r"(?P<why>(?:[^:]*: )?(?:not found|command not found|Permission denied|No such file or directory"
    r"|bad interpreter.*|cannot execute.*|Exec format error|Is a directory))$"
)
_PYTHON = re.compile(r"\S*python[\d.]*: can't (?:open file|find '__main__' module in) '(?P<program>[^']+)'")
_SHELL_CODES = (126, 127)
_PYTHON_CODES = (1, 2)


class NoRoom(NamedTuple):
    """A line that says that there was no room, and whether it speaks of /dev/shm."""

    line: str
    in_shm: bool


class ShellError(NamedTuple):
    """What a shell said about a command that it could not run."""

    line: str
    program: str
    alone: bool  # nothing else was printed


def lines_of(text: str) -> list[str]:
    """Return the lines of a log's end as they can be read: without colours and trailing blanks."""
    return [_ANSI.sub("", line).rstrip() for line in text.split("\n")]


def last_traceback(lines: Sequence[str]) -> str | None:
    """Return the last complete traceback, from its head to its exception."""
    second_best: list[str] | None = None
    for block in _tracebacks_from_the_end(lines):
        if not any(name in block[-1] for name in _OF_LAUNCHERS):
            return _bounded(block)
        second_best = second_best or block
    found = second_best or _unread(lines)
    return _bounded(found) if found else None


def collective_error(lines: Sequence[str]) -> str | None:
    """Return the last line that says that a peer was lost."""
    for line in reversed(lines[-RECENT_LINES:]):
        if any(pattern.search(line) for _, pattern in COLLECTIVE_ERRORS):
            return line.strip()[:LINE_CHARS_MAX]
    return None


def no_room(lines: Sequence[str]) -> NoRoom | None:
    """Return what the last lines say about a disk, or shared memory, without room."""
    for line in reversed([line for line in lines if line][-LAST_LINES:]):
        if _NO_ROOM.search(line):
            return NoRoom(line.strip()[:LINE_CHARS_MAX], _IN_SHM.search(line) is not None)
    return None


def shell_error(lines: Sequence[str], exit_code: int | None) -> ShellError | None:
    """Return what the shell, or Python, said last if it ended because it could not run what it should."""
    said = [line for line in lines if line]
    for codes, pattern in ((_SHELL_CODES, _SHELL), (_PYTHON_CODES, _PYTHON)):
        found = pattern.match(said[-1]) if said and exit_code in codes else None
        if found is not None:
            return ShellError(said[-1][:LINE_CHARS_MAX], found["program"], alone=len(said) == 1)
    return None


def _tracebacks_from_the_end(lines: Sequence[str]) -> Iterator[list[str]]:
    for start in range(len(lines) - 1, -1, -1):
        if _HEAD in lines[start]:
            block = _block(lines, start)
            if block is not None:
                yield block


def _block(lines: Sequence[str], start: int) -> list[str] | None:
    """Return the traceback that begins here, without what a launcher put before each line; None: cut off."""
    prefix = lines[start].partition(_HEAD)[0]
    block = [_HEAD]
    for line in lines[start + 1 : start + BLOCK_LINES_MAX]:
        if not line.startswith(prefix.rstrip()):
            continue  # of another process that writes to the same log
        rest = line[len(prefix) :]
        if rest.startswith(" "):
            block.append(rest)
        elif _EXCEPTION.match(rest):
            return [*block, rest] if len(block) > 1 else None
    return None


def _unread(lines: Sequence[str]) -> list[str] | None:
    """Return why Python could not even read the program: that has no traceback of calls."""
    said = [line for line in lines if line]
    if not said or not said[-1].startswith(_UNREAD):
        return None
    first = next((at for at in range(len(said) - 1, -1, -1) if said[at].startswith('  File "')), None)
    return None if first is None else said[first:]


def _bounded(block: Sequence[str]) -> str:
    """Return a traceback that fits: its beginning says less than its end."""
    last = block[-1][:LINE_CHARS_MAX]
    text = "\n".join([*block[:-1], last])
    if len(text) <= TRACEBACK_CHARS_MAX:
        return text
    mark = f"{_HEAD}\n  [...]\n"
    return mark + text[-(TRACEBACK_CHARS_MAX - len(mark)) :].partition("\n")[2]
