"""Answers which sample of a series is the newest: from memory, or from blocks that are not older."""

import numpy as np

from trackside.metricstore.columns import Bools, Floats, Ints
from trackside.metricstore.head import View, newest_of
from trackside.metricstore.layout import SPAN_MS
from trackside.metricstore.remembered import Remembered
from trackside.metricstore.selection import Selection
from trackside.metricstore.table import AT_MS_MAX

LAST_SPAN = AT_MS_MAX // SPAN_MS


class Newest:
    """The newest samples of some series, as far as they are known by now."""

    def __init__(self, chosen: Selection) -> None:
        self._chosen = chosen
        self.at_ms = np.full(len(chosen), -1)
        self.values = np.zeros(len(chosen))

    def add_memory(self, view: View) -> None:
        """Learn what memory has."""
        for rows in view.lanes:
            if rows.near(self._chosen.ids):
                places, columns = self._chosen.in_lane(rows.ids)
                values = rows.table[-1, columns]
                if len(places):
                    self._take(places, np.full(len(places), rows.times[-1]), values)
        if view.runs:
            found = newest_of(view.runs, self._chosen.ids)
            self._take(np.searchsorted(self._chosen.ids, found.ids), found.at_ms, found.values)

    def add_blocks(self, blocks: Remembered, since_ms: int) -> None:
        """Learn what blocks have that are not older than what is known, nor than a time."""
        open_from = np.maximum(self.at_ms, since_ms) // SPAN_MS
        for span in sorted(blocks.raw_spans(int(open_from.min()), LAST_SPAN), reverse=True):
            missing = open_from <= span
            if missing.any():
                self._add_span(blocks, span, missing)
                np.maximum(open_from, self.at_ms // SPAN_MS, out=open_from)

    def _add_span(self, blocks: Remembered, span: int, missing: Bools) -> None:
        places = [place for place in self._chosen.places if missing[place.rows].any()]
        for place, found in zip(places, blocks.newest([one.group for one in places], span), strict=True):
            if found is not None:
                self._take(place.rows, found.at_ms[place.slots], found.values[place.slots])

    def _take(self, places: Ints | slice, at_ms: Ints, values: Floats) -> None:
        """Put samples in their places where they are newer than what is there."""
        known = self.at_ms[places]
        # Two values for one moment: the larger stays, as everywhere.
        newer = (at_ms > known) | ((at_ms == known) & (values > self.values[places]))
        if isinstance(places, slice):
            self.at_ms[places][newer], self.values[places][newer] = at_ms[newer], values[newer]
        else:
            where = places[newer]
            self.at_ms[where], self.values[where] = at_ms[newer], values[newer]
