"""Knows how one column of numbers becomes bytes and back; knows neither series nor times.

Decimals with few digits, which is what sensors report, are kept as whole numbers. Each segment of a column (a
series) is kept as what it is off from its median, or from the number before, whichever is less.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Where = slice | npt.NDArray[np.int64]  # some numbers of a column

DECIMALS_MAX = 6
BINARY = 7  # instead of decimals: the segment is kept as binary floating point
DIFFERENCES = 8  # added to the decimals: the segment is kept as differences
WIDTH_BITS = 4  # above them: how wide its numbers are, so that like are packed with like
WIDTHS = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 12.0, 20.0])  # in bits
WIDTHS_FROM = 2048  # numbers; of fewer it is not worth it
LOOKED_AT = 8  # numbers of each segment, to guess its decimals
SOME_FROM = 64  # numbers of a segment: of so many some tell what they are like
WHOLE_MAX = float(1 << 53)  # up to here a float tells whole numbers apart

_SMALL = ChunkConfig()
_CENTRED = ChunkConfig(delta_spec=DeltaSpec.no_op())
_QUICK = ChunkConfig(
    compression_level=2, mode_spec=ModeSpec.classic(), delta_spec=DeltaSpec.try_consecutive(1)
)


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Where the segments of a column begin and how long they are."""

    starts: Ints
    sizes: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def spread(self, each: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what is told of each segment, told of each of its numbers."""
        return np.repeat(each, self.sizes)

    def where(self, chosen: Bools) -> "Segments":
        """Return some of them as if they stood side by side."""
        return segments(self.sizes[chosen])


def segments(sizes: Ints) -> Segments:
    """Return segments of these sizes, one after the other; none may be empty."""
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    return Segments(starts, sizes)


def pack(column: npt.NDArray[Any], *, quick: bool = False) -> bytes:
    """Return a column as bytes: as few as can be, or soon."""
    return _packed(column, _QUICK if quick else _SMALL)


def unpack_ints(data: bytes) -> Ints:
    """Return a column of whole numbers."""
    return _unpacked(data, np.dtype(np.int64))


def unpack_floats(data: bytes) -> Floats:
    """Return a column of binary floats."""
    return _unpacked(data, np.dtype(np.float64))


def decimals_of(values: Floats, parts: Segments) -> Bytes:
    """Return, per segment, how few decimals tell all its values exactly; BINARY where none do."""

    def exact(where: Where, powers: Floats) -> Bools:
        scaled = np.rint(values[where] * powers)
        told: Bools = (scaled / powers == values[where]) & (np.abs(scaled) < WHOLE_MAX)
        return told

    return fewest_decimals(exact, parts)


def fewest_decimals(exact: Callable[[Where, Floats], Bools], parts: Segments) -> Bytes:
    """Return, per segment, how few decimals are exact for all its numbers; BINARY where none are.

    `exact` says it of some numbers, each scaled by a power of ten. A few numbers of each segment say how many
    decimals it needs at least; mostly that is enough for the others.
    """
    found = np.full(len(parts), BINARY, np.uint8)
    first = parts.starts[:, None] + np.minimum(np.arange(LOOKED_AT), parts.sizes[:, None] - 1)
    for decimals in range(DECIMALS_MAX, -1, -1):
        found[exact(first, np.full(first.shape, POWERS[decimals])).all(axis=1)] = decimals
    unsure = found != BINARY
    while unsure.any():
        some = parts.where(unsure)
        where = slice(None) if unsure.all() else np.flatnonzero(parts.spread(unsure))
        told = np.logical_and.reduceat(exact(where, some.spread(POWERS[found[unsure]])), some.starts)
        unsure[unsure] = ~told
        found[unsure] += 1  # one more than the most is BINARY
        unsure &= found != BINARY
    return found


def pack_values(values: Floats, decimals: Bytes, parts: Segments) -> list[bytes]:
    """Return four sections: how each segment is kept, where each begins, the whole numbers, the binary."""
    binary = decimals == BINARY
    if not binary.any():
        return [*_pack_whole(values, decimals, parts), b""]
    of_each = parts.spread(binary)
    kinds, whole = decimals.copy(), [b"", b""]
    if not binary.all():
        own, *whole = _pack_whole(values[~of_each], decimals[~binary], parts.where(~binary))
        kinds[~binary] = np.frombuffer(own, np.uint8)
    return [kinds.tobytes(), *whole, pack(values[of_each])]


def unpack_values(sections: list[bytes], parts: Segments) -> Floats:
    """Return the values of four sections."""
    kinds = np.frombuffer(sections[0], np.uint8)
    binary = kinds == BINARY
    if not binary.any():
        return _unpack_whole(kinds, sections[1], sections[2], parts)
    of_each = parts.spread(binary)
    values = np.empty(len(of_each))
    if not binary.all():
        values[~of_each] = _unpack_whole(kinds[~binary], sections[1], sections[2], parts.where(~binary))
    values[of_each] = unpack_floats(sections[3])
    return values


def _pack_whole(values: Floats, decimals: Bytes, parts: Segments) -> list[bytes]:
    """Return kinds, bases, and what the numbers are off from them, in as many columns as there are widths."""
    whole: Ints = np.rint(values * parts.spread(POWERS[decimals])).astype(np.int64)
    off, middles = _from_middles(whole, parts)
    steps = np.diff(whole, prepend=0)
    steps[parts.starts] = 0
    bits = [_bits(one, parts) for one in (off, steps)]
    stepped = bits[1] < bits[0]
    rest = np.where(parts.spread(stepped), steps, off)
    widths = np.zeros(len(parts), np.uint8)
    if len(rest) >= WIDTHS_FROM:
        widths = np.searchsorted(WIDTHS, np.minimum(*bits)).astype(np.uint8)
    kinds = decimals | np.where(stepped, DIFFERENCES, 0).astype(np.uint8) | (widths << WIDTH_BITS)
    bases = np.where(stepped, whole[parts.starts], middles)
    present = np.unique(widths)
    packed = [_packed(rest[where], _CENTRED) for where in _of_widths(present, widths, parts)]
    lengths = np.array([len(one) for one in packed], "<u4").tobytes()
    return [kinds.tobytes(), pack(bases), b"".join([lengths, *packed])]


def _unpack_whole(kinds: Bytes, bases: bytes, rest: bytes, parts: Segments) -> Floats:
    widths: Bytes = kinds >> np.uint8(WIDTH_BITS)
    present = np.unique(widths)
    lengths = np.frombuffer(rest, "<u4", len(present)).tolist()
    whole = np.empty(int(parts.sizes.sum()), np.int64)
    at = 4 * len(lengths)
    for length, where in zip(lengths, _of_widths(present, widths, parts), strict=True):
        whole[where] = unpack_ints(rest[at : at + length])
        at += length
    stepped = (kinds & DIFFERENCES) > 0
    if stepped.any():
        run = np.cumsum(whole)
        run -= parts.spread(run[parts.starts])  # the first difference of a segment is nothing
        whole = run if stepped.all() else np.where(parts.spread(stepped), run, whole)
    whole += parts.spread(unpack_ints(bases))
    values: Floats = whole / parts.spread(POWERS[kinds & BINARY])
    return values


def _from_middles(whole: Ints, parts: Segments) -> tuple[Ints, Ints]:
    """Return what each number is off from the middle of its segment, and the middles.

    These are medians of some of them: any number will do, this one is near most.
    """
    if len(parts) and (parts.sizes == parts.sizes[0]).all():
        size = int(parts.sizes[0])
        some = whole.reshape(len(parts), size)[:, :: 4 if size >= SOME_FROM else 1]
        middle = some.shape[1] // 2
        middles: Ints = np.partition(some, middle, axis=1)[:, middle]
        return whole - parts.spread(middles), middles
    middles = np.empty(len(parts), np.int64)
    for index, (start, size) in enumerate(zip(parts.starts.tolist(), parts.sizes.tolist(), strict=True)):
        middles[index] = np.partition(whole[start : start + size], size // 2)[size // 2]
    return whole - parts.spread(middles), middles


def _bits(numbers: Ints, parts: Segments) -> Floats:
    """Return about how many bits a number of each segment takes."""
    bits = np.log2((1.0 + np.abs(numbers)).astype(np.float32))  # six times as fast as of 64 bits
    means: Floats = np.add.reduceat(bits, parts.starts) / parts.sizes
    return means


def _of_widths(present: Bytes, widths: Bytes, parts: Segments) -> Iterator[slice | Bools]:
    """Yield where the numbers of each width stand."""
    if len(present) == 1:
        yield slice(None)
        return
    of_each = parts.spread(widths)
    for width in present:
        yield of_each == width


def _packed(column: npt.NDArray[Any], config: ChunkConfig) -> bytes:
    packed: bytes = standalone.simple_compress(np.ascontiguousarray(column), config)
    return packed


def _unpacked(data: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    column = standalone.simple_decompress(data)
    if column is None:
        return np.empty(0, dtype=dtype)
    if column.dtype != dtype:
        raise ValueError(f"a column of {column.dtype} stands where {dtype} belongs")
    return np.asarray(column)


POWERS = 10.0 ** np.arange(DECIMALS_MAX + 1)
