"""Queries and bodies: what is read, and the words in which the rest is refused."""

from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.api.operation import Param
from trackside.api.reading import QUERY_PAIRS_MAX, check_query, decode_body, parse_query
from trackside.domain.errors import Invalid, Malformed

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(st.lists(st.tuples(text, text), max_size=6))
def test_a_query_is_read_as_it_was_written(pairs: list[tuple[str, str]]) -> None:
    expected: dict[str, list[str]] = {}
    for name, value in pairs:
        expected.setdefault(name, []).append(value)
    assert parse_query(urlencode(pairs).encode()) == expected


def test_odd_queries_are_read() -> None:
    assert parse_query(b"") == {}
    assert parse_query(b"&a&&b=1=2&a=+") == {"a": ["", " "], "b": ["1=2"]}


@pytest.mark.parametrize(
    ("raw", "said"),
    [(b"a=%00", "NUL"), (b"%00=a", "NUL"), (b"a=%FF", "UTF-8"), (b"&" * QUERY_PAIRS_MAX, "at most")],
)
def test_what_no_query_may_hold_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        parse_query(raw)


@pytest.mark.parametrize(
    ("param", "values"),
    [
        (Param(name="x", type=int, minimum=0, maximum=9), ["0"]),
        (Param(name="x", type=int, minimum=0), ["900"]),
        (Param(name="x", type=int, choices=("1", "2")), ["2"]),
        (Param(name="x", type=int), ["-3"]),
        (Param(name="x", type=int), [""]),
        (Param(name="x", type=bool), ["True"]),
        (Param(name="x", max_length=2), ["训练"]),
        (Param(name="x", repeated=True), ["a", "b"]),
        (Param(name="x", choices=("a",)), ["a"]),
        (Param(name="x"), []),
        (Param(name="x", required=True), ["", "a"]),
    ],
)
def test_a_right_value_is_taken_and_a_second_parameter_is_still_looked_at(
    param: Param, values: list[str]
) -> None:
    query = {"x": values, "unknown": ["whatever"]}
    check_query([param], query)
    with pytest.raises(Invalid, match="The query parameter y is required"):
        check_query([param, Param(name="y", required=True)], query)


@pytest.mark.parametrize(
    ("param", "values", "said"),
    [
        (Param(name="x", required=True), [], "The query parameter x is required."),
        (Param(name="x", required=True), [""], "The query parameter x is required."),
        (Param(name="x"), ["a", "b"], "x is given 2 times; once is allowed."),
        (Param(name="x", type=int), ["1.5"], 'x is "1.5"; a whole number is expected.'),
        (Param(name="x", type=int), ["9" * 30], "a whole number is expected."),
        (Param(name="x", type=int), ["٣"], "a whole number is expected."),
        (Param(name="x", type=int, minimum=1), ["0"], 'x is "0"; at least 1 is allowed.'),
        (Param(name="x", type=int, maximum=1), ["2"], 'x is "2"; at most 1 is allowed.'),
        (Param(name="x", type=int, minimum=1, maximum=5), ["6"], 'x is "6"; allowed are 1 to 5.'),
        (Param(name="x", type=int, choices=("1", "2")), ["3"], 'x is "3"; allowed are 1, 2.'),
        (Param(name="x", type=bool), ["yes"], 'x is "yes"; allowed are true and false.'),
        (Param(name="x", choices=("a", "b")), ["c"], 'x is "c"; allowed are a, b.'),
        (Param(name="x", max_length=3), ["a\nbc"], 'x is "a\\nbc"; it has 4 characters; at most 3 are'),
        (Param(name="x", max_length=3), ["y" * 999], "y…"),
        (Param(name="x", repeated=True, choices=("a",)), ["a", "b"], 'x is "b"; allowed are a.'),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(param: Param, values: list[str], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_query([param], {"x": values})
    assert said in caught.value.detail
    assert len(caught.value.detail) < 200


class Inner(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(pattern="^[a-z]*$")]
    env: dict[str, str] = {}


class Outer(msgspec.Struct):
    inner: Inner
    items: list[Inner] = []
    free: Any = None


DECODER = msgspec.json.Decoder(Outer)


def test_a_right_body_becomes_its_type() -> None:
    assert decode_body(DECODER, b'{"inner":{"name":"x"},"more":1}') == Outer(inner=Inner(name="x"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"5", "body: expected object, got int."),
        (b"{}", "body: object missing required field inner."),
        (b'{"inner":{"name":1}}', "inner.name: expected str, got int."),
        (b'{"inner":{"name":"A"}}', "inner.name: expected str matching regex '^[a-z]*$'."),
        (b'{"inner":{"name":"x"},"items":[{}]}', "items[0]: object missing required field name."),
        (b'{"inner":{"name":"x","env":{"A":1}}}', "inner.env[...]: expected str, got int."),
        (b'{"inner":{"name":"\\u0000"}}', "inner.name: a NUL character is not allowed."),
        (
            b'{"inner":{"name":"x","env":{"\\u0000":""}}}',
            "inner.env.\\u0000: a NUL character is not allowed.",
        ),
        (b'{"inner":{"name":"x"},"free":[1,["\\u0000"]]}', "free[1][0]: a NUL character is not allowed."),
        (b'"\\u0000"', "body: a NUL character is not allowed."),
    ],
)
def test_a_wrong_field_is_named(body: bytes, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode_body(DECODER, body)
    assert caught.value.detail == said


def test_a_key_of_the_wrong_type_is_named() -> None:
    with pytest.raises(Invalid, match=r"^a key of body: expected int"):
        decode_body(msgspec.json.Decoder(dict[int, str]), b'{"a":"b"}')


def test_an_escaped_backslash_is_no_nul() -> None:
    assert decode_body(DECODER, b'{"inner":{"name":"x"},"free":"\\\\u0000"}').free == "\\u0000"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not valid JSON"),
        (b'{"inner":{"name":"\x00"}}', "not valid JSON"),
        (b'{"free":NaN}', "not valid JSON"),
        (b'{"free":"\\ud800"}', "not valid JSON"),
        (b'{"free":"\xff"}', "not valid UTF-8"),
        (b'{"free":' + b"[" * 100_000, "nested too deeply"),
        (b'{"free":["\\u0000",' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_json_is_malformed(body: bytes, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        decode_body(DECODER, body)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(Invalid, Malformed):
        assert isinstance(decode_body(DECODER, body), Outer)
