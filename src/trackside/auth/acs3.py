"""Knows the ACS3-HMAC-SHA256 scheme of the current Alibaba SDKs; knows no routes, no users and no clock.

Header values are the wire's bytes read as Latin-1, so every step below works on exactly those bytes. Who
calls `verify` must still refuse a nonce that was used before.
"""

import hashlib
import hmac
import re
import time
from binascii import unhexlify
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from trackside.auth.proof import DOES_NOT_MATCH, NO_SUCH_SECRET, Proof, clock_trouble
from trackside.domain.errors import Unauthenticated

ALGORITHM = "ACS3-HMAC-SHA256"
WINDOW_SECONDS = 900
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
MUST_BE_SIGNED = ("host", "x-acs-date", "x-acs-signature-nonce", "x-acs-content-sha256")

_CLAIM = re.compile(ALGORITHM + r" +Credential=([^,\s]+) *, *SignedHeaders=([^,\s]+) *, *Signature=")
_SIGNATURE_DIGITS = 64
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")
_PLAIN_QUERY = re.compile(rb"[A-Za-z0-9_.~-]+=[A-Za-z0-9_.~-]*")  # one pair; quoting would change nothing
_AMBIGUOUS = re.compile(rb"[\x00-\x1f\x7f%&=]")  # in a name that is not quoted
_CLAIMS_CACHED = 256  # a client sends the same one with every request
_DATES_CACHED = 256
_SECRETS_CACHED = 256


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
) -> Proof:
    """Return whose signature the request bears, or raise Unauthenticated saying what is wrong.

    Header names are lower-case and values stripped of white space.
    """
    authorization = headers.get("authorization")
    if authorization is None:
        raise Unauthenticated("The Authorization header is missing.")
    access_key, names = _claim(authorization[:-_SIGNATURE_DIGITS])
    signature = _signature(authorization)
    canonical_headers = _canonical_headers(names, headers)
    signed_at_s = _check_date(headers["x-acs-date"], now_ms, window_seconds)
    nonce = headers["x-acs-signature-nonce"]
    if not nonce:
        raise Unauthenticated("The header x-acs-signature-nonce is empty.")
    payload = hashlib.sha256(body).hexdigest() if body else EMPTY_SHA256
    if not hmac.compare_digest(headers["x-acs-content-sha256"].lower().encode("latin-1"), payload.encode()):
        raise Unauthenticated("The header x-acs-content-sha256 is not the SHA-256 of the body.")
    secret = secret_of(access_key)
    keyed = _keyed(secret or NO_SUCH_SECRET)  # an unknown key costs as much as a wrong signature
    head = f"{method.upper()}\n{raw_path.decode('latin-1')}\n"
    tail = f"\n{canonical_headers}\n{';'.join(names)}\n{payload}"
    matches = False
    for query in _canonical_queries(raw_query) if raw_query else ("",):
        request = f"{head}{query}{tail}".encode("latin-1")
        mac = keyed.copy()
        mac.update(f"{ALGORITHM}\n{hashlib.sha256(request).hexdigest()}".encode())
        matches |= hmac.compare_digest(mac.digest(), signature)
    if secret is None:
        raise Unauthenticated("Unknown access key.")
    if not matches:
        raise Unauthenticated(DOES_NOT_MATCH)
    return Proof(access_key, nonce, signed_at_s)


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
        f"The Authorization header is not of the form '{ALGORITHM} Credential=…,SignedHeaders=…,Signature=…'"
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


def _check_date(date: str, now_ms: int, window_seconds: int) -> int:
    signed_seconds = _seconds(date)
    if signed_seconds is None:
        raise Unauthenticated("x-acs-date is not a UTC time of the form 2026-01-31T23:59:59Z.")
    if abs(now_ms - signed_seconds * 1000) > window_seconds * 1000:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ms // 1000))
        raise Unauthenticated(clock_trouble("x-acs-date", date, now, window_seconds))
    return signed_seconds


@lru_cache(maxsize=_DATES_CACHED)
def _seconds(date: str) -> int | None:
    match = _DATE.fullmatch(date)
    if match is None:
        return None
    try:
        return int(datetime(*map(int, match.groups()), tzinfo=UTC).timestamp())  # type: ignore[misc, arg-type]
    except ValueError:  # a month 13
        return None


def _canonical_queries(raw_query: bytes) -> Iterator[str]:
    """Yield the pairs sorted, with names quoted, then with names as they are if that differs.

    The scheme says quoted; the Python SDK does not quote names. A name that could then be taken for
    something else (a & or = or % in it) is accepted in the quoted form only.
    """
    if _PLAIN_QUERY.fullmatch(raw_query):
        yield raw_query.decode("ascii")
        return
    pairs = []
    for part in raw_query.replace(b"+", b" ").split(b"&"):
        if part:
            name, _, value = part.partition(b"=")
            pairs.append((unquote_to_bytes(name), quote(unquote_to_bytes(value), safe="~")))
    quoted = "&".join(
        [f"{name}={value}" for name, value in sorted((quote(n, safe="~"), v) for n, v in pairs)]
    )
    yield quoted
    if any(_AMBIGUOUS.search(name) for name, _ in pairs):
        return
    plain = "&".join([f"{name.decode('latin-1')}={value}" for name, value in sorted(pairs)])
    if plain != quoted:
        yield plain
