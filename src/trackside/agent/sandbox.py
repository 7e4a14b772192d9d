"""Knows as whom tasks run, what of the file system they can reach, and what their environment holds.

It plans; a task's own first process carries the plan out (see child.py). Refuses to know jobs.
"""

import os
import pwd
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from trackside.agent.record import Cover
from trackside.agent.tree import KEY_VARIABLE
from trackside.domain.resources import Accelerator, Capacity

DEFAULT_TASK_USER = "nobody"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOCALE = "C.UTF-8"

VISIBLE_CARDS = {
    Accelerator.GPU: "CUDA_VISIBLE_DEVICES",
    Accelerator.NPU: "ASCEND_VISIBLE_DEVICES",
}


class NoSuchUser(Exception):
    """The configured task user does not exist on this machine."""


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom a task runs. `drop` is false when that is who we are already."""

    name: str
    uid: int
    gid: int
    drop: bool


def identity(task_user: str, euid: int | None = None) -> Identity:
    """Return as whom tasks run: the task user if we are root, else ourselves."""
    euid = os.geteuid() if euid is None else euid
    if euid != 0:
        return Identity(_name_of(euid), euid, os.getegid(), drop=False)
    try:
        entry = pwd.getpwnam(task_user)
    except KeyError as error:
        raise NoSuchUser(f"there is no user {task_user!r}: create it or set another task_user") from error
    return Identity(task_user, entry.pw_uid, entry.pw_gid, drop=entry.pw_uid != 0)


def covers(who: Identity, needed: Iterable[Path], *, own: Path, own_root: Path) -> list[Cover]:
    """Plan what to hide and show so that `who` can reach each needed path, and nothing else there.

    `own` is the task's directory below `own_root`, where all tasks have theirs: what holds for the root
    holds for all of them.
    """
    if not who.drop:
        return []
    root, minute = str(own_root), int(time.monotonic() // 60)
    planned: list[Cover] = [
        {"at": at, "binds": [[str(own), str(own)] if bind[0] == root else list(bind) for bind in binds]}
        for at, binds in _covers(who, (*needed, own_root), minute)
    ]
    if any(bind[0] == str(own) for cover in planned for bind in cover["binds"]):
        return planned
    found = _covers(who, (*needed, own), minute)
    return [{"at": at, "binds": [list(bind) for bind in binds]} for at, binds in found]


@lru_cache(maxsize=1024)
def _covers(
    who: Identity, needed: tuple[Path, ...], minute: int
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    del minute  # directories may change: what was found is kept for no longer than one
    planned: dict[str, list[tuple[str, str]]] = {}
    reached: list[Path] = []
    for source, target in sorted(_places(needed), key=lambda place: len(place[1].parts)):
        around = max(
            (path for path in reached if path in target.parents), key=lambda p: len(p.parts), default=None
        )
        blocker = _blocker(who, target, around)
        if blocker is not None:
            planned.setdefault(str(blocker), []).append((str(source), str(target)))
        reached.append(target)
    return tuple((at, tuple(planned[at])) for at in sorted(planned, key=lambda at: at.count("/")))


def python_paths() -> list[Path]:
    """Return where the agent's own Python lives: tasks run it unless told otherwise."""
    return [Path(sys.prefix), Path(sys.base_prefix)]


def environment(
    *,
    who: Identity,
    key: str,
    home: Path,
    tmp_dir: str,
    path_prefix: Iterable[str],
    given: Mapping[str, str],
    agent_environment: Mapping[str, str],
) -> dict[str, str]:
    """Build a task's environment from nothing: only the search path and time zone come from the agent."""
    path = [
        *path_prefix,
        os.path.dirname(sys.executable),
        agent_environment.get("PATH", DEFAULT_PATH),
    ]
    built = {
        "PATH": ":".join(path),
        "HOME": str(home),
        "USER": who.name,
        "LOGNAME": who.name,
        "LANG": LOCALE,
        "LC_ALL": LOCALE,
        "TMPDIR": tmp_dir,
        "PYTHONUNBUFFERED": "1",
    }
    if "TZ" in agent_environment:
        built["TZ"] = agent_environment["TZ"]
    return {**built, **given, KEY_VARIABLE: key}


def card_environment(accelerator: Accelerator, cards: tuple[int, ...], node: Capacity) -> dict[str, str]:
    """Show a task its own cards; on a node that has cards, hide all the others."""
    built = {name: "" for family, name in VISIBLE_CARDS.items() if node.cards(family) > 0}
    if cards and accelerator in VISIBLE_CARDS:
        built[VISIBLE_CARDS[accelerator]] = ",".join(str(card) for card in cards)
    return built


def _places(needed: Iterable[Path]) -> set[tuple[Path, Path]]:
    """Return (source, target) of each path as it is written and as its symlinks resolve."""
    places = set()
    for path in needed:
        if path.exists():
            resolved = path.resolve()
            places.add((resolved, resolved))
            places.add((resolved, path.parent.resolve() / path.name))
    return places


def _blocker(who: Identity, target: Path, around: Path | None) -> Path | None:
    """Return the topmost directory above the target, below `around`, that the user may not pass."""
    for directory in reversed(target.parents):
        inside = around is None or (directory != around and around in directory.parents)
        if inside and not _may_pass(who, directory):
            return directory
    return None


def _may_pass(who: Identity, directory: Path) -> bool:
    status = directory.stat()
    if status.st_uid == who.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == who.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
