"""A place in the object store is written in four ways and climbs out of it in none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.domain.errors import Invalid
from trackside.objectstore.urls import KEY_BYTES_MAX, Place, parse, parse_object


@pytest.mark.parametrize("prefix", ["obs://", "oss://", "s3://", "/"])
@pytest.mark.parametrize(
    ("rest", "place"),
    [
        ("bucket/a/b.txt", Place("bucket", "a/b.txt", False)),
        ("bucket/a/", Place("bucket", "a", True)),
        ("bucket/", Place("bucket", "", True)),
        ("bucket", Place("bucket", "", True)),
        ("my.bucket-1_x/a%2e%2E/ä ö", Place("my.bucket-1_x", "a%2e%2E/ä ö", False)),
        ("bucket/..a/b..", Place("bucket", "..a/b..", False)),
    ],
)
def test_all_ways_of_writing_name_the_same_place(prefix: str, rest: str, place: Place) -> None:
    assert parse(prefix + rest) == place
    assert parse(place.url) == place


@pytest.mark.parametrize(
    "url",
    [
        "",
        "bucket/key",
        "http://bucket/key",
        "OBS:/bucket/key",
        "obs:///key",
        "//bucket/key",
        "obs://b/key",
        "obs://-bucket/key",
        "obs://../key",
        "obs://bu cket/key",
        "obs://" + "b" * 64 + "/key",
        "obs://bucket/../key",
        "obs://bucket/a/../../key",
        "obs://bucket/a/..",
        "obs://bucket/a/../",
        "obs://bucket/./key",
        "obs://bucket//key",
        "obs://bucket/a//",
        "obs://bucket//",
        "/bucket/..",
        "obs://bucket/a\0b",
        "obs://bucket/a\nb",
        "obs://bucket/a\x7fb",
        "obs://bucket/a\x85b",
        "obs://bucket/a\\..\\b",
        "obs://bucket/\ud800",
        "obs://bucket/" + "k" * (KEY_BYTES_MAX + 1),
        "obs://bucket/" + "ä" * (KEY_BYTES_MAX // 2 + 1),
    ],
)
def test_a_url_that_is_no_plain_place_is_refused_and_quoted(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(url)
    assert ascii(url)[1:40] in refused.value.detail or repr(url)[1:40] in refused.value.detail
    assert refused.value.detail.isprintable()


def test_the_longest_key_is_taken() -> None:
    assert parse("obs://bucket/" + "k" * KEY_BYTES_MAX).key == "k" * KEY_BYTES_MAX


@pytest.mark.parametrize("url", ["obs://bucket", "obs://bucket/", "obs://bucket/a/"])
def test_a_directory_is_no_object(url: str) -> None:
    with pytest.raises(Invalid, match="names a directory"):
        parse_object(url)


@given(st.text(alphabet="ab./\\%\0:\n", max_size=12))
def test_whatever_is_taken_stays_below_its_bucket(path: str) -> None:
    try:
        place = parse("obs://bucket/" + path)
    except Invalid:
        return
    assert place.bucket == "bucket"
    assert not {"", ".", ".."} & set(place.parts)
    assert parse(place.url) == place
