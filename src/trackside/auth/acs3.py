"""Knows the ACS3-HMAC-SHA256 scheme of the current Alibaba SDKs; knows no routes, no users and no clock.

Header values are the wire's bytes read as Latin-1, so every step below works on exactly those bytes. Who
calls `verify` must still refuse a nonce that was used before.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from trackside.auth.claims import Claims, Dates, canonical_headers, keyed
from trackside.auth.proof import DOES_NOT_MATCH, NO_SUCH_SECRET, Proof
from trackside.domain.errors import Unauthenticated

ALGORITHM = "ACS3-HMAC-SHA256"
WINDOW_SECONDS = 900
CACHED_QUERY_BYTES_MAX = 512
_QUERIES_CACHED = 512
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
MUST_BE_SIGNED = ("host", "x-acs-date", "x-acs-signature-nonce", "x-acs-content-sha256")

_claims = Claims(algorithm=ALGORITHM, key_word="Credential", separator=",", must_be_signed=MUST_BE_SIGNED)
_dates = Dates(
    header="x-acs-date",
    form="%Y-%m-%dT%H:%M:%SZ",
    pattern=r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
    example="2026-01-31T23:59:59Z",
)
# Pairs that quoting would not change: what needs no quotes has none, and the rest is quoted in capitals.
_QUOTED = rb"%(?:[0189A-F][0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-DF])"
_PAIR = rb"[A-Za-z0-9_.~-]+=(?:[A-Za-z0-9_.~-]|" + _QUOTED + rb")*"
_CANONICAL = re.compile(_PAIR + rb"(?:&" + _PAIR + rb")*")
_AMBIGUOUS = re.compile(rb"[\x00-\x1f\x7f%&=]")  # in a name that is not quoted


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
    access_key, names, signature = _claims.read(headers.get("authorization"))
    signed_headers = canonical_headers(names, headers)
    signed_at_s = _dates.check(headers["x-acs-date"], now_ms, window_seconds)
    nonce = headers["x-acs-signature-nonce"]
    if not nonce:
        raise Unauthenticated("The header x-acs-signature-nonce is empty.")
    payload = hashlib.sha256(body).hexdigest() if body else EMPTY_SHA256
    if not hmac.compare_digest(headers["x-acs-content-sha256"].lower().encode("latin-1"), payload.encode()):
        raise Unauthenticated("The header x-acs-content-sha256 is not the SHA-256 of the body.")
    secret = secret_of(access_key)
    hashed = keyed(secret or NO_SUCH_SECRET, "sha256")  # an unknown key costs as much as a wrong signature
    head = f"{method.upper()}\n{raw_path.decode('latin-1')}\n"
    tail = f"\n{signed_headers}\n{';'.join(names)}\n{payload}"
    matches = False
    for query in _queries(raw_query) if raw_query else ("",):
        request = f"{head}{query}{tail}".encode("latin-1")
        mac = hashed.copy()
        mac.update(f"{ALGORITHM}\n{hashlib.sha256(request).hexdigest()}".encode())
        matches |= hmac.compare_digest(mac.digest(), signature)
    if secret is None:
        raise Unauthenticated("Unknown access key.")
    if not matches:
        raise Unauthenticated(DOES_NOT_MATCH)
    return Proof(access_key, nonce, signed_at_s)


def _queries(raw_query: bytes) -> tuple[str, ...]:
    if len(raw_query) <= CACHED_QUERY_BYTES_MAX:
        return _queries_again(raw_query)
    return tuple(_canonical_queries(raw_query))


@lru_cache(maxsize=_QUERIES_CACHED)
def _queries_again(raw_query: bytes) -> tuple[str, ...]:
    """Return the forms of a query; who watches a job sends the same again and again."""
    return tuple(_canonical_queries(raw_query))


def _canonical_queries(raw_query: bytes) -> Iterator[str]:
    """Yield the pairs sorted, with names quoted, then with names as they are if that differs.

    The scheme says quoted; the Python SDK does not quote names. A name that could then be taken for
    something else (a & or = or % in it) is accepted in the quoted form only.
    """
    if _CANONICAL.fullmatch(raw_query):
        in_order = sorted([part.split("=") for part in raw_query.decode("ascii").split("&")])
        yield "&".join(["=".join(pair) for pair in in_order])
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
