"""Knows the tail: what was acknowledged and is not in blocks yet, one row per commit."""

import sqlite3
from collections.abc import Iterator

from trackside.metricstore import columns, sealed
from trackside.metricstore.damage import Damage
from trackside.metricstore.samples import Samples


def append(writer: sqlite3.Connection, samples: Samples) -> None:
    """Add samples, in the caller's transaction."""
    seq = last_seq(writer) + 1  # a number may come again once its row is gone: nothing refers to it
    parts = [columns.pack(column, quick=True) for column in (samples.ids, samples.at_ms, samples.values)]
    writer.execute("INSERT INTO tail (seq, data) VALUES (?, ?)", (seq, sealed.seal(sealed.TAIL, seq, parts)))


def last_seq(connection: sqlite3.Connection) -> int:
    """Return the number of the last row."""
    (seq,) = connection.execute("SELECT max(seq) FROM tail").fetchone()
    return int(seq or 0)


def cut(writer: sqlite3.Connection, through: int) -> None:
    """Remove the rows up to a number, in the caller's transaction."""
    writer.execute("DELETE FROM tail WHERE seq <= ?", (through,))


def replay(connection: sqlite3.Connection, damage: Damage) -> Iterator[Samples]:
    """Yield everything in the tail."""
    for seq, data in connection.execute("SELECT seq, data FROM tail ORDER BY seq"):
        try:
            ids, at_ms, values = sealed.unseal(sealed.TAIL, seq, data)
        except sealed.BlockDamaged as error:
            damage.report("tail", seq, error)
            continue
        yield Samples(columns.unpack_ints(ids), columns.unpack_ints(at_ms), columns.unpack_floats(values))
