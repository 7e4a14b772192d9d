"""The Alibaba SDKs' own signers, put on the wire as the SDKs do; and a plain one written from the scheme."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlencode

import requests

ACCESS, SECRET = "LTAIEXAMPLE000000000", "a-secret-that-must-not-leak"
DATE_MS = 1_769_903_999_000
ACS3_DATE, ROA_DATE = "2026-01-31T23:59:59Z", "Sat, 31 Jan 2026 23:59:59 GMT"
HOST, NONCE = "127.0.0.1:8470", "ac8dbb7209756c208a856d14a98a88af"
EMPTY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Wire:
    """What arrives at the server."""

    method: str
    raw_path: bytes
    raw_query: bytes
    headers: dict[str, str]
    body: bytes


def acs3_headers(body: bytes, **more: str) -> dict[str, str]:
    """Return the headers the current SDK sets before it signs."""
    headers = {
        "host": HOST,
        "x-acs-version": "2020-12-03",
        "x-acs-action": "GetJobMetrics",
        "user-agent": "AlibabaCloud (Linux; x86_64) Python/3.11.7 Core/0.4.3 TeaDSL/2",
        "x-acs-date": ACS3_DATE,
        "x-acs-signature-nonce": NONCE,
        "accept": "application/json",
        "x-acs-content-sha256": hashlib.sha256(body).hexdigest(),
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    return headers | ({"content-type": "application/json; charset=utf-8"} if body else {})


def roa_headers(body: bytes, **more: str) -> dict[str, str]:
    """Return the headers the older SDK sets before it signs."""
    headers = {
        "date": ROA_DATE,
        "host": HOST,
        "accept": "application/json",
        "x-acs-signature-nonce": NONCE,
        "x-acs-signature-method": "HMAC-SHA1",
        "x-acs-signature-version": "1.0",
        "x-acs-version": "2020-12-03",
        "x-acs-action": "GetJobMetrics",
        "user-agent": "AlibabaCloud (Linux; x86_64) Python/3.11.7 Core/0.4.3 TeaDSL/1",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    return headers | ({"content-type": "application/json; charset=utf-8"} if body else {})


def sdk_acs3(method: str, path: str, query: Mapping[str, str], body: bytes, **more: str) -> Wire:
    """Sign as the current SDK does, with its own code."""
    from alibabacloud_tea_openapi.utils import Utils

    headers = acs3_headers(body, **more)
    request = SimpleNamespace(method=method, pathname=path, query=dict(query), headers=headers)
    payload = hashlib.sha256(body).hexdigest()
    signed = Utils.get_authorization(request, "ACS3-HMAC-SHA256", payload, ACCESS, SECRET)
    return on_the_wire(method, path, query, headers | {"Authorization": signed}, body)


def sdk_roa(method: str, path: str, query: Mapping[str, str], body: bytes, **more: str) -> Wire:
    """Sign as the older SDK does, with its own code."""
    from alibabacloud_openapi_util.client import Client

    headers = roa_headers(body, **more)
    request = SimpleNamespace(method=method, pathname=path, query=dict(query), headers=headers)
    signature = Client.get_roasignature(Client.get_string_to_sign(request), SECRET)
    return on_the_wire(method, path, query, headers | {"authorization": f"acs {ACCESS}:{signature}"}, body)


def on_the_wire(
    method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
) -> Wire:
    """Compose the URL as both SDKs do, and let requests prepare it."""
    url = f"http://{HOST}{path}" + (f"?{urlencode(query)}" if query else "")
    sent = requests.Request(method, url.rstrip("?&"), headers=dict(headers), data=body).prepare()
    raw_path, _, raw_query = sent.path_url.encode("ascii").partition(b"?")
    arrived = {name.lower(): str(value).strip(" \t") for name, value in sent.headers.items()}
    return Wire(method, raw_path, raw_query, arrived, body)


def plain_acs3(
    method: str = "GET",
    raw_path: str = "/api/v1/jobs/dlc1",
    pairs: tuple[tuple[str, str], ...] = (),
    body: bytes = b"",
    *,
    names: tuple[str, ...] | None = None,
    access: str = ACCESS,
    secret: str = SECRET,
    **more: str,
) -> Wire:
    """Sign as the scheme says, names quoted too."""
    headers = acs3_headers(body, **more)
    signed = names or tuple(sorted(headers))
    quoted = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in pairs)
    canonical = "&".join(f"{name}={value}" for name, value in quoted)
    lines = "".join(f"{name}:{headers[name]}\n" for name in signed if name in headers)
    request = (
        f"{method}\n{raw_path}\n{canonical}\n{lines}\n{';'.join(signed)}\n{hashlib.sha256(body).hexdigest()}"
    )
    text = f"ACS3-HMAC-SHA256\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.new(secret.encode(), text.encode(), "sha256").hexdigest()
    claim = f"ACS3-HMAC-SHA256 Credential={access},SignedHeaders={';'.join(signed)},Signature={signature}"
    raw_query = urlencode(pairs).encode()
    return Wire(method, raw_path.encode(), raw_query, headers | {"authorization": claim}, body)


def plain_roa(
    method: str = "GET",
    raw_path: str = "/api/v1/jobs/dlc1",
    pairs: tuple[tuple[str, str], ...] = (),
    body: bytes = b"",
    *,
    access: str = ACCESS,
    secret: str = SECRET,
    **more: str,
) -> Wire:
    """Sign as the older scheme says."""
    headers = roa_headers(body, **more)
    fixed = [headers.get(name, "") for name in ("accept", "content-md5", "content-type", "date")]
    own = [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-acs-")]
    shown = "&".join(f"{name}={value}" if value else name for name, value in sorted(pairs))
    text = "\n".join([method, *fixed, *own, raw_path]) + (f"?{shown}" if pairs else "")
    signature = base64.b64encode(hmac.digest(secret.encode(), text.encode(), "sha1")).decode()
    raw_query = urlencode(pairs).encode()
    claim = {"authorization": f"acs {access}:{signature}"}
    return Wire(method, raw_path.encode(), raw_query, headers | claim, body)


def check(verify: Any, wire: Wire, **options: Any) -> Any:
    """Let a verifier look at a request."""
    return verify(
        method=wire.method,
        raw_path=wire.raw_path,
        raw_query=wire.raw_query,
        headers=wire.headers,
        body=wire.body,
        **{"secret_of": {ACCESS: SECRET}.get, "now_ms": DATE_MS, **options},
    )
