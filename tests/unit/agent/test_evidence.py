"""When a place counts as full, and what the end of a log adds to that."""

import pytest

from trackside.agent.evidence import Room, full_places, is_full

MIB, GIB = 1024**2, 1024**3


def room(path: str, free: int, size: int, *, shared: bool = True) -> Room:
    return Room(path, size - free, free, size, shared)


@pytest.mark.parametrize(
    ("free", "size", "full"),
    [
        (0, MIB, True),
        (63 * 1024, MIB, True),
        (65 * 1024, MIB, False),
        (GIB // 101, GIB, True),
        (GIB // 99, GIB, False),
        (100 * MIB, 1000 * GIB, False),
        (10 * MIB, 1000 * GIB, True),
        (0, 0, False),
    ],
)
def test_full_is_less_than_a_hundredth_but_never_more_than_16_mib(free: int, size: int, full: bool) -> None:
    assert is_full(room("/x", free, size)) is full


def test_full_places_are_told_with_their_size() -> None:
    (place,) = full_places([room("/dev/shm", 0, 64 * MIB, shared=False), room("/w", GIB, 2 * GIB)], [])
    assert (place.path, place.used_bytes, place.size_bytes) == ("/dev/shm", 64 * MIB, 64 * MIB)
    assert (place.shared, place.told) == (False, None)


def test_a_log_tells_of_a_place_that_has_room_again() -> None:
    rooms = [
        room("/dev/shm", MIB, 2 * MIB, shared=False),
        room("/w", GIB, 9 * GIB),
        room("/tmp/t", GIB, 8 * GIB),
    ]
    (shm,) = full_places(rooms, ["unable to write to file </torch_1>: No space left on device"])
    assert shm.path == "/dev/shm"
    assert shm.told == "unable to write to file </torch_1>: No space left on device"
    (named,) = full_places(rooms, ["[Errno 28] No space left on device: '/tmp/t/x'"])
    assert named.path == "/tmp/t"
    (fullest,) = full_places(rooms, ["[Errno 28] No space left on device"])
    assert fullest.path == "/w"
    assert full_places(rooms, ["bye"]) == ()
    assert full_places([], ["No space left on device"]) == ()


def test_what_was_seen_goes_before_what_was_said() -> None:
    rooms = [room("/dev/shm", MIB, 2 * MIB), room("/w", 0, 9 * GIB)]
    (place,) = full_places(rooms, ["No space left on device: /dev/shm/x"])
    assert (place.path, place.told) == ("/w", None)
