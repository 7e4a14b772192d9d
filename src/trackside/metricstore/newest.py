"""Answers which sample of a series is the newest: from memory, or from blocks that are not older."""

import numpy as np

from trackside.metricstore.columns import Bools, Floats, Ints
from trackside.metricstore.head import View
from trackside.metricstore.layout import SPAN_MS
from trackside.metricstore.means import places_of
from trackside.metricstore.remembered import Remembered
from trackside.metricstore.samples import Samples
from trackside.metricstore.table import AT_MS_MAX

LAST_SPAN = AT_MS_MAX // SPAN_MS


def newest(blocks: Remembered, view: View, ids: Ints, since_ms: int) -> Samples:
    """Return the newest sample, since then, of each of the series (ascending) that has one."""
    at_ms, values = np.full(len(ids), -1), np.zeros(len(ids))
    recent = view.newest(ids)
    known = slice(None) if len(recent) == len(ids) else np.searchsorted(ids, recent.ids)
    at_ms[known], values[known] = recent.at_ms, recent.values
    open_from = np.maximum(at_ms, since_ms) // SPAN_MS  # older blocks have nothing newer
    spans = blocks.blocks.raw_spans(int(open_from.min()), LAST_SPAN) if len(ids) else []
    for span in sorted(spans, reverse=True):
        missing = open_from <= span
        if missing.any():
            _take_newer(blocks, ids, span, missing, at_ms, values)
            np.maximum(open_from, at_ms // SPAN_MS, out=open_from)
    told = at_ms >= since_ms
    return Samples(ids, at_ms, values) if told.all() else Samples(ids[told], at_ms[told], values[told])


def _take_newer(
    blocks: Remembered, ids: Ints, span: int, missing: Bools, at_ms: Ints, values: Floats
) -> None:
    """Put the newest samples of a span in their places where they are newer than what is there."""
    places = [place for place in places_of(ids) if missing[place.rows].any()]
    for place, found in zip(places, blocks.newest([place.group for place in places], span), strict=True):
        if found is None:
            continue
        times, those = found.at_ms[place.slots], found.values[place.slots]
        # Two values for one moment: the larger stays, as everywhere.
        newer = (times > at_ms[place.rows]) | ((times == at_ms[place.rows]) & (those > values[place.rows]))
        at_ms[place.rows][newer], values[place.rows][newer] = times[newer], those[newer]
