"""Knows what the schemes that list their signed headers have in common: the claim, the headers, the dates."""

import hmac
import re
import time
from binascii import unhexlify
from calendar import timegm
from collections.abc import Mapping
from functools import lru_cache

from trackside.auth.proof import clock_trouble
from trackside.domain.errors import Unauthenticated

SIGNATURE_DIGITS = 64
_CLAIMS_CACHED = 256  # a client sends the same one with every request
_DATES_CACHED = 256
_SECRETS_CACHED = 256


class Claims:
    """Reads the Authorization header of one scheme: who signed which headers, and the signature."""

    def __init__(
        self, *, algorithm: str, key_word: str, separator: str, must_be_signed: tuple[str, ...]
    ) -> None:
        self._must_be_signed = must_be_signed
        self._pattern = re.compile(
            algorithm + rf" +{key_word}=([^,\s]+) *, *SignedHeaders=([^,\s]+) *, *Signature="
        )
        parts = separator.join((f"{key_word}=…", "SignedHeaders=…", "Signature=…"))
        self._form = f"{algorithm} {parts}"
        self._read_again = lru_cache(maxsize=_CLAIMS_CACHED)(self._read)

    def read(self, authorization: str | None) -> tuple[str, tuple[str, ...], bytes]:
        """Return the access key, the names of the signed headers and the signature."""
        if authorization is None:
            raise Unauthenticated("The Authorization header is missing.")
        access_key, names = self._read_again(authorization[:-SIGNATURE_DIGITS])
        try:
            return access_key, names, unhexlify(authorization[-SIGNATURE_DIGITS:])
        except ValueError:
            raise self._ill_formed() from None

    def _read(self, text: str) -> tuple[str, tuple[str, ...]]:
        match = self._pattern.fullmatch(text)
        if match is None:
            raise self._ill_formed()
        names = tuple(match[2].split(";"))
        for name in self._must_be_signed:
            if name not in names:
                raise Unauthenticated(f"The header {name} must be among the SignedHeaders.")
        return match[1], names

    def _ill_formed(self) -> Unauthenticated:
        return Unauthenticated(
            f"The Authorization header is not of the form '{self._form}'"
            f" with a signature of {SIGNATURE_DIGITS} hexadecimal digits."
        )


class Dates:
    """Reads the date header of one scheme and holds it to the server's clock."""

    def __init__(self, *, header: str, form: str, pattern: str, example: str) -> None:
        self._header = header
        self._form = form
        self._pattern = re.compile(pattern)
        self._example = example
        self._seconds = lru_cache(maxsize=_DATES_CACHED)(self._read)

    def check(self, date: str, now_ms: int, window_seconds: int) -> int:
        """Return when the request was signed, in seconds; raise if that is too far from now."""
        signed_seconds = self._seconds(date)
        if signed_seconds is None:
            raise Unauthenticated(f"{self._header} is not a UTC time of the form {self._example}.")
        if abs(now_ms - signed_seconds * 1000) > window_seconds * 1000:
            now = time.strftime(self._form, time.gmtime(now_ms // 1000))
            raise Unauthenticated(clock_trouble(self._header, date, now, window_seconds))
        return signed_seconds

    def _read(self, date: str) -> int | None:
        try:
            return timegm(time.strptime(date, self._form)) if self._pattern.fullmatch(date) else None
        except ValueError:  # a month 13, a 31st of April
            return None


@lru_cache(maxsize=_SECRETS_CACHED)
def keyed(secret: str, digest: str) -> hmac.HMAC:
    """Return a keyed hash to copy: half the price of a new one."""
    return hmac.new(secret.encode(), digestmod=digest)


def canonical_headers(names: tuple[str, ...], headers: Mapping[str, str]) -> str:
    """Return the signed headers as both schemes write them."""
    try:
        return "".join([f"{name}:{headers[name]}\n" for name in names])
    except KeyError as missing:
        raise Unauthenticated(
            f"SignedHeaders names {missing.args[0][:80]!r}, which the request does not carry"
            " (names are lower-case)."
        ) from None
