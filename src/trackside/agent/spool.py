"""Knows which reports the server has not acknowledged yet, on disk first; refuses to know what they say.

Every agent process begins a stream of its own and sends what older ones left first: so a number can never
be given to two reports, whatever was lost in a crash. A torn tail is cut off. A full disk stops no report
that matters: those are held in memory, and the node's files of tasks can tell them again.
"""

import logging
import os
import secrets
import struct
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from trackside.domain.exchange import REPORTS_PER_BATCH_MAX, Report, TaskKey

SEGMENT_BYTES_MAX = 8 * 1024**2
SPOOL_BYTES_MAX = 512 * 1024**2
BATCH_BYTES_MAX = 4 * 1024**2
RECORD_BYTES_MAX = 64 * 1024**2
SUFFIX = ".spool"

_HEAD = struct.Struct("<II")  # length, checksum
_log = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(Report)


@dataclass(slots=True)
class _Segment:
    """One file of reports of one stream."""

    path: Path
    stream: str
    fd: int
    size_bytes: int = 0
    waiting: int = 0


@dataclass(slots=True)
class _Entry:
    """One report that waits; `data` is set only where the disk did not take it."""

    seq: int
    stream: str
    segment: _Segment | None
    offset: int
    length: int
    data: bytes | None
    ended: TaskKey | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Reports of one stream, ready to send, each already encoded."""

    stream: str
    through: int
    reports: tuple[msgspec.Raw, ...]


class Spool:
    """Hold reports until they are acknowledged. Safe to use from several threads."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._stream = secrets.token_hex(8)
        self._seq = 0
        self._entries: deque[_Entry] = deque()
        self._active: _Segment | None = None
        self._bytes = 0
        self._segments_made = 0
        self._samples_dropped = 0
        self._closed = False
        self._changed = threading.Condition()
        for path in sorted(directory.glob("*" + SUFFIX)):
            self._load(path)

    def append(self, *reports: Report) -> None:
        """Keep reports, numbering them; measurements alone are given up when there is no room."""
        with self._changed:
            assert not self._closed, "the spool is closed"
            for report in reports:
                self._append(report)
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> Batch | None:
        """Wait for reports to send and return the oldest; None when the time is over or it was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._closed, seconds)
            return None if self._closed or not self._entries else self._oldest(REPORTS_PER_BATCH_MAX)

    def first(self, count: int) -> Batch:
        """Return at most `count` of the oldest reports."""
        with self._changed:
            return self._oldest(count)

    def acknowledge(self, stream: str, through: int) -> list[TaskKey]:
        """Drop what is durable elsewhere; return the tasks whose end was among it."""
        ended = []
        with self._changed:
            while self._entries and self._entries[0].stream == stream and self._entries[0].seq <= through:
                entry = self._entries.popleft()
                if entry.ended is not None:
                    ended.append(entry.ended)
                self._release(entry)
        return ended

    def take_dropped(self) -> int:
        """Return how many measurements were given up since this was last asked."""
        with self._changed:
            dropped, self._samples_dropped = self._samples_dropped, 0
            return dropped

    @property
    def waiting(self) -> int:
        """Return how many reports wait."""
        return len(self._entries)

    def pending_ends(self) -> set[TaskKey]:
        """Return the tasks whose end is waiting to be sent."""
        with self._changed:
            return {entry.ended for entry in self._entries if entry.ended is not None}

    def close(self) -> None:
        """Let go of the files; what waits stays on disk."""
        with self._changed:
            self._closed = True
            for fd in {entry.segment.fd for entry in self._entries if entry.segment is not None}:
                if self._active is None or fd != self._active.fd:
                    os.close(fd)
            if self._active is not None:
                os.close(self._active.fd)
            self._changed.notify_all()

    def _append(self, report: Report) -> None:
        numbered = replace(report, seq=self._seq + 1)
        data = msgspec.json.encode(numbered)
        ended = None if report.ended is None else report.ended.key
        entry = _Entry(numbered.seq, self._stream, None, 0, len(data), None, ended)
        try:
            if self._bytes + len(data) > SPOOL_BYTES_MAX:
                raise OSError("the spool is at its limit")  # noqa: TRY301  # same way out as a full disk
            self._write(entry, data)
        except OSError as error:
            if report.measured is not None:
                self._samples_dropped += report.measured.count
                return
            _log.warning("a report is held in memory only: %s", error)
            entry.data = data
        self._seq = numbered.seq
        self._entries.append(entry)

    def _write(self, entry: _Entry, data: bytes) -> None:
        segment = self._writable()
        record = _HEAD.pack(len(data), zlib.crc32(data)) + data
        written = os.pwrite(segment.fd, record, segment.size_bytes)
        if written < len(record):  # the disk filled up in the middle: take the half back
            os.ftruncate(segment.fd, segment.size_bytes)
            raise OSError("the disk is full")
        entry.segment, entry.offset = segment, segment.size_bytes + _HEAD.size
        segment.size_bytes += len(record)
        segment.waiting += 1
        self._bytes += len(record)

    def _writable(self) -> _Segment:
        if self._active is not None and self._active.size_bytes < SEGMENT_BYTES_MAX:
            return self._active
        done = self._active
        self._segments_made += 1
        # The time first, so that a listing of names is the order of streams and of their segments.
        name = f"{time.time_ns():020d}-{self._segments_made:06d}-{self._stream}{SUFFIX}"
        path = self._directory / name
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._active = _Segment(path, self._stream, fd)
        if done is not None and done.waiting == 0:
            self._drop(done)
        return self._active

    def _release(self, entry: _Entry) -> None:
        segment = entry.segment
        if segment is None:
            return
        segment.waiting -= 1
        if segment.waiting == 0 and segment is not self._active:
            self._drop(segment)
        elif segment.waiting == 0:  # all is acknowledged: begin the file anew rather than let it grow
            os.ftruncate(segment.fd, 0)
            self._bytes -= segment.size_bytes
            segment.size_bytes = 0

    def _drop(self, segment: _Segment) -> None:
        self._bytes -= segment.size_bytes
        os.close(segment.fd)
        segment.path.unlink(missing_ok=True)

    def _oldest(self, count: int) -> Batch:
        stream = self._entries[0].stream
        taken: list[msgspec.Raw] = []
        size = through = 0
        for entry in self._entries:
            if entry.stream != stream or len(taken) >= count or (taken and size > BATCH_BYTES_MAX):
                break
            taken.append(msgspec.Raw(self._data(entry)))
            size += entry.length
            through = entry.seq
        return Batch(stream, through, tuple(taken))

    def _data(self, entry: _Entry) -> bytes:
        if entry.segment is None:
            assert entry.data is not None
            return entry.data
        return os.pread(entry.segment.fd, entry.length, entry.offset)

    def _load(self, path: Path) -> None:
        """Take over what another process of this node left."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        segment = _Segment(path, path.name.removesuffix(SUFFIX).rpartition("-")[2], fd)
        while (data := _record_at(fd, segment.size_bytes)) is not None:
            try:
                report = _decode.decode(data)
            except msgspec.MsgspecError as error:
                _log.error("a report of another version is left out: %s", error)
            else:
                ended = None if report.ended is None else report.ended.key
                offset = segment.size_bytes + _HEAD.size
                self._entries.append(
                    _Entry(report.seq, segment.stream, segment, offset, len(data), None, ended)
                )
                segment.waiting += 1
            segment.size_bytes += _HEAD.size + len(data)
        os.ftruncate(fd, segment.size_bytes)
        self._bytes += segment.size_bytes
        if segment.waiting == 0:
            self._drop(segment)


def _record_at(fd: int, offset: int) -> bytes | None:
    """Return the record there; None where the file ends or the record is not whole."""
    head = os.pread(fd, _HEAD.size, offset)
    if len(head) < _HEAD.size:
        return None
    length, checksum = _HEAD.unpack(head)
    if length > RECORD_BYTES_MAX:
        return None
    data = os.pread(fd, length, offset + _HEAD.size)
    return data if len(data) == length and zlib.crc32(data) == checksum and data else None
