"""Keeps answers for as long as what they tell has not changed; knows no content."""

from collections import OrderedDict
from typing import Generic, TypeVar

BYTES_MAX = 32 * 1024 * 1024
ENTRY_OVERHEAD_BYTES = 512

T = TypeVar("T")


class EncodedCache(Generic[T]):
    """Remember encoded answers by key, each for one version; the least recently used go first."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entry_bytes_max = bytes_max // 8  # one huge answer must not push out all the others
        self._entries: OrderedDict[object, tuple[object, T, int]] = OrderedDict()
        self._size = 0

    def get(self, key: object, version: object) -> T | None:
        """Return what was put for this key and version."""
        entry = self._entries.get(key)
        if entry is None or entry[0] != version:
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, key: object, version: object, answer: T, *, size_bytes: int) -> None:
        """Keep an answer in place of the key's former one."""
        former = self._entries.pop(key, None)
        if former is not None:
            self._size -= former[2]
        size = size_bytes + ENTRY_OVERHEAD_BYTES
        if size > self._entry_bytes_max:
            return
        self._entries[key] = (version, answer, size)
        self._size += size
        while self._size > self._bytes_max:
            _, dropped = self._entries.popitem(last=False)
            self._size -= dropped[2]

    def __len__(self) -> int:
        return len(self._entries)
