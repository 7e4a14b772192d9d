"""Knows how to count what a task used and how much room it left; refuses to say what that means.

Standard library only: the forker and the shims import this, and they must stay small.
"""

import contextlib
import os
from collections.abc import Mapping


class Totals:
    """What all reaped processes used."""

    def __init__(self) -> None:
        self.cpu_seconds = 0.0
        self.max_rss_bytes = 0
        self.read_bytes: int | None = None
        self.write_bytes: int | None = None

    def reap(self, pid: int) -> int:
        """Take a child that has ended, count what it used and return its wait status."""
        self._add_io(pid)
        _, status, usage = os.wait4(pid, 0)
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        self.max_rss_bytes = max(self.max_rss_bytes, usage.ru_maxrss * 1024)
        return status

    def _add_io(self, pid: int) -> None:
        """Count the bytes of a zombie, its reaped children included."""
        with contextlib.suppress(OSError), open(f"/proc/{pid}/io", "rb") as file:
            fields = dict(line.split(b": ") for line in file.read().splitlines())
            self.read_bytes = (self.read_bytes or 0) + int(fields[b"read_bytes"])
            self.write_bytes = (self.write_bytes or 0) + int(fields[b"write_bytes"])


def counter(path: str | None, name: bytes) -> int | None:
    """Return the number behind `name` in a file of "name number" lines; None if it cannot be read."""
    if path is None:
        return None
    with contextlib.suppress(OSError), open(path, "rb") as file:
        for line in file:
            words = line.split()
            if len(words) == 2 and words[0] == name:
                return int(words[1])
    return None


def number(path: str | None) -> int | None:
    """Return the number that a file holds; None if it cannot be read."""
    if path is None:
        return None
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        return int(file.read())
    return None


def room(places: Mapping[str, str | int]) -> dict[str, list[int]]:
    """Return the bytes used, free and in all at each place (a path or descriptor) that can be asked."""
    found = {}
    for name, place in places.items():
        with contextlib.suppress(OSError):
            disk = os.statvfs(place)
            used, free = disk.f_blocks - disk.f_bfree, disk.f_bavail
            found[name] = [blocks * disk.f_frsize for blocks in (used, free, disk.f_blocks)]
    return found
