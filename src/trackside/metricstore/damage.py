"""Counts and reports blocks that are not as they were stored; knows no content."""

import logging
import threading
from collections import OrderedDict

log = logging.getLogger(__name__)

ROWS_REMEMBERED_MAX = 10_000


class Damage:
    """What was found damaged; each block is reported once, however often it is met."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._met: OrderedDict[tuple[str, int], None] = OrderedDict()
        self.count = 0

    def report(self, table: str, row: int, error: Exception) -> None:
        """Count a damaged block and say so in the log."""
        with self._lock:
            if (table, row) in self._met:
                return
            self._met[table, row] = None
            if len(self._met) > ROWS_REMEMBERED_MAX:
                self._met.popitem(last=False)
            self.count += 1
        log.error("metrics: row %d of %s is damaged and left out: %s", row, table, error)
