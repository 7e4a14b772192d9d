"""Knows objects in any S3-compatible server, through obstore; knows no files but those it copies.

Error texts name the URL and what is wrong, never what the server or the library said: that may quote
requests. The library's own error is kept as the cause, for the log.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from trackside.domain.errors import Invalid, ObjectNotFound, Unavailable
from trackside.objectstore import beneath
from trackside.objectstore.urls import Place, parse, parse_object
from trackside.ports import ObjectInfo

PART_BYTES = 8 * 1024 * 1024
PARTS_MAX = 10_000  # of one upload, by the protocol
UPLOADS_AT_ONCE = 4  # parts of one file in memory
DOWNLOADS_AT_ONCE = 8
LINK_SECONDS_MAX = 7 * 24 * 3600  # by the protocol
RETRIES_MAX = 5
RETRY_SECONDS_MAX = 60
CONNECT_SECONDS_MAX = 5
STALL_SECONDS_MAX = 60  # without a byte; a whole transfer may take as long as it moves
TRANSFER_SECONDS_MAX = 24 * 3600

_WHY: tuple[tuple[type[BaseError], str], ...] = (
    (UnauthenticatedError, "its server does not know our access key"),
    (PermissionDeniedError, "its server does not allow it"),
    (InvalidPathError, "a key there is no plain path"),
    (BaseError, "its server could not be reached or did not answer as expected"),
)


def open_s3(
    endpoint: str,
    access_key: str,
    secret_key: str,
    region: str,
    *,
    virtual_hosted: bool = False,
    retries_max: int = RETRIES_MAX,
) -> "S3Objects":
    """Open an object store behind an S3-compatible endpoint; buckets must exist there.

    `virtual_hosted` puts the bucket into the host name (bucket.endpoint), which some clouds insist on.
    """
    scheme, separator, host = endpoint.rstrip("/").partition("://")
    if not separator or scheme not in ("http", "https") or not host:
        raise Invalid(f"the object store's endpoint {endpoint!r} must begin with http:// or https://")
    return S3Objects(
        scheme, host, (access_key, secret_key), region, virtual_hosted=virtual_hosted, retries_max=retries_max
    )


class S3Objects:
    """Implement ObjectStore over an S3-compatible server."""

    def __init__(
        self,
        scheme: str,
        host: str,
        credential: tuple[str, str],
        region: str,
        *,
        virtual_hosted: bool,
        retries_max: int,
    ) -> None:
        self._scheme = scheme
        self._host = host
        self._credential = credential
        self._region = region
        self._virtual_hosted = virtual_hosted
        self._retries_max = retries_max
        self._buckets: dict[str, S3Store] = {}

    def check_url(self, url: str) -> None:
        """Raise Invalid if the URL is not a plain place in the store."""
        parse(url)

    async def exists(self, url: str) -> bool:
        """Say whether there is an object at, or below, the URL."""
        place = parse(url)
        return await asyncio.to_thread(lambda: any(True for _ in self._found(place)))

    def list(self, url: str) -> Sequence[ObjectInfo]:
        """Return the objects below a URL, by path; an object at the URL itself under its base name."""
        return sorted((info for info, _ in self._found(parse(url))), key=lambda info: info.path)

    def download(self, url: str, to: Path) -> int:
        """Copy everything at or below the URL into the directory; return how many objects."""
        place = parse(url)
        store = self._bucket(place)
        found = list(self._found(place))
        if not found:
            raise ObjectNotFound(f"there is nothing at {url}")
        to.mkdir(parents=True, exist_ok=True)
        try:
            with (
                beneath.opened(to, os.O_RDONLY | os.O_DIRECTORY) as to_fd,
                ThreadPoolExecutor(DOWNLOADS_AT_ONCE, "downloads") as pool,
            ):
                copies = [pool.submit(_copy_object, store, key, to_fd, info.path) for info, key in found]
                try:
                    for copy in copies:
                        copy.result()
                finally:
                    pool.shutdown(cancel_futures=True)
        except BaseError as error:
            raise _unavailable(place, error) from error
        except OSError as error:
            raise Unavailable(
                f"{url} could not be copied: {error.strerror or 'an object vanished'}"
            ) from error
        return len(found)

    def upload_file(self, from_fd: int, url: str) -> None:
        """Store one file's content at the URL, replacing it whole."""
        place = parse_object(url)
        size = os.fstat(from_fd).st_size
        part_bytes = max(PART_BYTES, -(-size // PARTS_MAX))
        content = os.pread(from_fd, size, 0) if size <= part_bytes else _parts(from_fd, size, part_bytes)
        try:
            obstore.put(
                self._bucket(place),
                place.key,
                content,
                chunk_size=part_bytes,
                max_concurrency=UPLOADS_AT_ONCE,
            )
        except BaseError as error:
            raise _unavailable(place, error) from error
        except FileNotFoundError as error:
            raise ObjectNotFound(f"{url} could not be stored: there is no bucket {place.bucket}") from error

    def link(self, url: str, *, seconds: int) -> str:
        """Return an address where the object can be read for a while."""
        place = parse_object(url)
        if not 0 < seconds <= LINK_SECONDS_MAX:
            raise Invalid(f"a link lasts 1 to {LINK_SECONDS_MAX} seconds, not {seconds}")
        return obstore.sign(self._bucket(place), "GET", place.key, timedelta(seconds=seconds))

    def _bucket(self, place: Place) -> S3Store:
        if place.bucket not in self._buckets:
            self._buckets[place.bucket] = self._open_bucket(place.bucket)
        return self._buckets[place.bucket]

    def _open_bucket(self, bucket: str) -> S3Store:
        host = f"{bucket}.{self._host}" if self._virtual_hosted else self._host
        access_key, secret_key = self._credential
        return S3Store(
            bucket,
            endpoint=f"{self._scheme}://{host}",
            access_key_id=access_key,
            secret_access_key=secret_key,
            region=self._region,
            virtual_hosted_style_request=self._virtual_hosted,
            client_options={
                "allow_http": self._scheme == "http",
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS_MAX),
                "read_timeout": timedelta(seconds=STALL_SECONDS_MAX),
                "timeout": timedelta(seconds=TRANSFER_SECONDS_MAX),
            },
            retry_config={
                "max_retries": self._retries_max,
                "retry_timeout": timedelta(seconds=RETRY_SECONDS_MAX),
            },
        )

    def _found(self, place: Place) -> Iterator[tuple[ObjectInfo, str]]:
        """Yield the object at the place, or all below it, each with its key."""
        store = self._bucket(place)
        try:
            if not place.directory and (meta := _head(store, place.key)) is not None:
                yield _info(meta, place.parts[-1]), place.key
                return
            for metas in obstore.list(store, place.key or None):
                for meta in metas:
                    if not _is_marker(store, meta, place.key):
                        yield _info(meta, meta["path"].removeprefix(place.key).lstrip("/")), meta["path"]
        except BaseError as error:
            if "NoSuchBucket" not in str(error):
                raise _unavailable(place, error) from error


def _head(store: S3Store, key: str) -> "obstore.ObjectMeta | None":
    with contextlib.suppress(FileNotFoundError):
        return obstore.head(store, key)
    return None


def _is_marker(store: S3Store, meta: "obstore.ObjectMeta", prefix: str) -> bool:
    """Say whether this is the empty object "dir/" that consoles make to show a directory.

    The library drops the slash, so only asking for the object without it tells a marker from an empty file.
    """
    if meta["path"] == prefix:
        return True
    return meta["size"] == 0 and _head(store, meta["path"]) is None


def _info(meta: "obstore.ObjectMeta", path: str) -> ObjectInfo:
    return ObjectInfo(path, meta["size"], int(meta["last_modified"].timestamp() * 1000))


def _copy_object(store: S3Store, key: str, to_fd: int, path: str) -> None:
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):  # the library refuses these as well
        raise OSError(errno.EINVAL, f"the key {key!r} is no plain path")
    with (
        beneath.directory(to_fd, parts[:-1], create=True) as parent_fd,
        beneath.opened(parts[-1], beneath.WRITE, dir_fd=parent_fd) as fd,
    ):
        for chunk in obstore.get(store, key).stream():
            left = memoryview(chunk)
            while left:
                left = left[os.write(fd, left) :]


def _parts(fd: int, size: int, part_bytes: int) -> Iterator[bytes]:
    """Yield a file as long as it was when we began, so that a growing one ends."""
    offset = 0
    while offset < size and (part := os.pread(fd, min(part_bytes, size - offset), offset)):
        yield part
        offset += len(part)


def _unavailable(place: Place, error: BaseError) -> Unavailable:
    why = next(text for kind, text in _WHY if isinstance(error, kind))
    return Unavailable(f"{place.url}: {why}")
