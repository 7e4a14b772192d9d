"""Remembers what was decoded of blocks for as long as the blocks stay as they are; knows no content.

A block changes when late samples are merged into it, when its raw samples go, and when it is removed. Whoever
changes blocks does so within `changing`. A reader takes a mark before it takes its snapshot of the file, and
meets only what was made of the blocks as they were then; while blocks are being changed there is no mark to
take, and the file alone answers.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

BYTES_MAX = 128 * 1024 * 1024
ENTRY_OVERHEAD_BYTES = 256  # also what it takes to remember that there is no block
NO_MARK = -1


class _Entry(NamedTuple):
    value: Any
    size_bytes: int
    mark: int


class Decoded:
    """What was decoded last, by kind and row; the least recently used goes first."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, int], _Entry] = OrderedDict()
        self._bytes = 0
        self._changes = 0
        self._changing = False

    def mark(self) -> int:
        """Return what must be taken before the file is read, and given with every question."""
        return NO_MARK if self._changing else self._changes

    def get(self, kind: str, row: int, mark: int) -> tuple[Any] | None:
        """Return what was put, if it was and still holds."""
        with self._lock:
            found = self._entries.get((kind, row))
            if found is None or found.mark > mark or self._changing:
                return None
            self._entries.move_to_end((kind, row))
            return (found.value,)

    def get_if_nothing_changed(self, kind: str, row: int, mark: int) -> tuple[Any] | None:
        """Return what was put if no block at all has changed since."""
        with self._lock:
            found = self._entries.get((kind, row))
            return (found.value,) if found is not None and found.mark == mark == self.mark() else None

    def put(self, kind: str, row: int, value: Any, *, size_bytes: int, mark: int) -> None:
        """Keep what was decoded, unless blocks have changed since the mark was taken."""
        size = size_bytes + ENTRY_OVERHEAD_BYTES
        with self._lock:
            if mark != self.mark():
                return
            self._drop((kind, row))
            self._entries[kind, row] = _Entry(value, size, mark)
            self._bytes += size
            while self._bytes > self._bytes_max:
                self._drop(next(iter(self._entries)))

    @contextmanager
    def changing(self, rows: Iterable[int] | None, *kinds: str) -> Iterator[None]:
        """Change blocks, and forget what was made of these rows (None: of all)."""
        with self._lock:
            self._changing = True
        try:
            yield
        finally:
            with self._lock:
                for key in list(self._entries) if rows is None else [(k, row) for row in rows for k in kinds]:
                    self._drop(key)
                self._changes += 1
                self._changing = False

    @property
    def size_bytes(self) -> int:
        """Return how much memory is taken."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self, key: tuple[str, int]) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self._bytes -= found.size_bytes
