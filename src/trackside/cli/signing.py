"""Knows how a request is signed with SDK-HMAC-SHA256; the server's side of it is in auth/sdk_hmac.py."""

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

from trackside.auth.sdk_hmac import ALGORITHM

Pairs = Sequence[tuple[str, str]]


def query_string(query: Pairs) -> str:
    """Return the query as it is both sent and signed: sorted, everything but unreserved characters quoted."""
    return "&".join(f"{quote(key, safe='~')}={quote(value, safe='~')}" for key, value in sorted(query))


def sign(
    *,
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    access_key: str,
    secret_key: str,
    date: str | None = None,
) -> dict[str, str]:
    """Return the headers with X-Sdk-Date and Authorization added; `path` is quoted, `query` from above.

    `headers` must hold Host: a server insists that it is signed.
    """
    stamped = {**headers, "X-Sdk-Date": date or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())}
    canonical = {name.lower(): value.strip() for name, value in stamped.items()}
    names = ";".join(sorted(canonical))
    request = "\n".join(
        (
            method.upper(),
            _canonical_path(path),
            query,
            "".join(f"{name}:{canonical[name]}\n" for name in sorted(canonical)),
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    digest = hashlib.sha256(request.encode()).hexdigest()
    to_sign = f"{ALGORITHM}\n{stamped['X-Sdk-Date']}\n{digest}"
    signature = hmac.digest(secret_key.encode(), to_sign.encode(), "sha256").hex()
    proof = f"{ALGORITHM} Access={access_key}, SignedHeaders={names}, Signature={signature}"
    return {**stamped, "Authorization": proof}


def _canonical_path(path: str) -> str:
    quoted = "/".join(quote(part, safe="~") for part in unquote(path).split("/"))
    return quoted if quoted.endswith("/") else f"{quoted}/"
