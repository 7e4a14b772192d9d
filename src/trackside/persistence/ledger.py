"""Knows one table's values within a transaction: as stored, as wanted, and how to take back a part."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Ledger(Generic[K, V]):
    """Collect changes by key; None stands for a row that is not there."""

    def __init__(self, read: Callable[[K], V | None]) -> None:
        self._read = read
        self._stored: dict[K, V | None] = {}
        self._wanted: dict[K, V | None] = {}
        self._undo: list[tuple[K, V | None]] = []

    def get(self, key: K) -> V | None:
        """Return the value as this transaction sees it."""
        if key not in self._wanted:
            self._stored[key] = self._wanted[key] = self._read(key)
        return self._wanted[key]

    def put(self, key: K, value: V | None) -> None:
        """Want this value; None removes it."""
        self._undo.append((key, self.get(key)))
        self._wanted[key] = value

    def add(self, key: K, value: V) -> bool:
        """Want a new row under a key that was never used, without looking; False if it is known here."""
        if self._wanted.setdefault(key, None) is not None:
            return False
        self._stored.setdefault(key, None)
        self.put(key, value)
        return True

    def mark(self) -> int:
        """Return the point to which `rollback` can return."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Take back everything since the mark."""
        while len(self._undo) > mark:
            key, value = self._undo.pop()
            self._wanted[key] = value

    def keys(self) -> Iterator[K]:
        """Yield every key that was looked at."""
        return iter(self._stored)

    def changes(self) -> Iterator[tuple[K, V | None, V | None]]:
        """Yield key, stored and wanted value of what differs."""
        for key, wanted in self._wanted.items():
            stored = self._stored[key]
            if wanted is not stored and wanted != stored:
                yield key, stored, wanted
