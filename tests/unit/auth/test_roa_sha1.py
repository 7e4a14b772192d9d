"""The verifier of the older scheme against the older SDK's own signer."""

import base64
import hashlib
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.auth.acs_signers import ACCESS, DATE_MS, NONCE, ROA_DATE, SECRET, Wire, plain_roa, sdk_roa
from tests.unit.auth.acs_signers import check as check_with
from trackside.auth import roa_sha1
from trackside.auth.proof import Proof
from trackside.domain.errors import Unauthenticated

PROOF = Proof(ACCESS, NONCE, DATE_MS // 1000)
odd = st.sampled_from(
    ["", " ", "+", "a b", "a+b", "%", "%2F", "a/b", "~", "训练", "=", "&", "a=b&c", "é", "\xa0", "*"]
)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | odd


def check(wire: Wire, **options: Any) -> Proof:
    return check_with(roa_sha1.verify, wire, **options)


def refusal(wire: Wire, **options: Any) -> str:
    with pytest.raises(Unauthenticated) as caught:
        check(wire, **options)
    assert SECRET not in caught.value.detail
    return caught.value.detail


@pytest.mark.usefixtures("sdk_signers")
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    st.lists(words.filter(lambda part: part not in (".", "..")), min_size=1, max_size=3),
    st.dictionaries(words, words, max_size=4),
    st.binary(max_size=64),
)
def test_whatever_the_sdk_signs_is_accepted(
    method: str, ids: list[str], query: dict[str, str], body: bytes
) -> None:
    path = "/api/v1/jobs/" + "/".join(quote(part, safe="~") for part in ids)
    assert check(sdk_roa(method, path, query, body)) == PROOF


def test_a_request_recorded_from_the_sdk() -> None:
    """alibabacloud_openapi_util 0.2.4; checked also where the SDK cannot be installed."""
    wire = plain_roa("GET", "/api/v1/jobs/dlc1/metrics", (("Empty", ""), ("Token", "ey a+b/训")))
    assert wire.headers["authorization"] == f"acs {ACCESS}:9+naatJho/r6qBKexh9aFVJ1K+E="
    assert check(wire) == PROOF


@given(st.permutations([("b", "2"), ("a", "1"), ("c", ""), ("训", "x y")]))
def test_a_query_may_come_in_any_order(pairs: list[tuple[str, str]]) -> None:
    assert check(plain_roa(pairs=tuple(pairs))) == PROOF


def test_names_of_headers_are_sorted_as_names() -> None:
    assert check(plain_roa(x_acs_a="1", x_acs_a_b="2")) == PROOF


@pytest.mark.parametrize(
    "change",
    [{"method": "DELETE"}, {"raw_path": b"/api/v1/jobs/dlc2"}, {"raw_query": b"a=2"}, {"raw_query": b""}],
)
def test_a_changed_request_is_refused(change: dict[str, Any]) -> None:
    wire = plain_roa("POST", pairs=(("a", "1"),), body=b'{"x":1}')
    assert check(wire) == PROOF
    assert "signature does not match" in refusal(replace(wire, **change))


@pytest.mark.parametrize("name", ["accept", "content-type", "x-acs-action", "x-acs-signature-nonce"])
def test_a_changed_signed_header_is_refused(name: str) -> None:
    wire = plain_roa()
    assert "signature does not match" in refusal(replace(wire, headers={**wire.headers, name: "other"}))


def test_an_added_header_of_theirs_is_refused() -> None:
    wire = plain_roa()
    more = {**wire.headers, "x-acs-security-token": "t"}
    assert "signature does not match" in refusal(replace(wire, headers=more))


def test_the_body_is_not_covered_unless_content_md5_is_sent() -> None:
    wire = plain_roa("POST", body=b"one")
    assert check(replace(wire, body=b"two")) == PROOF
    stated = base64.b64encode(hashlib.md5(b"one").digest()).decode()
    wire = plain_roa("POST", body=b"one", content_md5=stated)
    assert check(wire) == PROOF
    assert "Content-MD5 is not" in refusal(replace(wire, body=b"two"))
    assert "Content-MD5 is not" in refusal(plain_roa("POST", body=b"one", content_md5="no base64"))


@pytest.mark.parametrize("name", roa_sha1.MUST_BE_SENT)
def test_date_and_nonce_must_be_there(name: str) -> None:
    wire = plain_roa()
    gone = {each: value for each, value in wire.headers.items() if each != name}
    assert f"The header {name} is missing." == refusal(replace(wire, headers=gone))


def test_another_method_is_refused() -> None:
    assert "must be HMAC-SHA1" in refusal(plain_roa(x_acs_signature_method="HMAC-SHA256"))


def test_an_unknown_access_key_says_so() -> None:
    assert refusal(plain_roa(), secret_of={}.get) == "Unknown access key."
    assert "signature does not match" in refusal(plain_roa(), secret_of={ACCESS: "another"}.get)
    assert "signature does not match" in refusal(plain_roa(), secret_of={ACCESS: ""}.get)


def test_a_missing_or_foreign_authorization_says_so() -> None:
    wire = plain_roa()
    bare = {name: value for name, value in wire.headers.items() if name != "authorization"}
    assert "Authorization header is missing" in refusal(replace(wire, headers=bare))
    for value in ("", "acs a", f"acs a:{'A' * 28}", f"acs a:{'A' * 26}=", f"acs a:{'é' * 27}="):
        assert "not of the form" in refusal(replace(wire, headers={**bare, "authorization": value}))


@pytest.mark.parametrize(
    ("off_seconds", "fine"), [(0, True), (900, True), (-900, True), (901, False), (-901, False)]
)
def test_the_clock_may_be_off_by_the_window(off_seconds: int, fine: bool) -> None:
    now_ms = DATE_MS + off_seconds * 1000
    if fine:
        assert check(plain_roa(), now_ms=now_ms) == PROOF
    else:
        assert ROA_DATE in refusal(plain_roa(), now_ms=now_ms)


@pytest.mark.parametrize("date", ["yesterday", "Sat, 31 Apr 2026 23:59:59 GMT", "2026-01-31T23:59:59Z"])
def test_a_date_that_is_none_says_so(date: str) -> None:
    assert "Date is not a UTC time" in refusal(plain_roa(date=date))
