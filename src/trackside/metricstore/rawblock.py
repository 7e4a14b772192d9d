"""Knows how the samples of one group of series and one span become one block, and back.

Sections: slots u8 · clock of each slot u8 · samples of each clock u32 · the clocks' times (ms in the span) ·
the four sections of the values, a segment for each slot. Series that were read at the same moments share a
clock, so most times are stored once.
"""

import numpy as np

from trackside.metricstore import columns, sealed
from trackside.metricstore.columns import Bytes, Ints, Segments
from trackside.metricstore.layout import GROUP_BITS, SPAN_MS, block_group, block_span
from trackside.metricstore.samples import Samples

_SLOTS, _CLOCK_OF, _CLOCK_SIZES, _TIMES, _VALUES = range(5)


def encode(row: int, samples: Samples) -> bytes:
    """Return settled samples of one group and span as a block."""
    starts = np.flatnonzero(np.diff(samples.ids, prepend=-1))
    parts = Segments(starts, np.diff(starts, append=len(samples)))
    slots = (samples.ids[starts] - (block_group(row) << GROUP_BITS)).astype(np.uint8)
    clock_of, clocks = _clocks(samples.at_ms - block_span(row) * SPAN_MS, parts)
    decimals = columns.decimals_of(samples.values, parts)
    sections = [
        slots.tobytes(),
        clock_of.tobytes(),
        np.array([len(clock) for clock in clocks], dtype="<u4").tobytes(),
        columns.pack(np.concatenate(clocks)),
        *columns.pack_values(samples.values, decimals, parts),
    ]
    return sealed.seal(sealed.RAW, row, sections)


def decode(row: int, data: bytes) -> Samples:
    """Return the samples of a block; raise BlockDamaged if it is not as it was stored."""
    sections = sealed.unseal(sealed.RAW, row, data)
    slots = np.frombuffer(sections[_SLOTS], np.uint8).astype(np.int64)
    clock_of = np.frombuffer(sections[_CLOCK_OF], np.uint8)
    clock_sizes = np.frombuffer(sections[_CLOCK_SIZES], "<u4").astype(np.int64)
    times = columns.unpack_ints(sections[_TIMES])
    parts = columns.segments(clock_sizes[clock_of])
    if len(clock_sizes) == 1:
        at_ms = np.tile(times, len(slots))
    else:
        clocks = np.split(times, np.cumsum(clock_sizes)[:-1])
        at_ms = np.concatenate([clocks[one] for one in clock_of.tolist()])
    ids = parts.spread(slots + (block_group(row) << GROUP_BITS))
    values = columns.unpack_values(sections[_VALUES:], parts)
    return Samples(ids, at_ms + block_span(row) * SPAN_MS, values)


def _clocks(times: Ints, parts: Segments) -> tuple[Bytes, list[Ints]]:
    first = times[: int(parts.sizes[0])]
    if (parts.sizes == len(first)).all() and (times.reshape(len(parts), len(first)) == first).all():
        return np.zeros(len(parts), np.uint8), [first]
    known: dict[bytes, int] = {}
    clocks: list[Ints] = []
    clock_of = np.empty(len(parts), np.uint8)
    for index, (start, size) in enumerate(zip(parts.starts.tolist(), parts.sizes.tolist(), strict=True)):
        clock = times[start : start + size]
        number = known.setdefault(clock.tobytes(), len(clocks))
        if number == len(clocks):
            clocks.append(clock)
        clock_of[index] = number
    return clock_of, clocks
