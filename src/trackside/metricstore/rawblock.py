"""Knows how the samples of one group of series and one hour become one block, and back.

Sections: slots u8 · clock of each slot u8 · samples of each clock u32 · the clocks' times (ms in the hour) ·
decimals of each slot u8 · then, for each number of decimals that occurs, ascending, the values of its slots.
Series that were read at the same moments share a clock, so most times are stored once.
"""

import numpy as np
import numpy.typing as npt

from trackside.metricstore import columns, sealed
from trackside.metricstore.columns import BINARY, Floats, Ints
from trackside.metricstore.layout import GROUP_BITS, HOUR_MS, block_group, block_time
from trackside.metricstore.samples import Samples

_SLOTS, _CLOCK_OF, _CLOCK_SIZES, _TIMES, _DECIMALS, _VALUES = range(6)


def encode(row: int, samples: Samples) -> bytes:
    """Return settled samples of one group and hour as a block."""
    starts = np.flatnonzero(np.diff(samples.ids, prepend=-1))
    ends = np.append(starts[1:], len(samples))
    slots = (samples.ids[starts] - (block_group(row) << GROUP_BITS)).astype(np.uint8)
    times = samples.at_ms - block_time(row) * HOUR_MS
    clock_of, clocks = _clocks(times, starts, ends)
    decimals = columns.decimals_of(samples.values, starts)
    of_each = np.repeat(decimals, ends - starts)
    return sealed.seal(
        sealed.RAW,
        row,
        [
            slots.tobytes(),
            clock_of.tobytes(),
            np.array([len(clock) for clock in clocks], dtype="<u4").tobytes(),
            columns.pack(np.concatenate(clocks)),
            decimals.tobytes(),
            *(_packed(samples.values[of_each == one], one) for one in np.unique(decimals).tolist()),
        ],
    )


def decode(row: int, data: bytes) -> Samples:
    """Return the samples of a block; raise BlockDamaged if it is not as it was stored."""
    sections = sealed.unseal(sealed.RAW, row, data)
    slots = np.frombuffer(sections[_SLOTS], np.uint8).astype(np.int64)
    clock_of = np.frombuffer(sections[_CLOCK_OF], np.uint8)
    clock_sizes = np.frombuffer(sections[_CLOCK_SIZES], "<u4").astype(np.int64)
    times = columns.unpack_ints(sections[_TIMES])
    sizes = clock_sizes[clock_of]
    values = _values(sections, sizes)
    if len(clock_sizes) == 1:
        at_ms = np.tile(times, len(slots))
    else:
        clocks = np.split(times, np.cumsum(clock_sizes)[:-1])
        at_ms = np.concatenate([clocks[one] for one in clock_of.tolist()])
    ids = np.repeat(slots + (block_group(row) << GROUP_BITS), sizes)
    return Samples(ids, at_ms + block_time(row) * HOUR_MS, values)


def _clocks(times: Ints, starts: Ints, ends: Ints) -> tuple[npt.NDArray[np.uint8], list[Ints]]:
    known: dict[bytes, int] = {}
    clocks: list[Ints] = []
    clock_of = np.empty(len(starts), np.uint8)
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        clock = times[start:end]
        number = known.setdefault(clock.tobytes(), len(clocks))
        if number == len(clocks):
            clocks.append(clock)
        clock_of[index] = number
    return clock_of, clocks


def _packed(values: Floats, decimals: int) -> bytes:
    return columns.pack(values if decimals == BINARY else columns.scale(values, decimals))


def _values(sections: list[bytes], sizes: Ints) -> Floats:
    decimals = np.frombuffer(sections[_DECIMALS], np.uint8)
    kinds = np.unique(decimals).tolist()
    of_each = np.repeat(decimals, sizes) if len(kinds) > 1 else None
    values = np.empty(int(sizes.sum()))
    for kind, section in zip(kinds, sections[_VALUES:], strict=True):
        where = slice(None) if of_each is None else of_each == kind
        if kind == BINARY:
            values[where] = columns.unpack_floats(section)
        else:
            values[where] = columns.unscale(columns.unpack_ints(section), kind)
    return values
