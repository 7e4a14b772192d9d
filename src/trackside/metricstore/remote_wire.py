"""Knows the bytes of Prometheus remote write: a protobuf message in a snappy block, and nothing about HTTP.

The message has four tiny parts and is only ever written here, so it is spelled out: the protobuf package
would bring a megabyte and generated code for what fits on one page.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

import cramjam

from trackside.domain.exposition import metric_name, unwrap_label, wrap_label
from trackside.domain.metric import Sample
from trackside.ports import SeriesKey

SERIES_CACHED_MAX = 50_000

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}

# Protobuf's tags: the number of the field and how it is told (0 a varint, 1 eight bytes, 2 so many bytes).
_SERIES, _LABEL, _SAMPLE = 1 << 3 | 2, 1 << 3 | 2, 2 << 3 | 2
_NAME, _TEXT = 1 << 3 | 2, 2 << 3 | 2
_AT = bytes([2 << 3 | 0])
_value = struct.Struct("<Bd").pack  # the tag and the number
_VALUE = 1 << 3 | 1

Labels = tuple[tuple[str, str], ...]


def write_request(samples: Iterable[Sample]) -> bytes:
    """Return the body of a remote write request; the samples of a series are told in the order of time."""
    series: dict[tuple[str, SeriesKey], list[tuple[int, float]]] = {}
    for one in samples:
        key = SeriesKey(one.task, one.metric, one.card, one.labels)
        series.setdefault((one.job_id, key), []).append((one.at_ms, one.value))
    message = b"".join(
        _sized(_SERIES, _label_bytes(job_id, key) + _sample_bytes(sorted(points)))
        for (job_id, key), points in series.items()
    )
    return bytes(cramjam.snappy.compress_raw(message))


def labels_of(job_id: str, key: SeriesKey) -> Labels:
    """Return all labels of a series, sorted by name as the protocol wants it.

    `metric` says again what the name says: averaging drops the name, and a name cannot hold every character.
    """
    own = [("__name__", metric_name(key.metric)), ("job_id", job_id), ("metric", key.metric)]
    own.append(("task", key.task))
    if key.card is not None:
        own.append(("card", str(key.card)))
    return tuple(sorted(own + [wrap_label(name, value) for name, value in key.labels]))


def key_of(labels: dict[str, str]) -> SeriesKey:
    """Return which series of its job some labels name."""
    left = {name: value for name, value in labels.items() if name not in ("__name__", "job_id")}
    task, metric, card = left.pop("task"), left.pop("metric"), left.pop("card", None)
    own = tuple(sorted(unwrap_label(name, value) for name, value in left.items()))
    return SeriesKey(task, metric, None if card is None else int(card), own)


@lru_cache(maxsize=SERIES_CACHED_MAX)  # a series is written again every few seconds
def _label_bytes(job_id: str, key: SeriesKey) -> bytes:
    return b"".join(
        _sized(_LABEL, _sized(_NAME, name.encode()) + _sized(_TEXT, value.encode()))
        for name, value in labels_of(job_id, key)
    )


def _sample_bytes(points: Sequence[tuple[int, float]]) -> bytes:
    return b"".join(
        [_sized(_SAMPLE, _value(_VALUE, value) + _AT + _varint(at_ms)) for at_ms, value in points]
    )


def _sized(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Return a number seven bits at a time, the lowest first; all but the last byte have the top bit."""
    if number < 0x80:
        return bytes([number])
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
