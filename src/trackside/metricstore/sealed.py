"""Knows how sections become one blob that can tell whether it was damaged; knows no content.

    crc32 u32 | version u8 | kind u8 | sections u16 | length u32 each | the sections

The checksum covers everything after it and also the row the blob belongs to, so that a blob which strayed
into another row is found out too.
"""

import struct
import zlib
from collections.abc import Sequence

VERSION = 1
RAW, ROLLUP, TAIL, NAMES = 1, 2, 3, 4

_HEAD = struct.Struct("<IBBH")


class BlockDamaged(Exception):
    """The bytes are not those that were stored."""


def seal(kind: int, row: int, sections: Sequence[bytes]) -> bytes:
    """Return the sections as one blob of a row."""
    lengths = struct.pack(f"<{len(sections)}I", *map(len, sections))
    body = b"".join((struct.pack("<BBH", VERSION, kind, len(sections)), lengths, *sections))
    return struct.pack("<I", _checksum(row, body)) + body


def unseal(kind: int, row: int, data: bytes) -> list[bytes]:
    """Return the sections of a blob; raise BlockDamaged if they are not what was sealed."""
    if len(data) < _HEAD.size:
        raise BlockDamaged("it is too short")
    checksum, version, found_kind, count = _HEAD.unpack_from(data)
    if _checksum(row, memoryview(data)[4:]) != checksum:
        raise BlockDamaged("its checksum is wrong")
    if (version, found_kind) != (VERSION, kind):
        raise BlockDamaged(f"it is of kind {found_kind}, version {version}")
    sections, at = [], _HEAD.size + 4 * count
    for length in struct.unpack_from(f"<{count}I", data, _HEAD.size):
        sections.append(data[at : at + length])
        at += length
    return sections


def _checksum(row: int, body: bytes | memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<q", row)))
