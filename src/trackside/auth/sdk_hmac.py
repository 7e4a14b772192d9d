"""Knows the SDK-HMAC-SHA256 scheme of the Huawei SDKs; knows no routes, no users and no clock.

The scheme has no nonce: within the window a recorded request can be sent again, so use TLS.
Header values are the wire's bytes read as Latin-1, so every step below works on exactly those bytes.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, unquote, unquote_plus

from trackside.auth.claims import Claims, Dates, canonical_headers, keyed
from trackside.auth.proof import DOES_NOT_MATCH, NO_SUCH_SECRET
from trackside.domain.errors import Unauthenticated

ALGORITHM = "SDK-HMAC-SHA256"
WINDOW_SECONDS = 900
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
MUST_BE_SIGNED = ("host", "x-sdk-date")

_claims = Claims(algorithm=ALGORITHM, key_word="Access", separator=", ", must_be_signed=MUST_BE_SIGNED)
_dates = Dates(
    header="X-Sdk-Date", form="%Y%m%dT%H%M%SZ", pattern=r"[0-9]{8}T[0-9]{6}Z", example="20260131T235959Z"
)
_PLAIN_PATH = re.compile(rb"[A-Za-z0-9_.~/-]+")  # quoting would change nothing
_PLAIN_QUERY = re.compile(rb"[A-Za-z0-9_.~-]+=[A-Za-z0-9_.~-]*")  # one pair; likewise


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
    access_key, names, signature = _claims.read(headers.get("authorization"))
    signed_headers = canonical_headers(names, headers)
    date = headers["x-sdk-date"]
    _dates.check(date, now_ms, window_seconds)
    secret = secret_of(access_key)
    hashed = keyed(secret or NO_SUCH_SECRET, "sha256")  # an unknown key costs as much as a wrong signature
    head = f"{method.upper()}\n{_canonical_path(raw_path)}\n"
    tail = f"\n{signed_headers}\n{';'.join(names)}\n{_payload_hash(headers, body) if body else EMPTY_SHA256}"
    matches = False
    for query in _canonical_queries(raw_query) if raw_query else ("",):
        request = f"{head}{query}{tail}".encode("latin-1")
        mac = hashed.copy()
        mac.update(f"{ALGORITHM}\n{date}\n{hashlib.sha256(request).hexdigest()}".encode())
        matches |= hmac.compare_digest(mac.digest(), signature)
    if secret is None:
        raise Unauthenticated("Unknown access key.")
    if not matches:
        raise Unauthenticated(DOES_NOT_MATCH)
    return access_key


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
