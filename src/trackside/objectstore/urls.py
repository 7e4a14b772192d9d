"""Knows how a place in the object store is written; pure, and refuses to know what is there.

`obs://bucket/key`, `oss://bucket/key`, `s3://bucket/key` and `/bucket/key` mean the same place. Nothing is
decoded: a percent sign in a key is a percent sign.
"""

import re
from dataclasses import dataclass

from trackside.domain.errors import Invalid

KEY_BYTES_MAX = 1024  # what the vendors' own stores take
QUOTED_CHARS_MAX = 200  # of a refused URL, in the error that refuses it

_PREFIX = re.compile(r"(?:obs://|oss://|s3://|/)(?!/)")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket and a key in it; no key means the whole bucket."""

    bucket: str
    key: str  # never begins or ends with a slash
    directory: bool  # written with a slash at the end, or without a key: cannot be a single object

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the key's segments."""
        return tuple(self.key.split("/")) if self.key else ()

    @property
    def url(self) -> str:
        """Return the one way we write this place."""
        return f"obs://{self.bucket}/{self.key}{'/' if self.directory and self.key else ''}"


def parse(url: str) -> Place:
    """Return the place a URL names, or raise Invalid that quotes the URL."""
    prefix = _PREFIX.match(url)
    if prefix is None:
        raise _refused(url, "it must begin with obs://bucket/ or /bucket/")
    if _UNPRINTABLE.search(url):
        raise _refused(url, "it must not contain control characters or backslashes")
    bucket, _, path = url[prefix.end() :].partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise _refused(url, "its bucket must be 2 to 63 letters, digits, dots, hyphens or underscores")
    key = path.removesuffix("/")
    if any(part in ("", ".", "..") for part in key.split("/")) and path:
        raise _refused(url, "its path must not contain empty, '.' or '..' segments")
    if _utf8_size(key, url) > KEY_BYTES_MAX:
        raise _refused(url, f"its path is longer than {KEY_BYTES_MAX} bytes")
    return Place(bucket=bucket, key=key, directory=path.endswith("/") or not key)


def parse_object(url: str) -> Place:
    """Return the place of a single object, or raise Invalid."""
    place = parse(url)
    if place.directory:
        raise _refused(url, "it names a directory, not an object")
    return place


def _utf8_size(key: str, url: str) -> int:
    try:
        return len(key.encode())
    except UnicodeEncodeError as error:
        raise _refused(url, "it is not valid Unicode") from error


def _refused(url: str, why: str) -> Invalid:
    shown = url if len(url) <= QUOTED_CHARS_MAX else url[:QUOTED_CHARS_MAX] + "…"
    return Invalid(
        f"{ascii(shown) if not shown.isprintable() else repr(shown)} is no object store URL: {why}"
    )
