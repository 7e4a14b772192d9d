"""Knows how one column of numbers becomes bytes and back; knows neither series nor times.

Decimals with few digits, which is what sensors report, are kept as whole numbers. Each segment of a column (a
series) is kept as what it is off from its median, or from the number before, whichever is less.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

DECIMALS_MAX = 6
BINARY = 127  # instead of decimals: the segment is kept as binary floating point
DIFFERENCES = 128  # added to the decimals: the segment is kept as differences
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
    found = np.full(len(parts), BINARY, dtype=np.uint8)
    for decimals in range(DECIMALS_MAX + 1):
        scaled = np.rint(values * 10.0**decimals)
        exact = (scaled / 10.0**decimals == values) & (np.abs(scaled) < WHOLE_MAX)
        whole = np.logical_and.reduceat(exact, parts.starts)
        found[whole & (found == BINARY)] = decimals
        if (found != BINARY).all():
            break
    return found


def pack_values(values: Floats, decimals: Bytes, parts: Segments) -> list[bytes]:
    """Return four sections: how each segment is kept, where each begins, the whole numbers, the binary."""
    binary = decimals == BINARY
    if not binary.any():
        kinds, bases, rest = _centred(_scaled(values, parts.spread(decimals)), decimals, parts)
        return [kinds.tobytes(), pack(bases), _packed(rest, _CENTRED), b""]
    of_each = parts.spread(binary)
    kinds, whole = decimals.copy(), [b"", b""]
    if not binary.all():
        some = parts.where(~binary)
        scaled = _scaled(values[~of_each], some.spread(decimals[~binary]))
        kinds[~binary], bases, rest = _centred(scaled, decimals[~binary], some)
        whole = [pack(bases), _packed(rest, _CENTRED)]
    return [kinds.tobytes(), *whole, pack(values[of_each])]


def unpack_values(sections: list[bytes], parts: Segments) -> Floats:
    """Return the values of four sections."""
    kinds = np.frombuffer(sections[0], np.uint8)
    binary = kinds == BINARY
    if not binary.any():
        return _decentred(kinds, sections[1], sections[2], parts)
    of_each = parts.spread(binary)
    values = np.empty(len(of_each))
    if not binary.all():
        values[~of_each] = _decentred(kinds[~binary], sections[1], sections[2], parts.where(~binary))
    values[of_each] = unpack_floats(sections[3])
    return values


def _scaled(values: Floats, decimals: npt.NDArray[Any]) -> Ints:
    scaled: Ints = np.rint(values * _POWERS[decimals]).astype(np.int64)
    return scaled


def _centred(whole: Ints, decimals: Bytes, parts: Segments) -> tuple[Bytes, Ints, Ints]:
    """Return kind and base of each segment, and what its numbers are off by."""
    ends = parts.starts + parts.sizes
    middles = np.array(
        [
            np.partition(whole[a:b], (b - a) // 2)[(b - a) // 2]
            for a, b in zip(parts.starts, ends, strict=True)
        ],
        np.int64,
    )
    off = whole - parts.spread(middles)
    steps = np.diff(whole, prepend=0)
    steps[parts.starts] = 0
    costs = [np.add.reduceat(np.log2(1.0 + np.abs(one)), parts.starts) for one in (off, steps)]
    stepped = costs[1] < costs[0]
    kinds = decimals + np.where(stepped, DIFFERENCES, 0).astype(np.uint8)
    bases = np.where(stepped, whole[parts.starts], middles)
    return kinds, bases, np.where(parts.spread(stepped), steps, off)


def _decentred(kinds: Bytes, bases: bytes, rest: bytes, parts: Segments) -> Floats:
    whole = unpack_ints(rest)
    stepped = kinds >= DIFFERENCES
    if stepped.any():
        run = np.cumsum(whole)
        run -= parts.spread(run[parts.starts])  # the first difference of a segment is nothing
        whole = run if stepped.all() else np.where(parts.spread(stepped), run, whole)
    whole = whole + parts.spread(unpack_ints(bases))
    decimals = kinds & (DIFFERENCES - 1)
    if (decimals == decimals[0]).all():
        values: Floats = whole / _POWERS[decimals[0]]
    else:
        values = whole / parts.spread(_POWERS[decimals])
    return values


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


_POWERS = 10.0 ** np.arange(DECIMALS_MAX + 1)
