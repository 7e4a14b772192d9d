"""Keeps records that were acknowledged and are not in blocks yet, in files beside the database.

A record is on disk when `append` returns: one write and one sync, which is a third of what a transaction
costs. Records are only ever added; compaction begins a new file and removes the old ones once their samples
are in blocks. Knows nothing of what a record says.

    a file: a record after the other, each 8-byte aligned: "TSJ1" | length u32 | checksum u32 | 0 | the record
"""

import errno
import fcntl
import logging
import os
import struct
import time
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trackside.domain.errors import Unavailable
from trackside.metricstore.damage import Damage
from trackside.metricstore.sealed import BlockDamaged

log = logging.getLogger(__name__)

MAGIC = b"TSJ1"
GROW_BYTES = 256 * 1024  # room is made in such steps: a few ticks of a thousand series
ALIGNED = 8
OTHER_PROCESS_SECONDS_MAX = 10.0
LOCK_RETRY_SECONDS = 0.02

_HEAD = struct.Struct("<4sIII")


@dataclass(slots=True)
class _File:
    """One file of the journal; its lock is held for as long as it is open."""

    number: int
    path: Path
    fd: int


class Journal:
    """The files of one store; used by one writer at a time."""

    def __init__(self, database: Path, damage: Damage) -> None:
        self._stem = database.with_suffix(".journal")
        self._damage = damage
        self._old: list[_File] = []
        self._size = self._room = 0
        try:
            for path in self._listed():
                self._old += _opened(path, _number_of(path))
            self._active = self._begin()
        except BaseException:
            for file in self._old:
                os.close(file.fd)
            raise

    def replay(self) -> Iterator[bytes]:
        """Yield the records of earlier processes; one that is damaged is reported and left out."""
        for file in tuple(self._old):
            whole = yield from self._records(file)
            if whole:
                os.ftruncate(file.fd, whole)  # its process left room behind, which was never needed
            else:
                self._remove(file)

    def append(self, records: Sequence[bytes]) -> None:
        """Add records; they are on disk on return, or none of them counts."""
        parts, at = [], self._size
        for record in records:
            parts.append(_HEAD.pack(MAGIC, len(record), _checksum(self._active.number, at, record), 0))
            parts.append(record)
            padding = -len(record) % ALIGNED
            parts.append(bytes(padding))
            at += _HEAD.size + len(record) + padding
        data = b"".join(parts)
        self._make_room(at)
        written = os.pwrite(self._active.fd, data, self._size)
        if written < len(data):  # the next record is written over it
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fdatasync(self._active.fd)
        self._size = at

    def rotate(self) -> int:
        """Begin a new file; return the number up to which the others can be dropped."""
        former, size = self._active, self._size
        self._active = self._begin()
        os.ftruncate(former.fd, size)
        self._old.append(former)
        return former.number

    def drop(self, through: int) -> None:
        """Remove the files up to a number: what they hold is in blocks."""
        for file in [file for file in self._old if file.number <= through]:
            self._remove(file)

    def close(self) -> None:
        """Let go of the files; what they hold is replayed when the store is opened again."""
        if self._size:
            os.ftruncate(self._active.fd, self._size)
        else:
            self._active.path.unlink(missing_ok=True)
        for file in (*self._old, self._active):
            os.close(file.fd)
        self._old.clear()

    def _begin(self) -> _File:
        number = max((_number_of(path) for path in self._listed()), default=0) + 1
        path = self._stem.with_name(f"{self._stem.name}-{number:08d}")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sync_directory(path.parent)
        except BaseException:
            path.unlink()
            os.close(fd)
            raise
        self._size = self._room = 0
        return _File(number, path, fd)

    def _listed(self) -> list[Path]:
        return sorted(self._stem.parent.glob(self._stem.name + "-*"), key=_number_of)

    def _make_room(self, size: int) -> None:
        """Write zeros ahead: a sync then has only data to write, no new length and no new blocks, which is
        a third less work for the machine."""
        room = -(-size // GROW_BYTES) * GROW_BYTES
        while self._room < room:  # a full disk takes a part first, and then says why
            self._room += os.pwrite(self._active.fd, bytes(room - self._room), self._room)

    def _remove(self, file: _File) -> None:
        file.path.unlink(missing_ok=True)
        os.close(file.fd)
        self._old.remove(file)

    def _records(self, file: _File) -> Generator[bytes, None, int]:
        """Yield what is whole and return where it ends; what only the end lacks was never acknowledged,
        anything else is damage."""
        data = file.path.read_bytes()
        at = whole = 0
        while (found := data.find(MAGIC, at)) >= 0:
            record = _record_at(data, found, file.number)
            if record is None:
                at = found + ALIGNED
                continue
            if found > whole:
                self._damage.report(
                    "journal", file.number, BlockDamaged(f"{found - whole} bytes are not whole")
                )
            yield record
            at = whole = found + _HEAD.size + len(record) + -len(record) % ALIGNED
        if data[whole:].strip(b"\0"):
            log.warning("metrics: the end of %s is not whole and left out", file.path.name)
        return whole


def _record_at(data: bytes, at: int, number: int) -> bytes | None:
    if at % ALIGNED or len(data) < at + _HEAD.size:
        return None
    _, length, checksum, _ = _HEAD.unpack_from(data, at)
    record = data[at + _HEAD.size : at + _HEAD.size + length]
    return record if len(record) == length and _checksum(number, at, record) == checksum else None


def _opened(path: Path, number: int) -> list[_File]:
    """Return a file once no other process has it; nothing if that one removed it."""
    deadline = time.monotonic() + OTHER_PROCESS_SECONDS_MAX
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                raise Unavailable(f"another process has {path.name}; stop it first") from None
            time.sleep(LOCK_RETRY_SECONDS)
            continue
        if os.fstat(fd).st_nlink:
            return [_File(number, path, fd)]
        os.close(fd)
        return []


def _number_of(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def _checksum(number: int, at: int, record: bytes) -> int:
    """Return a checksum that also says where the record belongs: what another left there is no record."""
    return zlib.crc32(record, zlib.crc32(struct.pack("<QQ", number, at)))


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
