"""Knows objects as files: DIR/bucket/key. Knows no network.

obstore's LocalStore is not used: it follows symlinks out of its directory, when listing, reading and
writing. Here no symlink below the directory is followed at all; one is simply not an object.

An object replaced whole is never seen half: it is written beside the buckets and renamed. It is not forced
to disk; after a power failure a just-written object may be missing.
"""

import asyncio
import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trackside.domain.errors import Invalid, ObjectNotFound, Unavailable
from trackside.objectstore import beneath
from trackside.objectstore.urls import Place, parse, parse_object
from trackside.ports import ObjectInfo

INCOMING = ".incoming"  # no bucket can have this name

# A path through something that is no directory, or through a symlink, leads to no object.
_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO})
_UNUSABLE_KEY = {
    errno.ENAMETOOLONG: "a part of its path is too long for the file system",
    errno.ENOTDIR: "a part of its path is not a directory",
    errno.EISDIR: "it is a directory",
    errno.ENOTEMPTY: "it is a directory",
    errno.EEXIST: "it is a directory",
    errno.ELOOP: "a part of its path is a symlink",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """One object: where it is below the root, and its path relative to what was asked for."""

    source: tuple[str, ...]
    path: tuple[str, ...]
    status: os.stat_result


def open_objects(root: Path) -> "LocalObjects":
    """Open the embedded object store in a directory, made if it is not there."""
    (root / INCOMING).mkdir(parents=True, exist_ok=True)
    return LocalObjects(root)


class LocalObjects:
    """Implement ObjectStore over a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def check_url(self, url: str) -> None:
        """Raise Invalid if the URL is not a plain place in the store."""
        parse(url)

    async def exists(self, url: str) -> bool:
        """Say whether there is an object at, or below, the URL."""
        place = parse(url)
        return await asyncio.to_thread(lambda: any(True for _ in self._found(place)))

    def list(self, url: str) -> Sequence[ObjectInfo]:
        """Return the objects below a URL, by path; an object at the URL itself under its base name."""
        found = [
            ObjectInfo(_shown(object_.path), object_.status.st_size, object_.status.st_mtime_ns // 1_000_000)
            for object_ in self._found(parse(url))
        ]
        return sorted(found, key=lambda info: info.path)

    def download(self, url: str, to: Path) -> int:
        """Copy everything at or below the URL into the directory; return how many objects."""
        place = parse(url)
        count = 0
        to.mkdir(parents=True, exist_ok=True)
        try:
            with self._opened_root() as root_fd, beneath.opened(to, os.O_RDONLY | os.O_DIRECTORY) as to_fd:
                for found in self._found(place):
                    _copy_object(root_fd, found, to_fd)
                    count += 1
        except OSError as error:
            raise Unavailable(f"{url} could not be copied: {error.strerror}") from error
        if count == 0:
            raise ObjectNotFound(f"there is nothing at {url}")
        return count

    def upload_file(self, from_fd: int, url: str) -> None:
        """Store one file's content at the URL, replacing it whole."""
        place = parse_object(url)
        incoming = f"{INCOMING}/{secrets.token_hex(16)}"
        try:
            with self._opened_root() as root_fd:
                try:
                    with beneath.opened(incoming, beneath.WRITE | os.O_EXCL, dir_fd=root_fd) as to_fd:
                        beneath.copy(from_fd, to_fd)
                    with beneath.directory(
                        root_fd, (place.bucket, *place.parts[:-1]), create=True
                    ) as parent_fd:
                        os.rename(incoming, place.parts[-1], src_dir_fd=root_fd, dst_dir_fd=parent_fd)
                finally:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(incoming, dir_fd=root_fd)
        except OSError as error:
            raise _not_stored(url, error) from error

    def link(self, url: str, *, seconds: int) -> str:  # noqa: ARG002
        """Refuse: a directory has no address of its own; the server makes links to it."""
        raise Invalid(f"the embedded object store has no links to {url} of its own")

    def _opened_root(self) -> contextlib.AbstractContextManager[int]:
        # The directory itself may be reached through a symlink: whoever runs the server chose it.
        return beneath.opened(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _found(self, place: Place) -> Iterator[_Found]:
        """Yield the object at the place, or all below it."""
        source = (place.bucket, *place.parts)
        try:
            with self._opened_root() as root_fd:
                if not place.directory:
                    with _nothing_there(), beneath.regular_file(root_fd, source) as fd:
                        yield _Found(source, source[-1:], os.fstat(fd))
                        return
                with _nothing_there(), beneath.directory(root_fd, source) as fd:
                    for path, status in beneath.regular_files(fd):
                        yield _Found(source + path, path, status)
        except OSError as error:
            raise Unavailable(f"{place.url} could not be read: {error.strerror}") from error


@contextlib.contextmanager
def _nothing_there() -> Iterator[None]:
    """Take it as an answer, not as an error, that a path leads to nothing."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOTHING_THERE:
            raise


def _copy_object(root_fd: int, found: _Found, to_fd: int) -> None:
    with (
        beneath.regular_file(root_fd, found.source) as from_fd,
        beneath.directory(to_fd, found.path[:-1], create=True) as parent_fd,
        beneath.opened(found.path[-1], beneath.WRITE, dir_fd=parent_fd) as copy_fd,
    ):
        beneath.copy(from_fd, copy_fd)


def _not_stored(url: str, error: OSError) -> Invalid | Unavailable:
    if error.errno in _UNUSABLE_KEY:
        return Invalid(f"{url} cannot be an object: {_UNUSABLE_KEY[error.errno]}")
    return Unavailable(f"{url} could not be stored: {error.strerror}")


def _shown(path: tuple[str, ...]) -> str:
    """Return a path as text; bytes that are no UTF-8 are shown as replacement characters."""
    return "/".join(path).encode(errors="surrogateescape").decode(errors="replace")
