"""Knows the ROA HMAC-SHA1 scheme of the older Alibaba SDKs; knows no routes, no users and no clock.

The scheme is weak, and nothing here can mend it: it does not cover the body (the SDKs send no Content-MD5),
nor the Host, and a query is signed unquoted, so that `a=1&b=2` and `a=1%26b%3D2` have one signature. Use it
over TLS only, or switch it off (`allow_roa_sha1`). A Content-MD5 that is sent is held to the body. Who calls
`verify` must still refuse a nonce that was used before.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from urllib.parse import unquote_to_bytes

from trackside.auth.claims import Dates, keyed
from trackside.auth.proof import DOES_NOT_MATCH, NO_SUCH_SECRET, Proof
from trackside.domain.errors import Unauthenticated

SCHEME = "acs "
WINDOW_SECONDS = 900
METHOD = "HMAC-SHA1"
MUST_BE_SENT = ("date", "x-acs-signature-nonce")

_CLAIM = re.compile(r"acs +([^\s:]+):([A-Za-z0-9+/]{27}=)")
_dates = Dates(
    header="Date",
    form="%a, %d %b %Y %H:%M:%S GMT",
    pattern=r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
    example="Sat, 31 Jan 2026 23:59:59 GMT",
)
_SIGNED_ALWAYS = ("accept", "content-md5", "content-type", "date")


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
    access_key, signature = _claim(headers.get("authorization"))
    for name in MUST_BE_SENT:
        if not headers.get(name):
            raise Unauthenticated(f"The header {name} is missing.")
    if headers.get("x-acs-signature-method", METHOD).upper() != METHOD:
        raise Unauthenticated(f"x-acs-signature-method must be {METHOD}.")
    signed_at_s = _dates.check(headers["date"], now_ms, window_seconds)
    _check_content(headers.get("content-md5"), body)
    secret = secret_of(access_key)
    mac = keyed(secret or NO_SUCH_SECRET, "sha1").copy()  # an unknown key costs as much as a wrong signature
    mac.update(_string_to_sign(method, raw_path, raw_query, headers))
    matches = hmac.compare_digest(mac.digest(), signature)
    if secret is None:
        raise Unauthenticated("Unknown access key.")
    if not matches:
        raise Unauthenticated(DOES_NOT_MATCH)
    return Proof(access_key, headers["x-acs-signature-nonce"], signed_at_s)


def _claim(authorization: str | None) -> tuple[str, bytes]:
    if authorization is None:
        raise Unauthenticated("The Authorization header is missing.")
    match = _CLAIM.fullmatch(authorization)
    if match is None:
        raise Unauthenticated(
            "The Authorization header is not of the form 'acs ACCESSKEY:SIGNATURE' with a signature of 28"
            " base64 characters."
        )
    return match[1], base64.b64decode(match[2])


def _check_content(stated: str | None, body: bytes) -> None:
    if not stated:
        return
    try:
        digest = base64.b64decode(stated, validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if not hmac.compare_digest(digest, hashlib.md5(body, usedforsecurity=False).digest()):
        raise Unauthenticated("Content-MD5 is not the MD5 of the body.")


def _string_to_sign(method: str, raw_path: bytes, raw_query: bytes, headers: Mapping[str, str]) -> bytes:
    fixed = [method.upper(), *[headers.get(name, "") for name in _SIGNED_ALWAYS]]
    own = [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-acs-")]
    return "\n".join([*fixed, *own]).encode("latin-1") + b"\n" + raw_path + _resource_query(raw_query)


def _resource_query(raw_query: bytes) -> bytes:
    """Return the pairs by name, unquoted; an empty value leaves the name alone."""
    pairs = []
    for part in raw_query.replace(b"+", b" ").split(b"&"):
        if part:
            name, _, value = part.partition(b"=")
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    if not pairs:
        return b""
    pairs.sort(key=lambda pair: pair[0])
    return b"?" + b"&".join([name + b"=" + value if value else name for name, value in pairs])
