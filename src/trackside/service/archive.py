"""Knows how a ZIP file is written while it is sent: never more of it is held than one piece."""

import zipfile
from datetime import UTC, datetime
from typing import IO

YEAR_MIN, YEAR_MAX = 1980, 2107  # what the format can say


class Archive:
    """A ZIP file that is taken away piece by piece. One member is written at a time."""

    def __init__(self, *, at_ms: int) -> None:
        self._sink = _Sink()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_DEFLATED)
        self._at = _dos_time(at_ms)
        self._member: IO[bytes] | None = None

    def begin(self, name: str) -> None:
        """Begin a file within."""
        member = zipfile.ZipInfo(name, self._at)
        member.compress_type = zipfile.ZIP_DEFLATED
        member.external_attr = 0o644 << 16
        self._member = self._zip.open(member, "w", force_zip64=True)  # its size is not known before

    def write(self, content: bytes) -> None:
        """Add to the file that was begun last."""
        assert self._member is not None
        self._member.write(content)

    def end(self) -> None:
        """End the file that was begun last."""
        if self._member is not None:
            self._member.close()
            self._member = None

    def close(self) -> None:
        """End the archive."""
        self.end()
        self._zip.close()

    def take(self) -> bytes:
        """Return what was written since the last time."""
        return self._sink.take()


class _Sink:
    """What the ZIP file is written to: it cannot be gone back in, and is emptied as it fills."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, content: bytes, /) -> int:
        self._pieces.append(bytes(content))
        return len(content)

    def close(self) -> None:
        """There is nothing to close."""

    def flush(self) -> None:
        """There is nothing to flush."""

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken


def _dos_time(at_ms: int) -> tuple[int, int, int, int, int, int]:
    when = datetime.fromtimestamp(at_ms / 1000, UTC)
    year = min(max(when.year, YEAR_MIN), YEAR_MAX)
    return year, when.month, when.day, when.hour, when.minute, when.second
