"""Knows where the lines of one growing file are; refuses to know whose file it is.

The index keeps, for every chunk of the file, how many newlines lie before it: 8 bytes per 64 KiB. A line is
found by a search in the index and a look at one chunk, whatever the size of the file. Complete chunks are
counted once; the incomplete one at the end is looked at each time, so a growing file needs no other state.
"""

import os
import threading
from array import array
from bisect import bisect_left
from codecs import getincrementaldecoder
from collections.abc import Iterator

CHUNK_BYTES = 64 * 1024
LINE_BYTES_MAX = 64 * 1024  # of one line in an answer; the rest is cut and the cut marked

_Utf8 = getincrementaldecoder("utf-8")


class LineIndex:
    """Count the newlines before every chunk of a file that only grows."""

    def __init__(self) -> None:
        self._before = array("Q", [0])
        self._growing = threading.Lock()

    @property
    def bytes_counted(self) -> int:
        """Return up to where the file was counted."""
        return (len(self._before) - 1) * CHUNK_BYTES

    def extend(self, fd: int, size: int) -> None:
        """Count the complete chunks that were added since."""
        with self._growing:
            while self.bytes_counted + CHUNK_BYTES <= size:
                chunk = os.pread(fd, CHUNK_BYTES, self.bytes_counted)
                self._before.append(self._before[-1] + chunk.count(b"\n"))

    def newlines_before(self, chunk: int) -> int:
        """Return how many newlines lie before a chunk."""
        return self._before[chunk]

    def chunk_of_newline(self, number: int) -> int:
        """Return the chunk that holds the newline of this number, from 1; the last if not yet counted."""
        return bisect_left(self._before, number) - 1


class LineFile:
    """The lines of an open file as it was at one moment; lines count from 0 here."""

    def __init__(self, fd: int, size: int, index: LineIndex) -> None:
        self._fd = fd
        self.size = size
        self._index = index
        index.extend(fd, size)
        whole_chunks = size // CHUNK_BYTES
        tail = self._read(whole_chunks * CHUNK_BYTES)
        self._newlines = index.newlines_before(whole_chunks) + tail.count(b"\n")
        self.ends_open = size > 0 and os.pread(fd, 1, size - 1) != b"\n"

    @property
    def count(self) -> int:
        """Return how many lines there are; a last one without a newline is one."""
        return self._newlines + self.ends_open

    def lines(self, first: int, end: int) -> Iterator[str]:
        """Yield the lines [first, end), each with its newline if it has one."""
        if first >= end:
            return
        line = bytearray()
        cut_bytes = 0
        for piece in self._pieces(self._start_of(first), self._start_of(end)):
            content = piece.removesuffix(b"\n")
            kept = content[: LINE_BYTES_MAX - len(line)]
            line += kept
            cut_bytes += len(content) - len(kept)
            if len(content) < len(piece):
                yield _text(line, cut_bytes) + "\n"
                line.clear()
                cut_bytes = 0
        if line:
            yield _text(line, cut_bytes)

    def _start_of(self, line: int) -> int:
        """Return the offset of a line's first byte: behind the newline of that number."""
        if line == 0:
            return 0
        if line > self._newlines:
            return self.size
        chunk = self._index.chunk_of_newline(line)
        content = self._read(chunk * CHUNK_BYTES)
        position = -1
        for _ in range(line - self._index.newlines_before(chunk)):
            position = content.index(b"\n", position + 1)
        return chunk * CHUNK_BYTES + position + 1

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Yield a range of bytes in pieces that end at newlines; carriage returns are no line ends."""
        for offset in range(start, end, CHUNK_BYTES):
            chunk = self._read(offset, end)
            position = 0
            while (newline := chunk.find(b"\n", position)) >= 0:
                yield chunk[position : newline + 1]
                position = newline + 1
            yield chunk[position:]

    def _read(self, offset: int, end: int | None = None) -> bytes:
        """Return the chunk's worth of bytes at an offset, none beyond the end."""
        return os.pread(self._fd, min(CHUNK_BYTES, (self.size if end is None else end) - offset), offset)


def _text(line: bytes | bytearray, cut_bytes: int) -> str:
    if not cut_bytes:
        return line.decode(errors="replace")
    # Not final: a character that the cut went through is left out instead of shown as a broken one.
    return f"{_Utf8(errors='replace').decode(line, final=False)} … [{cut_bytes} bytes cut]"
