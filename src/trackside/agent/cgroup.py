"""Knows where control groups are, how a task's own are made, limited and removed; refuses to know processes.

Three worlds: v2 only, v1 only, and hybrid (limits in v1, `cgroup.kill` in a v2 tree without controllers).
Where nothing may be written there are no groups, and a task is a plain process tree without limits.
"""

import contextlib
import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from trackside.collect.probe import CgroupDirs
from trackside.domain.resources import Resources

PARENT = "trackside"
PIDS_MAX = 32768
PERIOD_US = 100_000
QUOTA_US_MIN = 1_000  # the kernel refuses less
QUOTA_FILES = ("cpu.cfs_quota_us", "cpu.max")
V1_CONTROLLERS = ("memory", "cpu", "cpuacct", "pids")
V2_CONTROLLERS = ("memory", "cpu", "pids")
REMOVE_SECONDS_MAX = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bases:
    """Name the directories below which groups may be made."""

    v1: dict[str, Path] = field(default_factory=dict)  # by controller
    unified: Path | None = None
    unified_controllers: frozenset[str] = frozenset()

    @property
    def limits_memory(self) -> bool:
        """Say whether a task's memory limit is enforced."""
        return "memory" in self.v1 or "memory" in self.unified_controllers


class Cgroups:
    """Make and remove the groups of tasks."""

    def __init__(self, bases: Bases) -> None:
        self._bases = bases
        self._handed_down = False

    @property
    def bases(self) -> Bases:
        """Return where groups are made."""
        return self._bases

    def create(self, name: str, resources: Resources) -> CgroupDirs | None:
        """Make a task's groups and set its limits; None where groups cannot be made."""
        dirs = self.dirs(name)
        try:
            for directory in _distinct(dirs):
                self._make(directory)
            for path, value in limits(dirs, self._bases.unified_controllers, resources):
                with contextlib.suppress(FileNotFoundError):  # not every kernel limits everything
                    _write(path, value)
        except OSError as error:
            _log.warning("no control group for %s: %s", name, error)
            self.remove(name)
            return None
        return dirs if _distinct(dirs) else None

    def _make(self, directory: Path) -> None:
        try:
            os.mkdir(directory)
        except FileExistsError:
            return
        except FileNotFoundError:  # the common parent went away with the last task of another agent
            directory.mkdir(parents=True, exist_ok=True)
            self._handed_down = False
        if directory.parent.parent == self._bases.unified and not self._handed_down:
            with contextlib.suppress(OSError):
                _hand_down(directory.parent)
            self._handed_down = True

    def dirs(self, name: str) -> CgroupDirs:
        """Return where the groups of that name are, whether or not they exist."""
        v1 = {controller: base / PARENT / name for controller, base in self._bases.v1.items()}
        unified = self._bases.unified
        return CgroupDirs(
            memory=v1.get("memory"),
            cpu=v1.get("cpu"),
            cpuacct=v1.get("cpuacct"),
            pids=v1.get("pids"),
            unified=None if unified is None else unified / PARENT / name,
        )

    def processes(self, name: str) -> set[int]:
        """Return every process in the groups of that name."""
        found: set[int] = set()
        for directory in _distinct(self.dirs(name)):
            with contextlib.suppress(OSError):
                found.update(int(line) for line in (directory / "cgroup.procs").read_text().split())
        return found - {0}  # 0: a process of another pid namespace, which is not ours to touch

    def kill(self, name: str) -> None:
        """Kill everything in the group at once, where the kernel can."""
        unified = self.dirs(name).unified
        if unified is not None:
            with contextlib.suppress(OSError):
                _write(unified / "cgroup.kill", "1")

    def remove(self, name: str) -> None:
        """Remove the groups of that name, waiting a little for dying processes to leave them."""
        deadline = time.monotonic() + REMOVE_SECONDS_MAX
        for directory in _distinct(self.dirs(name)):
            while not _removed(directory) and time.monotonic() < deadline:
                time.sleep(0.005)

    def remove_parents(self) -> None:
        """Remove the common parent where it is empty."""
        for base in {*self._bases.v1.values(), *([self._bases.unified] if self._bases.unified else [])}:
            _removed(base / PARENT)


def joins(dirs: CgroupDirs) -> list[str]:
    """Return the v1 files a task's first process writes itself into; v2 it is born in."""
    paths = (dirs.memory, dirs.cpu, dirs.cpuacct, dirs.pids)
    return list(dict.fromkeys(str(path / "tasks") for path in paths if path is not None))


def oom_file(dirs: CgroupDirs) -> str | None:
    """Return the file that counts the kills for lack of memory."""
    return _existing((dirs.memory, "memory.oom_control"), (dirs.unified, "memory.events"))


def memory_peak_file(dirs: CgroupDirs) -> str | None:
    """Return the file that holds the highest memory use."""
    return _existing((dirs.memory, "memory.max_usage_in_bytes"), (dirs.unified, "memory.peak"))


def limits(
    dirs: CgroupDirs, unified_controllers: frozenset[str], resources: Resources
) -> list[tuple[Path, str]]:
    """Return what to write where, in order; a kernel may not have all the files."""
    memory = str(resources.memory_bytes)
    quota = max(QUOTA_US_MIN, int(resources.cpu_cores * PERIOD_US))
    wanted = [
        (dirs.memory, "memory.limit_in_bytes", memory),
        (dirs.memory, "memory.memsw.limit_in_bytes", memory),  # memory and swap together
        (dirs.cpu, "cpu.cfs_period_us", str(PERIOD_US)),
        (dirs.cpu, "cpu.cfs_quota_us", str(quota)),
        (dirs.pids, "pids.max", str(PIDS_MAX)),
    ]
    unified = dirs.unified
    wanted += [
        (unified, name, value)
        for controller, name, value in (
            ("memory", "memory.max", memory),
            ("memory", "memory.swap.max", "0"),
            ("cpu", "cpu.max", f"{quota} {PERIOD_US}"),
            ("pids", "pids.max", str(PIDS_MAX)),
        )
        if controller in unified_controllers
    ]
    return [(directory / name, value) for directory, name, value in wanted if directory is not None]


def share(quota: str, part: float) -> str:
    """Return a part of a CPU quota, as the quota's file takes it."""
    time_us, *period = quota.split()
    return " ".join([str(max(QUOTA_US_MIN, int(int(time_us) * part))), *period])


def detect(proc: Path = Path("/proc/self")) -> Bases:
    """Find where this process may make groups for its tasks."""
    v1: dict[str, Path] = {}
    unified: Path | None = None
    mounts = _mounts((proc / "mountinfo").read_text())
    for line in (proc / "cgroup").read_text().splitlines():
        _, names, own = line.split(":", 2)
        for controller in names.split(",") if names else [""]:
            if controller not in mounts or (controller and controller not in V1_CONTROLLERS):
                continue
            mount, root = mounts[controller]
            candidates = _candidates(mount, root, own)
            if controller == "":
                unified = _choose_unified(candidates)
            elif (base := next((path for path in candidates if _may_make(path)), None)) is not None:
                v1[controller] = base
    return Bases(v1, unified, frozenset() if unified is None else _offered(unified))


def _mounts(mountinfo: str) -> dict[str, tuple[Path, str]]:
    """Return mount point and mounted root by v1 controller; "" is the v2 tree."""
    found: dict[str, tuple[Path, str]] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        names = {"cgroup2": [""], "cgroup": options.split(",")}.get(kind, [])
        for name in names:
            found.setdefault(name, (Path(point), root))
    return found


def _candidates(mount: Path, root: str, own: str) -> list[Path]:
    """Return our own group, if it can be seen through the mount, and then the mount's top."""
    relative = os.path.relpath(own, root)
    visible = not relative.startswith("..") and (mount / relative).is_dir()
    return list(dict.fromkeys([*([mount / relative] if visible else []), mount]))


def _choose_unified(candidates: list[Path]) -> Path | None:
    """Return the first place whose groups can have limits, else the first that can have groups at all."""
    usable = [path for path in candidates if _may_make(path)]
    for path in usable:
        # A group with processes of its own cannot hand controllers down; the top can.
        with contextlib.suppress(OSError):
            _hand_down(path)
    return max(usable, key=lambda path: len(_offered(path)), default=None)


def _hand_down(path: Path) -> None:
    available = (path / "cgroup.controllers").read_text().split()
    wanted = [f"+{name}" for name in V2_CONTROLLERS if name in available and name not in _offered(path)]
    if wanted:
        _write(path / "cgroup.subtree_control", " ".join(wanted))


def _offered(path: Path) -> frozenset[str]:
    """Return the controllers that groups below the path have."""
    with contextlib.suppress(OSError):
        return frozenset((path / "cgroup.subtree_control").read_text().split()) & frozenset(V2_CONTROLLERS)
    return frozenset()


def _may_make(base: Path) -> bool:
    return os.access(base, os.W_OK | os.X_OK)


def _distinct(dirs: CgroupDirs) -> list[Path]:
    paths = (dirs.memory, dirs.cpu, dirs.cpuacct, dirs.pids, dirs.unified)
    return list(dict.fromkeys(path for path in paths if path is not None))


def _existing(*choices: tuple[Path | None, str]) -> str | None:
    for directory, name in choices:
        if directory is not None and (directory / name).exists():
            return str(directory / name)
    return None


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _write(path: Path, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
