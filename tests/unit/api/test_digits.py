"""Columns of numbers read as JSON say the numbers, rounded as was asked."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.api.digits import list_of, rows_of, words_of

percent = st.floats(0, 100)
anything = st.floats(0, 99_999_990)


@given(st.lists(st.one_of(percent, st.just(float("nan")))))
def test_lists_have_three_decimals_and_minus_one_for_what_is_absent(given_: list[float]) -> None:
    told = json.loads(list_of(np.array(given_, np.float64)))
    assert told == [pytest.approx(-1 if one != one else one, abs=0.000501) for one in given_]


@given(st.lists(st.one_of(st.floats(-1e15, 1e15), st.sampled_from([float("nan"), float("inf")]))))
def test_lists_of_any_numbers_can_be_told(given_: list[float]) -> None:
    told = json.loads(list_of(np.array(given_, np.float64)))
    assert told == [pytest.approx(one, abs=0.000501, rel=1e-12) if np.isfinite(one) else -1 for one in given_]


@given(st.one_of(st.lists(percent), st.lists(anything), st.lists(st.one_of(percent, anything))))
def test_rows_have_six_decimals(given_: list[float]) -> None:
    rows = rows_of(np.array(given_, np.float64), before=1, end="]")
    assert rows is not None
    rows[:, 0] = words_of([b",["])[0]
    told = json.loads(b"[" + rows.tobytes()[1:] + b"]")
    assert told == [[pytest.approx(one, abs=0.000000501, rel=1e-12)] for one in given_]


@pytest.mark.parametrize("odd", [-0.001, 1e8, float("nan"), float("inf"), float("-inf")])
def test_rows_refuse_what_they_cannot_tell(odd: float) -> None:
    assert rows_of(np.array([1.0, odd, 2.0]), before=0, end="]") is None


@pytest.mark.parametrize(
    ("number", "text"), [(0.0, "0.000000"), (9999.9999996, "10000.000000"), (12345.5, "12345.500000")]
)
def test_a_row_is_one_json_number(number: float, text: str) -> None:
    rows = rows_of(np.array([number]), before=0, end=" ")
    assert rows is not None
    assert rows.tobytes().decode().strip() == text
    assert json.loads(rows.tobytes()) == float(text)


def test_texts_are_as_wide_as_the_longest() -> None:
    assert words_of([b"a", b"bcdef", b""]).tobytes() == b"a       bcdef           "
    assert words_of([]).shape == (0, 0)
