"""The bytes of a remote write request, by hand and against what the protocol says."""

import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.domain.exposition import RESERVED, unwrap_label, wrap_label
from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.metricstore.remote_wire import key_of, labels_of, write_request
from trackside.ports import SeriesKey

Message = dict[int, list[bytes | int]]


def fields(data: bytes) -> Message:
    """Read one protobuf message: the values of each field, in their order."""
    found: Message = {}
    at = 0

    def varint() -> int:
        nonlocal at
        number, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            value: bytes | int = varint()
        else:
            length = 8 if tag & 7 == 1 else varint()
            value = data[at : at + length]
            at += length
        found.setdefault(tag >> 3, []).append(value)
    return found


def parts(message: Message, number: int) -> list[Message]:
    return [fields(value) for value in message.get(number, []) if isinstance(value, bytes)]


def read(body: bytes) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
    message = fields(bytes(cramjam.snappy.decompress_raw(body)))
    found = []
    for series in parts(message, 1):
        names = [(label[1][0], label[2][0]) for label in parts(series, 1)]
        labels = {
            str(n, "utf-8"): str(v, "utf-8")
            for n, v in names
            if isinstance(n, bytes) and isinstance(v, bytes)
        }
        assert list(labels) == sorted(labels), "the protocol wants labels sorted"
        points = [
            (p[2][0], struct.unpack("<d", p[1][0])[0]) for p in parts(series, 2) if isinstance(p[1][0], bytes)
        ]
        found.append((labels, [(int(at), value) for at, value in points]))
    return found


def test_a_request_word_by_word() -> None:
    body = write_request([Sample(JobId("j"), "w", "m", 300, 1.0)])
    labels = b"".join(
        b"\x0a"
        + bytes([len(name) + len(value) + 4])
        + b"\x0a"
        + bytes([len(name)])
        + name
        + b"\x12"
        + bytes([len(value)])
        + value
        for name, value in (
            (b"__name__", b"trackside_task_m"),
            (b"job_id", b"j"),
            (b"metric", b"m"),
            (b"task", b"w"),
        )
    )
    point = b"\x12\x0c\x09" + struct.pack("<d", 1.0) + b"\x10\xac\x02"
    series = labels + point
    assert bytes(cramjam.snappy.decompress_raw(body)) == b"\x0a" + bytes([len(series)]) + series


def test_samples_of_a_series_are_together_and_in_order() -> None:
    samples = [Sample(JobId("j"), task, "m", at, float(at)) for at in (3, 1, 2) for task in ("a", "b")]
    found = read(write_request(samples))
    assert [(labels["task"], points) for labels, points in found] == [
        (task, [(1, 1.0), (2, 2.0), (3, 3.0)]) for task in ("a", "b")
    ]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    key=st.builds(
        SeriesKey,
        NAMES,
        NAMES,
        st.none() | st.integers(0, 65_535),
        st.dictionaries(NAMES, st.text(st.characters(exclude_categories=["Cs"]), max_size=9), max_size=4).map(
            lambda labels: tuple(sorted(labels.items()))
        ),
    ),
    at_ms=st.integers(0, 1 << 53),
    value=st.floats(allow_nan=False, allow_infinity=False),
)
def test_every_series_comes_back_as_it_was(key: SeriesKey, at_ms: int, value: float) -> None:
    sample = Sample(JobId("j"), key.task, key.metric, at_ms, value, key.card, key.labels)
    ((labels, points),) = read(write_request([sample]))
    assert (labels["job_id"], key_of(labels)) == ("j", key)
    assert points == [(at_ms, value)]
    assert all(text for text in labels.values()), "an empty label counts as none"


@pytest.mark.parametrize("name", [*sorted(RESERVED), "x_a", "__name__", "1a", "a-b", ""])
def test_labels_that_would_clash_are_wrapped(name: str) -> None:
    wrapped = wrap_label(name, "v")
    assert wrapped[0] not in RESERVED
    assert unwrap_label(*wrapped) == (name, "v")
    assert wrap_label("split", "val") == ("split", "val")
    names = [name for name, _ in labels_of("j", SeriesKey("t", "m", 1, ((name, "v"),)))]
    assert len(set(names)) == len(names)
