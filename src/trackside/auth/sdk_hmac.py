"""Knows the SDK-HMAC-SHA256 scheme of the Huawei SDKs; knows no routes, no users and no clock.

The scheme has no nonce: within the window a recorded request can be sent again, so use TLS.
Header values are the wire's bytes read as Latin-1, so every step below works on exactly those bytes.
"""

import hashlib
import hmac
import re
import time
from binascii import unhexlify
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, unquote, unquote_plus

from trackside.domain.errors import Unauthenticated

ALGORITHM = "SDK-HMAC-SHA256"
WINDOW_SECONDS = 900
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
MUST_BE_SIGNED = ("host", "x-sdk-date")

_CLAIM = re.compile(ALGORITHM + r" +Access=([^,\s]+) *, *SignedHeaders=([^,\s]+) *, *Signature=")
_SIGNATURE_DIGITS = 64
_DATE = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z")
_PLAIN_PATH = re.compile(rb"[A-Za-z0-9_.~/-]+")  # quoting would change nothing
_PLAIN_QUERY = re.compile(rb"[A-Za-z0-9_.~-]+=[A-Za-z0-9_.~-]*")  # one pair; likewise
_CLAIMS_CACHED = 256  # a client sends the same one with every request
_DATES_CACHED = 256
_SECRETS_CACHED = 256
_NO_SUCH_SECRET = "no access key has this secret"  # noqa: S105


def verify(
    *,
    method: str,
    raw_path: bytes,
    raw_query: bytes,
    headers: Mapping[str, str],
    body: bytes,
    secret_of: Callable[[str], str | None],
    now_ms: int,
    window_seconds: int = WINDOW_SECONDS,
) -> str:
    """Return the access key that signed the request, or raise Unauthenticated saying what is wrong.

    Header names are lower-case and values stripped of white space.
    """
    authorization = headers.get("authorization")
    if authorization is None:
        raise Unauthenticated("The Authorization header is missing.")
    access_key, names = _claim(authorization[:-_SIGNATURE_DIGITS])
    signature = _signature(authorization)
    canonical_headers = _canonical_headers(names, headers)
    date = headers["x-sdk-date"]
    _check_date(date, now_ms, window_seconds)
    secret = secret_of(access_key)
    keyed = _keyed(secret or _NO_SUCH_SECRET)  # an unknown key costs as much as a wrong signature
    head = f"{method.upper()}\n{_canonical_path(raw_path)}\n"
    tail = (
        f"\n{canonical_headers}\n{';'.join(names)}\n{_payload_hash(headers, body) if body else EMPTY_SHA256}"
    )
    matches = False
    for query in _canonical_queries(raw_query) if raw_query else ("",):
        request = f"{head}{query}{tail}".encode("latin-1")
        mac = keyed.copy()
        mac.update(f"{ALGORITHM}\n{date}\n{hashlib.sha256(request).hexdigest()}".encode())
        matches |= hmac.compare_digest(mac.digest(), signature)
    if secret is None:
        raise Unauthenticated("Unknown access key.")
    if not matches:
        raise Unauthenticated(
            "The signature does not match the request. Check the secret key, and that method, path, query,"
            " signed headers and body arrive as they were signed."
        )
    return access_key


@lru_cache(maxsize=_CLAIMS_CACHED)
def _claim(text: str) -> tuple[str, tuple[str, ...]]:
    """Read what stands before the signature: the access key and the names of the signed headers."""
    match = _CLAIM.fullmatch(text)
    if match is None:
        raise _ill_formed()
    names = tuple(match[2].split(";"))
    for name in MUST_BE_SIGNED:
        if name not in names:
            raise Unauthenticated(f"The header {name} must be among the SignedHeaders.")
    return match[1], names


@lru_cache(maxsize=_SECRETS_CACHED)
def _keyed(secret: str) -> hmac.HMAC:
    """Return a keyed hash to copy: half the price of a new one."""
    return hmac.new(secret.encode(), digestmod="sha256")


def _signature(authorization: str) -> bytes:
    try:
        return unhexlify(authorization[-_SIGNATURE_DIGITS:])
    except ValueError:
        raise _ill_formed() from None


def _ill_formed() -> Unauthenticated:
    return Unauthenticated(
        f"The Authorization header is not of the form '{ALGORITHM} Access=…, SignedHeaders=…, Signature=…'"
        f" with a signature of {_SIGNATURE_DIGITS} hexadecimal digits."
    )


def _canonical_headers(names: tuple[str, ...], headers: Mapping[str, str]) -> str:
    try:
        return "".join([f"{name}:{headers[name]}\n" for name in names])
    except KeyError as missing:
        raise Unauthenticated(
            f"SignedHeaders names {missing.args[0][:80]!r}, which the request does not carry"
            " (names are lower-case)."
        ) from None


def _check_date(date: str, now_ms: int, window_seconds: int) -> None:
    signed_seconds = _seconds(date)
    if signed_seconds is None:
        raise Unauthenticated("X-Sdk-Date is not a UTC time of the form 20260131T235959Z.")
    if abs(now_ms - signed_seconds * 1000) > window_seconds * 1000:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ms // 1000))
        raise Unauthenticated(
            f"X-Sdk-Date is {date} but the server's clock says {now}; they may differ by {window_seconds} s"
            " at most. Check the clocks."
        )


@lru_cache(maxsize=_DATES_CACHED)
def _seconds(date: str) -> int | None:
    match = _DATE.fullmatch(date)
    if match is None:
        return None
    try:
        return int(datetime(*map(int, match.groups()), tzinfo=UTC).timestamp())  # type: ignore[misc, arg-type]
    except ValueError:  # a month 13
        return None


def _canonical_path(raw_path: bytes) -> str:
    """Quote each part anew; the whole path is unquoted before it is split, as the SDK does."""
    if _PLAIN_PATH.fullmatch(raw_path):
        path = raw_path.decode("ascii")
    else:
        path = "/".join([quote(part, safe="~") for part in unquote(raw_path.decode("latin-1")).split("/")])
    return path if path.endswith("/") else path + "/"


def _canonical_queries(raw_query: bytes) -> Iterator[str]:
    """Yield the pairs quoted anew: as they were sent, then sorted as text if that differs.

    The SDK sends its query in the order it signs, which for a list of numbers is not the order of text;
    other clients send any order and sign it sorted.
    """
    if _PLAIN_QUERY.fullmatch(raw_query):
        yield raw_query.decode("ascii")
        return
    pairs = []
    for part in raw_query.decode("latin-1").split("&"):
        if part:
            name, _, value = part.partition("=")
            pairs.append((unquote_plus(name), unquote_plus(value)))
    as_sent = _join(pairs)
    yield as_sent
    in_order = _join(sorted(pairs))
    if in_order != as_sent:
        yield in_order


def _join(pairs: list[tuple[str, str]]) -> str:
    return "&".join([f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in pairs])


def _payload_hash(headers: Mapping[str, str], body: bytes) -> str:
    if headers.get("x-sdk-content-sha256") == UNSIGNED_PAYLOAD:
        return UNSIGNED_PAYLOAD
    return hashlib.sha256(body).hexdigest()
