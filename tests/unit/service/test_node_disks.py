"""Disks of machines: told together only where all were told, for a day at most."""

from trackside.domain.job import NodeId
from trackside.service.node_disks import MINUTES_MAX, Disk, NodeDisks

A, B = NodeId("a"), NodeId("b")


def test_only_minutes_in_which_all_spoke_are_told() -> None:
    disks = NodeDisks()
    disks.note(A, Disk(100, 60), 59_999)
    disks.note(A, Disk(100, 50), 60_000)
    disks.note(A, Disk(100, 40), 61_000)
    disks.note(B, Disk(10, 1), 119_999)
    minutes = range(0, 180_000, 60_000)
    assert disks.together([A], minutes) == {0: Disk(100, 60), 60_000: Disk(100, 40)}
    assert disks.together([A, B], minutes) == {60_000: Disk(110, 41)}
    assert disks.together([A, NodeId("silent")], minutes) == {}
    assert disks.together([], minutes) == {}


def test_old_minutes_are_forgotten() -> None:
    disks = NodeDisks()
    for minute in range(MINUTES_MAX + 3):
        disks.note(A, Disk(2, 1), minute * 60_000)
    kept = disks.together([A], range(0, (MINUTES_MAX + 3) * 60_000, 60_000))
    assert (len(kept), min(kept)) == (MINUTES_MAX, 3 * 60_000)
