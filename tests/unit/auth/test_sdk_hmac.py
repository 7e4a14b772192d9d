"""The verifier against the SDK's own signer: what the SDK signs is accepted, anything else is refused."""

import hashlib
import string
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import pytest
import requests
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.sdk_request import SdkRequest
from huaweicloudsdkcore.signer.signer import Signer
from hypothesis import given
from hypothesis import strategies as st

from trackside.auth import sdk_hmac
from trackside.domain.errors import Unauthenticated

ACCESS, SECRET = "AKEXAMPLE0000000000X", "a-secret-that-must-not-leak"
DATE, DATE_MS = "20260131T235959Z", 1_769_903_999_000

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
odd = st.sampled_from(
    ["", " ", "+", "a b", "a+b", "%", "%2F", "a/b", "~", "训练", "=", "&", "a=b&c", "é", "\xa0"]
)
words = text | odd
header_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12) | st.sampled_from(
    ["à", "任务", " x\t"]
)
header_names = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=8).map(
    lambda name: f"x-{name}"
)


@dataclass(frozen=True)
class Wire:
    """What arrives at the server."""

    method: str
    raw_path: bytes
    raw_query: bytes
    headers: dict[str, str]
    body: bytes


def sign(
    method: str = "GET",
    path: str = "/v2/p/training-jobs/j",
    query: list[tuple[str, Any]] | None = None,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> Wire:
    """Sign with the SDK and let requests put it on the wire, as the SDK does."""
    request = SdkRequest(
        method=method,
        schema="http",
        host="127.0.0.1:8470",
        resource_path=path,
        query_params=query or [],
        header_params={"Content-Type": "application/json", "X-Sdk-Date": DATE, **(headers or {})},
        body=body,
    )
    signed = Signer(BasicCredentials(ACCESS, SECRET, "p")).sign(request)
    sent = requests.Request(method, signed.url, headers=signed.header_params, data=body).prepare()
    assert sent.url is not None
    raw_path, _, raw_query = sent.path_url.encode("ascii").partition(b"?")
    arrived = {name.lower(): str(value).strip(" \t") for name, value in sent.headers.items()}
    return Wire(method, raw_path, raw_query, arrived, body)


def check(
    wire: Wire, *, now_ms: int = DATE_MS, secrets: dict[str, str] | None = None, window: int = 900
) -> str:
    return sdk_hmac.verify(
        method=wire.method,
        raw_path=wire.raw_path,
        raw_query=wire.raw_query,
        headers=wire.headers,
        body=wire.body,
        secret_of=({ACCESS: SECRET} if secrets is None else secrets).get,
        now_ms=now_ms,
        window_seconds=window,
    )


def with_authorization(wire: Wire, old: str, new: str) -> Wire:
    return replace(
        wire, headers={**wire.headers, "authorization": wire.headers["authorization"].replace(old, new)}
    )


def refusal(wire: Wire, **options: Any) -> str:
    with pytest.raises(Unauthenticated) as caught:
        check(wire, **options)
    assert SECRET not in caught.value.detail
    return caught.value.detail


@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "get"]),
    st.lists(words.filter(lambda part: part not in (".", "..")), min_size=1, max_size=4),
    st.dictionaries(
        words,
        words
        | st.integers()
        | st.booleans()
        | st.lists(words, max_size=3)
        | st.lists(st.integers(), max_size=3),
        max_size=4,
    ),
    st.dictionaries(header_names, header_text, max_size=3),
    st.binary(max_size=64),
)
def test_whatever_the_sdk_signs_is_accepted(
    method: str, ids: list[str], query: dict[str, Any], headers: dict[str, str], body: bytes
) -> None:
    path = "/v2/" + "/".join(quote(part, safe="") for part in ids)
    distinct = {name.lower(): value for name, value in headers.items()}
    assert check(sign(method, path, list(query.items()), distinct, body)) == ACCESS


@given(st.lists(st.tuples(words, words), max_size=5))
def test_a_query_key_may_repeat(pairs: list[tuple[str, str]]) -> None:
    assert check(sign(query=list(pairs))) == ACCESS


@given(st.lists(st.sampled_from(["b=2", "a=1", "a=0", "c", "d=", "=e", "f=x+y", ""]), unique=True))
def test_other_clients_may_send_a_query_in_any_order(parts: list[str]) -> None:
    decoded = [tuple((part + "=").replace("+", " ").split("=")[:2]) for part in parts if part]
    wire = sign(query=decoded)  # type: ignore[arg-type]
    assert check(replace(wire, raw_query="&".join(parts).encode())) == ACCESS


@pytest.mark.parametrize(
    "change",
    [
        {"method": "DELETE"},
        {"raw_path": b"/v2/p/training-jobs/k"},
        {"raw_query": b"a=2"},
        {"raw_query": b"a=1&b=1"},
        {"raw_query": b"b=1&a=1"},
        {"raw_query": b""},
        {"body": b"{}"},
        {"body": b""},
    ],
)
def test_a_changed_request_is_refused(change: dict[str, Any]) -> None:
    wire = sign("POST", query=[("a", "1")], body=b'{"x":1}')
    assert check(wire) == ACCESS
    assert "signature does not match" in refusal(replace(wire, **change))


@given(st.sampled_from(["host", "x-sdk-date", "content-type", "x-project-id"]))
def test_a_changed_signed_header_is_refused(name: str) -> None:
    wire = sign(headers={"X-Project-Id": "p"})
    changed = "20260131T235958Z" if name == "x-sdk-date" else "other"
    assert "signature does not match" in refusal(replace(wire, headers={**wire.headers, name: changed}))


def test_an_unsigned_header_may_change() -> None:
    wire = sign()
    assert check(replace(wire, headers={**wire.headers, "accept": "text/html"})) == ACCESS


def test_a_slash_within_an_id_is_signed_as_a_slash() -> None:
    wire = sign(path="/v2/p/training-jobs/a%2Fb")
    assert wire.raw_path.endswith(b"a%2Fb")
    assert check(wire) == ACCESS


def test_a_list_of_numbers_is_taken_in_the_order_sent() -> None:
    wire = sign(query=[("n", [10, 9])])
    assert wire.raw_query == b"n=9&n=10"
    assert check(wire) == ACCESS


def test_an_unsigned_payload_may_be_anything_but_empty() -> None:
    wire = sign("POST", headers={"Content-Type": "text/plain"}, body=b"one")
    assert wire.headers["x-sdk-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert check(replace(wire, body=b"two")) == ACCESS
    refusal(replace(wire, body=b""))
    assert check(sign("POST", headers={"Content-Type": "text/plain"})) == ACCESS


def test_a_stated_body_hash_is_not_believed() -> None:
    stated = hashlib.sha256(b"one").hexdigest()
    wire = sign("POST", headers={"X-Sdk-Content-Sha256": stated}, body=b"one")
    assert check(wire) == ACCESS
    assert "signature does not match" in refusal(replace(wire, body=b"two"))


def test_a_missing_or_foreign_authorization_says_so() -> None:
    wire = sign()
    bare = {name: value for name, value in wire.headers.items() if name != "authorization"}
    assert "Authorization header is missing" in refusal(replace(wire, headers=bare))
    for value in (
        "",
        "Basic abc",
        "SDK-HMAC-SHA256",
        "SDK-HMAC-SHA256 Access=a, SignedHeaders=host, Signature=12",
        "SDK-HMAC-SHA256 Access=a, SignedHeaders=host;x-sdk-date, Signature=" + "g" * 64,
        "SDK-HMAC-SHA256 Access=a, SignedHeaders=host;x-sdk-date, Signature=" + "é" * 64,
        "SDK-HMAC-SHA256 Access=a, SignedHeaders=host;x-sdk-date, Signature=" + "0" * 63,
        "SDK-HMAC-SHA256 Access=a, SignedHeaders=host;x-sdk-date, Signature=" + "0" * 66,
    ):
        assert "not of the form" in refusal(replace(wire, headers={**bare, "authorization": value}))


def test_the_signature_may_be_in_upper_case_and_blanks_may_be_missing() -> None:
    wire = sign()
    authorization = wire.headers["authorization"]
    signature = authorization[-64:]
    packed = authorization[:-64].replace(", ", ",") + signature.upper()
    assert check(replace(wire, headers={**wire.headers, "authorization": packed})) == ACCESS


@pytest.mark.parametrize("name", ["host", "x-sdk-date"])
def test_host_and_date_must_be_signed(name: str) -> None:
    wire = sign()
    names = wire.headers["authorization"].split("SignedHeaders=")[1].split(",")[0]
    fewer = ";".join(each for each in names.split(";") if each != name)
    assert f"{name} must be among" in refusal(with_authorization(wire, names, fewer))


def test_a_signed_header_that_is_not_there_is_named() -> None:
    wire = sign()
    assert "'x-gone'" in refusal(with_authorization(wire, "SignedHeaders=", "SignedHeaders=x-gone;"))
    gone = {name: value for name, value in wire.headers.items() if name != "x-sdk-date"}
    assert "'x-sdk-date'" in refusal(replace(wire, headers=gone))


def test_an_unknown_access_key_says_so() -> None:
    assert refusal(sign(), secrets={}) == "Unknown access key."
    assert "signature does not match" in refusal(sign(), secrets={ACCESS: "another"})
    assert "signature does not match" in refusal(sign(), secrets={ACCESS: ""})


@pytest.mark.parametrize(
    ("off_seconds", "fine"), [(0, True), (900, True), (-900, True), (901, False), (-901, False)]
)
def test_the_clock_may_be_off_by_the_window(off_seconds: int, fine: bool) -> None:
    now_ms = DATE_MS + off_seconds * 1000
    if fine:
        assert check(sign(), now_ms=now_ms) == ACCESS
    else:
        said = refusal(sign(), now_ms=now_ms)
        assert DATE in said
        assert ("20260201T001500Z" if off_seconds > 0 else "20260131T234458Z") in said
        assert "900 s" in said


@pytest.mark.parametrize("date", ["", "yesterday", "20261331T000000Z", "20260131T235959", "²0260131T235959Z"])
def test_a_date_that_is_none_says_so(date: str) -> None:
    wire = sign()
    assert "X-Sdk-Date is not a UTC time" in refusal(
        replace(wire, headers={**wire.headers, "x-sdk-date": date})
    )
