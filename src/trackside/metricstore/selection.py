"""Knows which series a question is about and where they stand: in groups, and in the lanes of memory.

What is found out is remembered with the selection: who watches a job asks for the same again and again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trackside.metricstore.columns import Ints
from trackside.metricstore.layout import GROUP_BITS, GROUP_SIZE
from trackside.ports import SeriesKey

LANES_REMEMBERED_MAX = 8
Where = tuple[Ints, Ints | slice]  # places among the selected series, and the columns they have in a lane


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The selected series of one group: a range of their places, and their slots."""

    group: int
    rows: slice
    slots: Ints
    slot_last: int


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Some series of a job, by number, ascending."""

    ids: Ints
    keys: Sequence[SeriesKey]
    groups: tuple[int, ...]
    places: tuple[Place, ...]
    _lanes: dict[int, tuple[Ints, Where]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def some(self, first: int, last: int) -> "Selection":
        """Return a part of it."""
        if last - first >= len(self.ids):
            return self
        return selection(self.ids[first:last], self.keys[first:last])

    def in_lane(self, ids: Ints) -> Where:
        """Return where the series stand that a lane of these series (ascending) has."""
        known = self._lanes.get(id(ids))
        if known is not None and known[0] is ids:
            return known[1]
        where = np.searchsorted(ids, self.ids)
        where[where == len(ids)] = 0
        places = np.flatnonzero(ids[where] == self.ids)
        columns: Ints | slice = slice(None) if len(places) == len(ids) else where[places]
        if len(self._lanes) >= LANES_REMEMBERED_MAX:
            self._lanes.clear()
        self._lanes[id(ids)] = ids, (places, columns)
        return places, columns


def selection(ids: Ints, keys: Sequence[SeriesKey]) -> Selection:
    """Return series (ascending) as a selection."""
    groups = ids >> GROUP_BITS
    begins = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist()] if len(ids) else []
    places = tuple(
        _place(int(groups[first]), slice(first, last), ids[first:last] & (GROUP_SIZE - 1))
        for first, last in zip(begins, [*begins[1:], len(ids)], strict=False)
    )
    return Selection(ids, keys, tuple(place.group for place in places), places)


def _place(group: int, rows: slice, slots: Ints) -> Place:
    return Place(group, rows, slots, int(slots[-1]))
