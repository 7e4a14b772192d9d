"""What goes into a block comes out of it, or is known to be damaged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trackside.metricstore import columns, rawblock, rollup, sealed
from trackside.metricstore.layout import (
    GROUP_BITS,
    SPAN_MINUTES,
    SPAN_MS,
    block_group,
    block_row,
    block_span,
)
from trackside.metricstore.samples import Samples, settled, summed
from trackside.metricstore.somerollup import ABSENT, SomeRollup

GROUP, SPAN = 77, 118_055
ROW = block_row(SPAN, GROUP)

decimals = st.integers(-(10**7), 10**7).map(lambda whole: whole / 100)
anything = st.floats(-1e300, 1e300)
times = st.integers(SPAN * SPAN_MS, (SPAN + 1) * SPAN_MS - 1)


def samples_of(values: st.SearchStrategy[float]) -> st.SearchStrategy[Samples]:
    keys = st.tuples(st.integers(0, 63), times)
    return st.dictionaries(keys, values, min_size=1, max_size=60).map(_samples)


def _samples(found: dict[tuple[int, int], float]) -> Samples:
    ids = [(GROUP << GROUP_BITS) | slot for slot, _ in found]
    at_ms = [at for _, at in found]
    return settled(
        Samples(np.array(ids, np.int64), np.array(at_ms, np.int64), np.array(list(found.values())))
    )


def test_a_row_tells_its_span_and_group() -> None:
    assert (block_span(ROW), block_group(ROW)) == (SPAN, GROUP)


@settings(deadline=None)
@given(
    given_=st.one_of(samples_of(decimals), samples_of(anything), samples_of(st.one_of(decimals, anything)))
)
def test_samples_survive_their_block_to_the_bit(given_: Samples) -> None:
    found = rawblock.decode(ROW, rawblock.encode(ROW, given_))
    assert found.ids.tolist() == given_.ids.tolist()
    assert found.at_ms.tolist() == given_.at_ms.tolist()
    assert found.values.tolist() == given_.values.tolist()


@settings(deadline=None)
@given(given_=st.one_of(samples_of(decimals), samples_of(st.floats(-1e9, 1e9))))
def test_a_rollup_survives_its_block(given_: Samples) -> None:
    made = rollup.of_cells(ROW, summed(given_, 60_000, extremes=True))
    found = rollup.decode(ROW, rollup.encode(ROW, made), extremes=True)
    assert found.slots.tolist() == made.slots.tolist()
    assert found.count.tolist() == made.count.tolist()
    present = made.count > 0
    assert found.total[present] == pytest.approx(made.total[present], rel=1e-13, abs=1e-9)
    for kept, given_column in ((found.low, made.low), (found.high, made.high)):
        assert kept is not None
        assert given_column is not None
        assert kept[present].tolist() == given_column[present].tolist()


@settings(deadline=None)
@given(
    given_=st.one_of(samples_of(decimals), samples_of(st.floats(-1e9, 1e9)), samples_of(decimals | anything)),
    wanted=st.lists(st.integers(0, 63), min_size=1, max_size=5, unique=True).map(sorted),
)
def test_some_series_of_a_rollup_are_those_of_all(given_: Samples, wanted: list[int]) -> None:
    data = rollup.encode(ROW, rollup.of_cells(ROW, summed(given_, 60_000, extremes=True)))
    whole, some = rollup.decode(ROW, data), SomeRollup(ROW, data)
    places, all_there = some.places(np.array(wanted), wanted[-1])
    there = places[places != ABSENT]
    assert all_there == (len(there) == len(wanted))
    assert some.slots[there].tolist() == [slot for slot in wanted if slot in whole.slots]
    assert some.total(there).tolist() == whole.total[there].tolist()
    for minutes in (1, 5, 240):
        count, total = some.steps(there, minutes)
        shape = (len(there), SPAN_MINUTES // minutes, minutes)
        assert count.tolist() == whole.count[there].reshape(shape).sum(axis=2).tolist()
        assert total.tolist() == whole.total[there].reshape(shape).sum(axis=2).tolist()


def test_the_newer_rollup_wins_minute_by_minute() -> None:
    old = _rollup({(3, 0): [1.0], (3, 1): [2.0], (5, 0): [7.0]})
    new = _rollup({(3, 1): [4.0, 6.0], (9, 2): [8.0]})
    both = rollup.overlaid(old, new)
    assert both.slots.tolist() == [3, 5, 9]
    assert both.total[:, :3].tolist() == [[1.0, 10.0, 0.0], [7.0, 0.0, 0.0], [0.0, 0.0, 8.0]]
    assert both.count[:, :3].tolist() == [[1, 2, 0], [1, 0, 0], [0, 0, 1]]


def test_sums_of_decimals_are_kept_as_decimals() -> None:
    made = _rollup({(0, 0): [0.1, 0.2]})
    assert made.total[0, 0] != 0.3  # as floats add
    assert rollup.decode(ROW, rollup.encode(ROW, made)).total[0, 0] == 0.3


def test_many_segments_of_different_widths_come_back() -> None:
    chance = np.random.default_rng(5)
    sizes = chance.integers(1, 400, 40)
    parts = columns.segments(sizes)
    scales = parts.spread(10.0 ** chance.integers(-2, 9, 40))
    values = np.round(chance.normal(0, 1, sizes.sum()) * scales, 2)
    kinds = columns.decimals_of(values, parts)
    assert columns.unpack_values(columns.pack_values(values, kinds, parts), parts).tolist() == values.tolist()


@given(sections=st.lists(st.binary(max_size=40), max_size=5), at=st.integers(0, 300), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(sections: list[bytes], at: int, bit: int) -> None:
    data = bytearray(sealed.seal(sealed.RAW, ROW, sections))
    assert sealed.unseal(sealed.RAW, ROW, bytes(data)) == sections
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(sealed.BlockDamaged):
        sealed.unseal(sealed.RAW, ROW, bytes(data))


def test_a_block_of_another_row_or_kind_or_cut_short_is_noticed() -> None:
    data = sealed.seal(sealed.RAW, ROW, [b"abc"])
    for kind, row, found in (
        (sealed.RAW, ROW + 1, data),
        (sealed.TAIL, ROW, data),
        (sealed.RAW, ROW, data[:5]),
    ):
        with pytest.raises(sealed.BlockDamaged):
            sealed.unseal(kind, row, found)


def _rollup(cells: dict[tuple[int, int], list[float]]) -> rollup.Rollup:
    found = {
        (slot, SPAN * SPAN_MS + minute * 60_000 + number): value
        for (slot, minute), values in cells.items()
        for number, value in enumerate(values)
    }
    return rollup.of_cells(ROW, summed(_samples(found), 60_000, extremes=False))
