"""Reads some series of a rollup block without decoding the others, and remembers what it decoded.

Knows the block's format (see `rollup`), not where blocks come from. Lowest and highest are not read here.
"""

import numpy as np
import numpy.typing as npt

from trackside.metricstore import columns, sealed
from trackside.metricstore.columns import BINARY, DIFFERENCES, POWERS, WIDTH_BITS, Bytes, Floats, Ints
from trackside.metricstore.layout import GROUP_SIZE, SPAN_MINUTES
from trackside.metricstore.rollup import COUNTS, SLOTS, TOTAL

ABSENT = -1
BINARY_CLASS = 255  # where the width class of whole numbers stands
STEPS_KEPT_MAX = 2  # step sizes whose sums are remembered
BYTES_PER_CELL = 20  # of a minute of a series: sum, count, and what is remembered of them
Counts = npt.NDArray[np.uint16]  # a minute has 60,000 moments at most


class SomeRollup:
    """One rollup block. Threads may share it: what two of them decode at once is the same."""

    def __init__(self, row: int, data: bytes) -> None:
        sections = sealed.unseal(sealed.ROLLUP, row, data)
        self.slots = np.frombuffer(sections[SLOTS], np.uint8)
        shape = (len(self.slots), SPAN_MINUTES)
        self.count: Counts = columns.unpack_ints(sections[COUNTS]).astype(np.uint16).reshape(shape)
        self._sizes = np.count_nonzero(self.count, axis=1)
        kinds, bases, rest, binary = sections[TOTAL : TOTAL + 4]
        self._kinds = np.frombuffer(kinds, np.uint8)
        self._columns = _Columns(self._kinds, rest, binary)
        self._bases = np.zeros(len(self.slots), np.int64)
        if bases:
            self._bases[self._kinds != BINARY] = columns.unpack_ints(bases)
        self._starts = _starts(self._columns.classes, self._sizes)
        self._total: Floats = np.empty(shape)
        self._known = np.zeros(len(self.slots), np.bool_)
        self._place = np.full(GROUP_SIZE, ABSENT, np.int64)
        self._place[self.slots] = np.arange(len(self.slots))
        # Series nearly always fill a group from its first slot on: then nobody has to look where they stand.
        self._dense = len(self.slots) > 0 and int(self.slots[-1]) == len(self.slots) - 1
        self._whole = False  # all is decoded
        self._steps: dict[int, tuple[Ints, Floats]] = {}

    @property
    def size_bytes(self) -> int:
        """Return how much memory this takes once everything is decoded."""
        return self.count.size * BYTES_PER_CELL

    def places(self, slots: Ints, slot_last: int) -> tuple[Ints, bool]:
        """Return where the series of some slots (ascending) stand, ABSENT where the block has none, and
        whether it has all of them."""
        if self._dense and slot_last < len(self.slots):
            return slots, True
        places = self._place[slots]
        return places, not (places == ABSENT).any()

    def total(self, places: Ints) -> Floats:
        """Return the sums of some series, minute by minute; meaningless where the count is 0."""
        self._decode(places)
        return self._total[places]

    def steps(self, places: Ints, minutes: int) -> tuple[Ints | Counts, Floats]:
        """Return counts and sums of some series, of each step of so many minutes of the span."""
        if minutes == 1:
            return self.count[places], self.total(places)
        found = self._steps.get(minutes)
        if found is None:
            if not self._whole and len(places) * 2 < len(self.slots):
                return _stepped(self.count[places], self.total(places), minutes)
            self.decode_all()
            found = _stepped(self.count, self._total, minutes)
            if len(self._steps) < STEPS_KEPT_MAX:
                self._steps[minutes] = found
        if len(places) == len(self.slots):  # slots ascend, and so do places
            return found
        return found[0][places], found[1][places]

    def decode_all(self) -> None:
        """Decode what is not decoded yet, so that nobody waits for it later."""
        self._decode(np.arange(len(self.slots)))

    def _decode(self, places: Ints) -> None:
        if self._whole or self._known[places].all():
            return
        for place in places[~self._known[places]].tolist():
            self._decode_one(place)
            self._known[place] = True
        if self._known.all():
            self._whole = True
            self._columns.let_go()

    def _decode_one(self, place: int) -> None:
        size, start = int(self._sizes[place]), int(self._starts[place])
        kind = int(self._kinds[place])
        column = self._columns.of(int(self._columns.classes[place]))[start : start + size]
        if kind != BINARY:
            if kind & DIFFERENCES:
                column = np.cumsum(column)
            column = (column + self._bases[place]) / POWERS[kind & BINARY]
        if size < SPAN_MINUTES:
            minutes = np.zeros(SPAN_MINUTES)
            minutes[self.count[place] > 0] = column
            column = minutes
        self._total[place] = column  # in one step: another thread may be reading what it decoded itself


class _Columns:
    """The packed columns of the sums, one per width class, each unpacked when it is first wanted."""

    def __init__(self, kinds: Bytes, rest: bytes, binary: bytes) -> None:
        self.classes: Bytes = np.where(kinds == BINARY, np.uint8(BINARY_CLASS), kinds >> np.uint8(WIDTH_BITS))
        self._packed: dict[int, bytes] = {BINARY_CLASS: binary}
        self._unpacked: dict[int, npt.NDArray[np.generic]] = {}
        widths = [one for one in np.unique(self.classes).tolist() if one != BINARY_CLASS]
        at = 4 * len(widths)
        for width, length in zip(widths, np.frombuffer(rest, "<u4", len(widths)).tolist(), strict=True):
            self._packed[width] = rest[at : at + length]
            at += length

    def of(self, width: int) -> npt.NDArray[np.generic]:
        """Return the numbers of a class."""
        found = self._unpacked.get(width)
        if found is None:
            unpack = columns.unpack_floats if width == BINARY_CLASS else columns.unpack_ints
            found = self._unpacked[width] = unpack(self._packed[width])
        return found

    def let_go(self) -> None:
        """Forget the numbers that were unpacked; they are unpacked anew if they are wanted after all."""
        self._unpacked = {}


def _starts(classes: Bytes, sizes: Ints) -> Ints:
    """Return where each segment begins in the column of its class."""
    order = np.argsort(classes, kind="stable")
    sorted_sizes = sizes[order]
    begins = np.cumsum(sorted_sizes) - sorted_sizes
    firsts = np.searchsorted(classes[order], classes[order])  # the first segment of each one's class
    starts = np.empty_like(begins)
    starts[order] = begins - begins[firsts]
    return starts


def _stepped(count: Counts, total: Floats, minutes: int) -> tuple[Ints, Floats]:
    shape = (len(count), SPAN_MINUTES // minutes, minutes)
    return count.reshape(shape).sum(axis=2, dtype=np.int64), total.reshape(shape).sum(axis=2)
