"""Knows how samples become records of the journal and back: what was acknowledged and is in no block yet.

what it is u8 = 1 rows, 2 samples | 0 u24 | bytes of the series u32 | number of times u32
| column of the series | times i64 each | values f64 each
"""

import sqlite3
import struct
from collections.abc import Iterator

import numpy as np

from trackside.metricstore import columns, sealed
from trackside.metricstore.columns import Floats, Ints
from trackside.metricstore.damage import Damage
from trackside.metricstore.samples import RowBatch, Samples

ROWS, SAMPLES = 1, 2

_HEAD = struct.Struct("<BxxxII")


def of_rows(rows: RowBatch) -> bytes:
    """Return rows as a record."""
    return _record(ROWS, rows.packed, rows.times, rows.table)


def of_samples(samples: Samples) -> bytes:
    """Return samples as a record."""
    return _record(SAMPLES, packed_ids(samples.ids), samples.at_ms, samples.values)


def packed_ids(ids: Ints) -> bytes:
    """Return the series of a record as bytes, soon rather than as few as can be."""
    return columns.pack(ids, quick=True)


def read(record: bytes) -> RowBatch | Samples:
    """Return what a record says."""
    kind, length, count = _HEAD.unpack_from(record)
    packed = record[_HEAD.size : _HEAD.size + length]
    ids = columns.unpack_ints(packed)
    times = np.frombuffer(record, "<i8", count, _HEAD.size + length).astype(np.int64)
    values = np.frombuffer(record, "<f8", -1, _HEAD.size + length + 8 * count).astype(np.float64)
    if kind == SAMPLES:
        return Samples(ids, times, values)
    return RowBatch(ids, ids.tobytes(), packed, times, values.reshape(count, len(ids)))


def of_format_3(connection: sqlite3.Connection, damage: Damage) -> Iterator[Samples]:
    """Yield what a file of format 3 holds in its table `tail`."""
    for seq, data in connection.execute("SELECT seq, data FROM tail ORDER BY seq"):
        try:
            ids, at_ms, values = sealed.unseal(sealed.TAIL, seq, data)
        except sealed.BlockDamaged as error:
            damage.report("tail", seq, error)
            continue
        yield Samples(columns.unpack_ints(ids), columns.unpack_ints(at_ms), columns.unpack_floats(values))


def _record(kind: int, packed: bytes, times: Ints, values: Floats) -> bytes:
    head = _HEAD.pack(kind, len(packed), len(times))
    return b"".join((head, packed, times.astype("<i8").tobytes(), values.astype("<f8", copy=False).tobytes()))
