"""Knows how to open things below a directory without ever following a symlink; knows no URLs."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
COPY_CHUNK_BYTES = 64 * 1024 * 1024

# What the kernel says when it cannot copy between these two files by itself.
_NO_KERNEL_COPY = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM})


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], flags: int, *, dir_fd: int | None = None) -> Iterator[int]:
    """Open a file for the length of a block."""
    fd = os.open(path, flags, 0o666, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def directory(root_fd: int, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open the directory of these segments below another, made on the way if asked."""
    with contextlib.ExitStack() as stack:
        fd = root_fd
        for part in parts:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            fd = stack.enter_context(opened(part, DIRECTORY, dir_fd=fd))
        yield fd


@contextlib.contextmanager
def regular_file(root_fd: int, parts: Sequence[str]) -> Iterator[int]:
    """Open the regular file of these segments for reading; anything else is not found."""
    with directory(root_fd, parts[:-1]) as parent_fd, opened(parts[-1], READ, dir_fd=parent_fd) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parts[-1])
        yield fd


def regular_files(fd: int, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    """Yield the segments and state of every regular file below an open directory."""
    with os.scandir(fd) as entries:
        for entry in entries:
            path = (*prefix, entry.name)
            if entry.is_dir(follow_symlinks=False):
                # Gone, or no longer a directory, since it was listed: nothing below it.
                gone = contextlib.suppress(FileNotFoundError, NotADirectoryError)
                with gone, opened(entry.name, DIRECTORY, dir_fd=fd) as child_fd:
                    yield from regular_files(child_fd, path)
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    yield path, entry.stat(follow_symlinks=False)


def copy(from_fd: int, to_fd: int) -> None:
    """Copy a file as long as it is now, inside the kernel, sharing blocks where the file system can.

    What a writer adds meanwhile is left out, so that a copy of a growing file ends.
    """
    size = os.fstat(from_fd).st_size
    offset = 0
    step = _share
    while offset < size:
        try:
            copied = step(from_fd, to_fd, offset, min(COPY_CHUNK_BYTES, size - offset))
        except OSError as error:
            if step is _send or error.errno not in _NO_KERNEL_COPY:
                raise
            step = _send
            continue
        if copied == 0:  # cut short meanwhile
            return
        offset += copied


def _share(from_fd: int, to_fd: int, offset: int, count: int) -> int:
    return os.copy_file_range(from_fd, to_fd, count, offset_src=offset)


def _send(from_fd: int, to_fd: int, offset: int, count: int) -> int:
    return os.sendfile(to_fd, from_fd, offset, count)
