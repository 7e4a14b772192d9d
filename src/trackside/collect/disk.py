"""Knows how many bytes a task moved from and to its disks; knows no rates.

These are the bytes that reached the device layer (read_bytes and write_bytes of /proc/PID/io): reads
served from the page cache are not among them, and writes count when the page is made dirty.
"""

from trackside.collect.processes import ProcessTree


def read_disk(tree: ProcessTree) -> tuple[int, int] | None:
    """Return bytes read and written since the task's start; None where that is not for us to see."""
    return tree.disk_bytes


def disk_at_birth(tree: ProcessTree) -> tuple[int, int]:
    """Return what to count a newborn task from: what its shim read to start is not the task's."""
    return tree.shim_disk_bytes
