"""Counts samples themselves, those of raw blocks and those in memory together, each moment once."""

import numpy as np

from trackside.metricstore.blocks import Blocks
from trackside.metricstore.columns import Ints
from trackside.metricstore.head import View
from trackside.metricstore.layout import GROUP_BITS, GROUP_SIZE, SPAN_MS
from trackside.metricstore.samples import Cells, Samples, join, settled, summed
from trackside.metricstore.table import Window


def exact(
    blocks: Blocks, view: View, ids: Ints, window: Window, floor_ms: int, *, extremes: bool = False
) -> Cells:
    """Return what the samples of a window come to; of those before the floor, only what blocks have."""
    spans = blocks.raw_spans(window.start_ms // SPAN_MS, (window.end_ms - 1) // SPAN_MS)
    stored = [of_ids(part, ids) for part in blocks.raw(np.unique(ids >> GROUP_BITS), spans)]
    recent = view.of(ids, max(window.start_ms, floor_ms), window.end_ms)
    found = settled(join([*stored, recent]))
    inside = (found.at_ms >= window.start_ms) & (found.at_ms < window.end_ms)
    return summed(found if inside.all() else found.where(inside), window.step_ms, extremes=extremes)


def of_ids(block: Samples, ids: Ints) -> Samples:
    """Return the samples of a block that are of the wanted series."""
    group = int(block.ids[0]) >> GROUP_BITS
    wanted = np.zeros(GROUP_SIZE, np.bool_)
    wanted[slots_of(ids, group)] = True
    chosen = wanted[block.ids & (GROUP_SIZE - 1)]
    return block if chosen.all() else block.where(chosen)


def slots_of(ids: Ints, group: int) -> Ints:
    """Return which slots of a group series (ascending) are."""
    first, last = np.searchsorted(ids, [group << GROUP_BITS, (group + 1) << GROUP_BITS])
    return ids[first:last] & (GROUP_SIZE - 1)
