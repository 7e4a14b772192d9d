"""Knows how one column of numbers becomes bytes and back; knows neither series nor times.

A column of decimals with few digits, which is what sensors report, is kept as whole numbers and one exponent.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

BINARY = 255  # the exponent of a column that is kept as binary floating point
DECIMALS_MAX = 6
WHOLE_MAX = float(1 << 53)  # up to here a float tells whole numbers apart
ROUNDING = 4e-16  # what one addition of floats may be off by, relative, with room

_SMALL = ChunkConfig()
_QUICK = ChunkConfig(
    compression_level=2, mode_spec=ModeSpec.classic(), delta_spec=DeltaSpec.try_consecutive(1)
)


def pack(column: npt.NDArray[Any], *, quick: bool = False) -> bytes:
    """Return the column as bytes: as few as can be, or soon."""
    packed: bytes = standalone.simple_compress(np.ascontiguousarray(column), _QUICK if quick else _SMALL)
    return packed


def unpack_ints(data: bytes) -> Ints:
    """Return a column of whole numbers."""
    return _unpacked(data, np.dtype(np.int64))


def unpack_floats(data: bytes) -> Floats:
    """Return a column of binary floats."""
    return _unpacked(data, np.dtype(np.float64))


def decimals_of(values: Floats, starts: Ints) -> npt.NDArray[np.uint8]:
    """Return, per segment, how few decimals tell all its values exactly; BINARY where none do."""
    found = np.full(len(starts), BINARY, dtype=np.uint8)
    for decimals in range(DECIMALS_MAX + 1):
        scaled = np.rint(values * 10.0**decimals)
        exact = (scaled / 10.0**decimals == values) & (np.abs(scaled) < WHOLE_MAX)
        whole = np.logical_and.reduceat(exact, starts)
        found[whole & (found == BINARY)] = decimals
        if (found != BINARY).all():
            break
    return found


def scale(values: Floats, decimals: int) -> Ints:
    """Return decimals as whole numbers."""
    return np.rint(values * 10.0**decimals).astype(np.int64)


def unscale(whole: Ints, decimals: int) -> Floats:
    """Return whole numbers as the decimals they stand for."""
    return whole / 10.0**decimals if decimals else whole.astype(np.float64)


def _unpacked(data: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    column = standalone.simple_decompress(data)
    if column is None:
        return np.empty(0, dtype=dtype)
    if column.dtype != dtype:
        raise ValueError(f"a column of {column.dtype} stands where {dtype} belongs")
    return np.asarray(column)
