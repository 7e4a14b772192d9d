"""Decodes the newest rollups before they are asked for; knows when to leave off, and answers nothing."""

import time
from collections.abc import Callable

from trackside.metricstore.database import Database
from trackside.metricstore.decoded import NO_MARK, Decoded
from trackside.metricstore.remembered import ROLLUP
from trackside.metricstore.sealed import BlockDamaged
from trackside.metricstore.somerollup import SomeRollup

BYTES_MAX = 48 * 1024 * 1024  # of what is remembered
ROWS_AT_ONCE = 4
PAUSE_SECONDS = 0.002  # between them: whoever asks meanwhile comes first

_NEWEST = "SELECT id, data FROM rollup WHERE id < ? ORDER BY id DESC LIMIT ?"
_BEYOND = 1 << 62


def read_ahead(
    database: Database, decoded: Decoded, stop: Callable[[], bool], *, bytes_max: int = BYTES_MAX
) -> int:
    """Decode rollups, the newest first, as far as they fit and are not known yet; return how many were."""
    before, room, made = _BEYOND, bytes_max, 0
    while room > 0 and not stop():
        mark = decoded.mark()
        if mark == NO_MARK:
            return made
        with database.snapshot() as connection:
            rows = connection.execute(_NEWEST, (before, ROWS_AT_ONCE)).fetchall()
        if not rows:
            return made
        for row, data in rows:
            rollup = _known(decoded, row, mark) or _decoded(row, data)
            if rollup is not None:
                made += 1
                room -= rollup.size_bytes
                decoded.put(ROLLUP, row, rollup, size_bytes=rollup.size_bytes, mark=mark)
        before = rows[-1][0]
        time.sleep(PAUSE_SECONDS)
    return made


def _known(decoded: Decoded, row: int, mark: int) -> SomeRollup | None:
    found = decoded.get(ROLLUP, row, mark)
    return found[0] if found else None


def _decoded(row: int, data: bytes) -> SomeRollup | None:
    """Return a rollup with everything decoded; None if it is damaged, which who asks for it will report."""
    try:
        rollup = SomeRollup(row, data)
    except BlockDamaged:
        return None
    rollup.decode_all()
    return rollup
