"""Knows how to read one small kernel file again and again; knows nothing of what stands in it.

Opening a file below /proc costs more than reading it, so files stay open, up to a limit that leaves
the process its descriptors. An open file also stays with its process: a reused pid is not mistaken.
"""

import errno
import os

GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ENODEV})  # each kind of file has its way to be gone
HELD_MAX = 400  # descriptors kept open by all ProcFiles together
READ_BYTES_MAX = 65_536

_held = 0


class ProcFile:
    """Read a kernel file from its beginning, as often as asked; close it in the end."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._fd: int | None = None

    def read(self) -> bytes | None:
        """Return the content; None when the file, or the process behind it, is gone.

        Raise PermissionError when it is there but not for us, and any other OSError: to take a lack of
        descriptors for an exit would count the process twice later.
        """
        try:
            if self._fd is not None:
                return os.pread(self._fd, READ_BYTES_MAX, 0)
            return self._open_and_read()
        except OSError as error:
            if error.errno not in GONE:
                raise
            self.close()
            return None

    def close(self) -> None:
        """Give the descriptor back."""
        global _held  # noqa: PLW0603 - one budget for the process, as the limit is the process's
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            _held -= 1

    def _open_and_read(self) -> bytes:
        global _held  # noqa: PLW0603
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        if _held < HELD_MAX:
            self._fd = fd
            _held += 1
            return os.pread(fd, READ_BYTES_MAX, 0)
        try:
            return os.pread(fd, READ_BYTES_MAX, 0)
        finally:
            os.close(fd)


def read_once(path: str | os.PathLike[str]) -> bytes | None:
    """Return the content of a kernel file that is not worth keeping open; None when it is gone."""
    file = ProcFile(path)
    try:
        return file.read()
    finally:
        file.close()
