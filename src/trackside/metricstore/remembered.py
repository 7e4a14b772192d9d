"""Reads blocks through what was decoded before: rollups by series, and the newest samples of raw blocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import numpy as np

from trackside.metricstore import rawblock
from trackside.metricstore.blocks import Blocks
from trackside.metricstore.columns import Floats, Ints
from trackside.metricstore.decoded import Decoded
from trackside.metricstore.layout import GROUP_SIZE, block_row
from trackside.metricstore.sealed import BlockDamaged
from trackside.metricstore.somerollup import SomeRollup

ROLLUP, NEWEST = "rollup", "newest"  # kinds of what is remembered
SPANS = "spans"
KINDS = (ROLLUP, NEWEST)
BYTES_PER_SPAN = 40
NEVER_MS = -1

T = TypeVar("T", SomeRollup, "Newest")


@dataclass(frozen=True, slots=True, eq=False)
class Newest:
    """The newest sample, by slot, of a raw block."""

    at_ms: Ints  # NEVER_MS: it has none
    values: Floats

    @property
    def size_bytes(self) -> int:
        """Return how much memory this takes."""
        return self.at_ms.nbytes + self.values.nbytes


class Remembered:
    """The blocks of one snapshot, and what was made of them before it."""

    def __init__(self, blocks: Blocks, decoded: Decoded, mark: int) -> None:
        self.blocks = blocks
        self._decoded = decoded
        self._mark = mark

    def rollups(self, groups: Sequence[int], span: int) -> list[SomeRollup | None]:
        """Return the rollups of groups of a span; None where there is none, or it is damaged."""
        return self._all(_ROLLUPS, groups, span)

    def newest(self, groups: Sequence[int], span: int) -> list[Newest | None]:
        """Return the newest samples in the raw blocks of groups of a span; None where one is damaged."""
        return self._all(_NEWEST, groups, span)

    def raw_spans(self, first: int, last: int) -> list[int]:
        """Return the spans from one to another, the last included, that may have raw blocks."""
        known = self._decoded.get_if_nothing_changed(f"{SPANS} to {last}", first, self._mark)
        if known is not None:
            return cast(list[int], known[0])
        spans = self.blocks.raw_spans(first, last)
        size = len(spans) * BYTES_PER_SPAN
        self._decoded.put(f"{SPANS} to {last}", first, spans, size_bytes=size, mark=self._mark)
        return spans

    def _all(self, kind: "_Kind[T]", groups: Sequence[int], span: int) -> list[T | None]:
        rows = [block_row(span, group) for group in groups]
        known = [self._decoded.get(kind.name, row, self._mark) for row in rows]
        if None not in known:
            return [found[0] for found in known if found is not None]
        made = self._read(kind, [row for row, found in zip(rows, known, strict=True) if found is None])
        return [found[0] if found else made[row] for row, found in zip(rows, known, strict=True)]

    def _read(self, kind: "_Kind[T]", rows: Sequence[int]) -> dict[int, T | None]:
        made: dict[int, T | None] = dict.fromkeys(rows, kind.absent)
        for row, data in self.blocks.stored(kind.table, rows):
            try:
                made[row] = kind.decode(row, data)
            except BlockDamaged as error:
                self.blocks.damage.report(kind.table, row, error)
                made[row] = None
        for row, one in made.items():
            size = one.size_bytes if one and one is not kind.absent else 0
            self._decoded.put(kind.name, row, one, size_bytes=size, mark=self._mark)
        return made


@dataclass(frozen=True, slots=True)
class _Kind(Generic[T]):
    """Something that is made of the blocks of a table."""

    table: str
    name: str
    decode: Callable[[int, bytes], T]
    absent: T | None  # where there is no block


def _newest(row: int, data: bytes) -> Newest:
    samples = rawblock.decode(row, data)
    last = np.flatnonzero(np.diff(samples.ids, append=-1))
    slots = samples.ids[last] & (GROUP_SIZE - 1)
    at_ms, values = np.full(GROUP_SIZE, NEVER_MS), np.zeros(GROUP_SIZE)
    at_ms[slots], values[slots] = samples.at_ms[last], samples.values[last]
    return Newest(at_ms, values)


_NOTHING = Newest(np.full(GROUP_SIZE, NEVER_MS), np.zeros(GROUP_SIZE))
_ROLLUPS: _Kind[SomeRollup] = _Kind("rollup", ROLLUP, SomeRollup, None)
_NEWEST: _Kind[Newest] = _Kind("raw", NEWEST, _newest, _NOTHING)
