"""Knows where to look when a task has failed, and puts together what was found; concludes nothing.

Called in the loop's thread before the end is told: it reads the end of one log, what the kernel has said
since the last look, and asks the task's cards once. All of it is bounded.
"""

import os
import signal
from collections.abc import Iterable
from typing import NamedTuple

from trackside.agent import child, last_words
from trackside.agent.cgroup import PARENT
from trackside.agent.kernel_log import OomKill, Xid
from trackside.agent.record import ExitRecord, Plan
from trackside.agent.task import Task, Tools, boot_ms, now_ms
from trackside.collect.faults import xid_fault
from trackside.domain.evidence import LINE_CHARS_MAX, DeviceFault, Evidence, FullPlace
from trackside.domain.exchange import Ended

LOG_TAIL_BYTES = 64 * 1024
BEFORE_START_MS = 1_000  # clocks are read one after the other
FULL_BYTES = 64 * 1024  # less than this free is full, whatever the size
FULL_PART = 100  # and so is less than this part of it ...
FULL_BYTES_MAX = 16 * 1024**2  # ... but so much is room, on the largest disk
SHM = "/dev/shm"  # noqa: S108 - the place itself
GPUS_DIR = "/proc/driver/nvidia/gpus"
# What the kernel's driver says of a card whose process somebody killed: a consequence, not a cause.
_CLEANUP = "XID 45"
_KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Room(NamedTuple):
    """How full a place was when the task ended."""

    path: str
    used_bytes: int
    free_bytes: int
    size_bytes: int
    shared: bool


def examine(tools: Tools, task: Task, ended: Ended, left: ExitRecord | None) -> Evidence | None:
    """Return what can be found out about why a task failed; None if it did not."""
    if ended.exit_code == 0 and not ended.oom_killed:
        return None
    lines = last_words.lines_of(_log_tail(str(tools.node.layout.log_file(task.key))))
    shell = last_words.shell_error(lines, ended.exit_code)
    plan = task.files.plan()
    tools.kernel.look()
    since_ms = _started_boot_ms(task, ended)
    facts = list(tools.kernel.facts(since_ms - BEFORE_START_MS, boot_ms()))
    pid = _main_pid(task)
    return Evidence(
        oom_kills_before=left.get("oom_kills_before") if left is not None else None,
        oom_kills_after=left.get("oom_kills_after") if left is not None else None,
        host_oom=host_oom(facts, group=f"/{PARENT}/{task.key}", pid=pid),
        full=full_places(_rooms(left, plan) if left is not None and plan is not None else [], lines),
        traceback=last_words.last_traceback(lines),
        collective_error=last_words.collective_error(lines),
        shell_error=_shell_words(shell, plan) if shell is not None else None,
        shell_error_only=shell is not None and shell.alone,
        device_faults=_device_faults(tools, task, ended, [one for one in facts if isinstance(one, Xid)], pid),
    )


def host_oom(facts: Iterable[object], *, group: str, pid: int | None) -> str | None:
    """Return the kernel's line about a kill in this cgroup that the group's own limit did not cause."""
    for fact in facts:
        if not isinstance(fact, OomKill):
            continue
        ours = fact.pid == pid if fact.group is None else f"{fact.group}/".find(f"{group}/") >= 0
        own_limit = fact.limited is not None and (
            not fact.limited or f"{fact.limited}/".find(f"{group}/") >= 0
        )
        if ours and not own_limit:
            return fact.line
    return None


def full_places(rooms: Iterable[Room], lines: list[str]) -> tuple[FullPlace, ...]:
    """Return the places without room: by what was free at the end, or by what the log's end says."""
    rooms = list(rooms)
    full = tuple(_place(room) for room in rooms if is_full(room))
    told = last_words.no_room(lines)
    if full or told is None or not rooms:
        return full
    named = [room for room in rooms if (room.path == SHM) == told.in_shm]
    by_path = [room for room in named if room.path in told.line]
    chosen = max(by_path or named or rooms, key=lambda room: room.used_bytes / max(1, room.size_bytes))
    return (_place(chosen, told.line),)


def is_full(room: Room) -> bool:
    """Say whether there is no room to speak of."""
    enough = max(FULL_BYTES, min(room.size_bytes // FULL_PART, FULL_BYTES_MAX))
    return room.size_bytes > 0 and room.free_bytes < enough


def xid_faults(
    xids: Iterable[Xid], *, cards: tuple[int, ...], pid: int | None, addresses: dict[str, int]
) -> list[DeviceFault]:
    """Return the faults of the task's cards among all that the kernel told of."""
    found = []
    for one in xids:
        card = addresses.get(one.address[: len("0000:00:00")])
        if card is None and one.pid is not None and one.pid == pid and len(cards) == 1:
            card = cards[0]  # which card it is cannot be told, but the task has no other
        if card is not None and card in cards:
            found.append(xid_fault(card, one.xid, one.text))
    return found


def gpu_addresses(directory: str = GPUS_DIR) -> dict[str, int]:
    """Return the number of each NVIDIA card by its place on the PCI bus: the driver numbers them by that."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return {}
    return {name.lower()[: len("0000:00:00")]: number for number, name in enumerate(names)}


def _device_faults(
    tools: Tools, task: Task, ended: Ended, xids: list[Xid], pid: int | None
) -> tuple[DeviceFault, ...]:
    cards = task.launch.cards if task.launch is not None else ()
    if not cards:
        return ()
    told = xid_faults(xids, cards=cards, pid=pid, addresses=gpu_addresses() if xids else {})
    every = {(fault.card, fault.code): fault for fault in (*told, *tools.meters.faults(task.key))}
    killed = ended.signal in _KILLS
    return tuple(fault for fault in every.values() if not (killed and fault.code == _CLEANUP))


def _rooms(left: ExitRecord, plan: Plan) -> list[Room]:
    paths = {
        "shm": SHM,
        "work": plan["cwd"],
        "tmp": plan["tmp_dir"],
        "log": os.path.dirname(plan["log"]),
    }
    found: dict[tuple[int, ...], Room] = {}
    for name, (used, free, size) in left.get("room", {}).items():
        shared = name != "shm" or not left.get("shm_own", False)
        # Two places on one disk are one.
        found.setdefault((used, free, size), Room(paths[name], used, free, size, shared))
    return list(found.values())


def _place(room: Room, told: str | None = None) -> FullPlace:
    return FullPlace(
        path=room.path,
        used_bytes=room.used_bytes,
        size_bytes=room.size_bytes,
        shared=room.shared,
        told=told,
    )


def _shell_words(said: last_words.ShellError, plan: Plan | None) -> str:
    """Return what the shell said, with what a look at the file adds: shells call many things not found."""
    path = os.path.join(plan["cwd"], said.program.strip()) if plan is not None else ""
    if not path or not os.path.isfile(path):
        return said.line
    if not os.access(path, os.X_OK):
        return f"{said.line} (it is there, but not executable: chmod a+rx)"[:LINE_CHARS_MAX]
    if child.interpreter_is_missing(path):
        why = child.missing_interpreter(path).replace(path, said.program)
        return f"{said.line} ({why})"[:LINE_CHARS_MAX]
    return said.line


def _log_tail(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES)).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def _main_pid(task: Task) -> int | None:
    started = task.files.started()
    return None if started is None else started["pid"]


def _started_boot_ms(task: Task, ended: Ended) -> int:
    if ended.ended_boot_ms is not None and ended.duration_ms is not None:
        return ended.ended_boot_ms - ended.duration_ms
    started = task.files.started()
    ran_ms = 0 if started is None else max(0, now_ms() - started["at_ms"])
    return boot_ms() - ran_ms
