"""The verifier against the SDK's own signer: what the SDK signs is accepted, anything else is refused."""

import re
from dataclasses import replace
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.auth.acs_signers import ACCESS, ACS3_DATE, DATE_MS, NONCE, SECRET, Wire, plain_acs3, sdk_acs3
from tests.unit.auth.acs_signers import check as check_with
from trackside.auth import acs3
from trackside.auth.proof import Proof
from trackside.domain.errors import Unauthenticated

PROOF = Proof(ACCESS, NONCE, DATE_MS // 1000)
odd = st.sampled_from(
    ["", " ", "+", "a b", "a+b", "%", "%2F", "a/b", "~", "训练", "=", "&", "a=b&c", "é", "\xa0", "*", "\n"]
)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | odd
# The SDK signs names unquoted: one with these in it reads like something else, and is refused.
names = words.filter(lambda name: not re.search(r"[\x00-\x1f\x7f%&=]", name))


def check(wire: Wire, **options: Any) -> Proof:
    return check_with(acs3.verify, wire, **options)


def refusal(wire: Wire, **options: Any) -> str:
    with pytest.raises(Unauthenticated) as caught:
        check(wire, **options)
    assert SECRET not in caught.value.detail
    return caught.value.detail


@pytest.mark.usefixtures("sdk_signers")
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    st.lists(words.filter(lambda part: part not in (".", "..")), min_size=1, max_size=3),
    st.dictionaries(names, words, max_size=4),
    st.binary(max_size=64),
)
def test_whatever_the_sdk_signs_is_accepted(
    method: str, ids: list[str], query: dict[str, str], body: bytes
) -> None:
    path = "/api/v1/jobs/" + "/".join(quote(part, safe="~") for part in ids)
    assert check(sdk_acs3(method, path, query, body)) == PROOF


@pytest.mark.usefixtures("sdk_signers")
@pytest.mark.parametrize("name", ["a&b", "a=b", "a%20b", "a\nb"])
def test_a_name_that_could_mean_something_else_counts_quoted_only(name: str) -> None:
    assert "signature does not match" in refusal(sdk_acs3("GET", "/api/v1/jobs", {name: "1"}, b""))
    assert check(plain_acs3(pairs=((name, "1"),))) == PROOF


@given(st.lists(st.tuples(words, words), max_size=5))
def test_names_may_repeat_and_be_empty_and_be_quoted(pairs: list[tuple[str, str]]) -> None:
    assert check(plain_acs3(pairs=tuple(pairs))) == PROOF


@given(st.permutations([("b", "2"), ("a", "1"), ("a", "0"), ("c", ""), ("训", "x y")]))
def test_a_query_may_come_in_any_order(pairs: list[tuple[str, str]]) -> None:
    assert check(plain_acs3(pairs=tuple(pairs))) == PROOF


def test_empty_parts_of_a_query_count_for_nothing() -> None:
    wire = plain_acs3(pairs=(("a", "1"), ("b", "2")))
    assert check(replace(wire, raw_query=b"&a=1&&b=2&")) == PROOF


def test_requests_recorded_from_the_sdk() -> None:
    """alibabacloud_tea_openapi 0.4.6; checked also where the SDK cannot be installed."""
    wire = plain_acs3("GET", "/api/v1/jobs/dlc1/metrics", (("MetricType", "x"), ("Token", "ey a+b/训")))
    assert wire.headers["authorization"].partition(",")[2] == (
        "SignedHeaders=accept;host;user-agent;x-acs-action;x-acs-content-sha256;x-acs-date"
        ";x-acs-signature-nonce;x-acs-version"
        ",Signature=625ee2744caaf519beb6d0b9950ca384bd0017b4f28cb4255a04606d9ac83b8b"
    )
    assert check(wire) == PROOF


@pytest.mark.parametrize(
    "change",
    [
        {"method": "DELETE"},
        {"raw_path": b"/api/v1/jobs/dlc2"},
        {"raw_path": b"/api/v1/jobs/dlc1/"},
        {"raw_query": b"a=2"},
        {"raw_query": b"a=1&b=1"},
        {"raw_query": b""},
    ],
)
def test_a_changed_request_is_refused(change: dict[str, Any]) -> None:
    wire = plain_acs3("POST", pairs=(("a", "1"),), body=b'{"x":1}')
    assert check(wire) == PROOF
    assert "signature does not match" in refusal(replace(wire, **change))


@pytest.mark.parametrize("body", [b"{}", b""])
def test_a_changed_body_is_refused(body: bytes) -> None:
    wire = plain_acs3("POST", body=b'{"x":1}')
    assert "not the SHA-256 of the body" in refusal(replace(wire, body=body))
    restated = {**wire.headers, "x-acs-content-sha256": sha256(body).hexdigest()}
    assert "signature does not match" in refusal(replace(wire, body=body, headers=restated))


@pytest.mark.parametrize("name", ["host", "x-acs-action", "x-acs-signature-nonce", "user-agent"])
def test_a_changed_signed_header_is_refused(name: str) -> None:
    wire = plain_acs3()
    assert "signature does not match" in refusal(replace(wire, headers={**wire.headers, name: "other"}))


def test_an_unsigned_header_may_change() -> None:
    wire = plain_acs3(names=acs3.MUST_BE_SIGNED)
    assert check(replace(wire, headers={**wire.headers, "accept": "text/html"})) == PROOF


@pytest.mark.parametrize("name", acs3.MUST_BE_SIGNED)
def test_some_headers_must_be_signed_and_there(name: str) -> None:
    fewer = tuple(each for each in acs3.MUST_BE_SIGNED if each != name)
    assert f"{name} must be among" in refusal(plain_acs3(names=fewer))
    wire = plain_acs3()
    gone = {each: value for each, value in wire.headers.items() if each != name}
    assert repr(name) in refusal(replace(wire, headers=gone))


def test_an_empty_nonce_is_refused() -> None:
    assert "nonce is empty" in refusal(plain_acs3(x_acs_signature_nonce=""))


def test_an_unknown_access_key_says_so() -> None:
    assert refusal(plain_acs3(), secret_of={}.get) == "Unknown access key."
    assert "signature does not match" in refusal(plain_acs3(), secret_of={ACCESS: "another"}.get)
    assert "signature does not match" in refusal(plain_acs3(), secret_of={ACCESS: ""}.get)


def test_a_missing_or_foreign_authorization_says_so() -> None:
    wire = plain_acs3()
    bare = {name: value for name, value in wire.headers.items() if name != "authorization"}
    assert "Authorization header is missing" in refusal(replace(wire, headers=bare))
    claim = wire.headers["authorization"]
    for value in ("", "acs a:b", claim[:-1], claim + "00", claim[:-64] + "g" * 64, claim[:-64] + "é" * 64):
        assert "not of the form" in refusal(replace(wire, headers={**bare, "authorization": value}))


def test_the_signature_may_be_in_upper_case_and_blanks_may_follow_commas() -> None:
    wire = plain_acs3()
    claim = wire.headers["authorization"]
    loose = claim[:-64].replace(",", ", ") + claim[-64:].upper()
    assert check(replace(wire, headers={**wire.headers, "authorization": loose})) == PROOF


@pytest.mark.parametrize(
    ("off_seconds", "fine"), [(0, True), (900, True), (-900, True), (901, False), (-901, False)]
)
def test_the_clock_may_be_off_by_the_window(off_seconds: int, fine: bool) -> None:
    now_ms = DATE_MS + off_seconds * 1000
    if fine:
        assert check(plain_acs3(), now_ms=now_ms) == PROOF
    else:
        said = refusal(plain_acs3(), now_ms=now_ms)
        assert ACS3_DATE in said
        assert ("2026-02-01T00:15:00Z" if off_seconds > 0 else "2026-01-31T23:44:58Z") in said


@pytest.mark.parametrize("date", ["", "yesterday", "2026-13-31T00:00:00Z", "20260131T235959Z"])
def test_a_date_that_is_none_says_so(date: str) -> None:
    assert "x-acs-date is not a UTC time" in refusal(plain_acs3(x_acs_date=date))


@given(st.lists(st.tuples(st.from_regex(r"[A-Za-z0-9_.~-]{1,6}", fullmatch=True), words), min_size=1))
def test_pairs_that_come_quoted_and_in_any_order_read_as_their_scheme_says(
    pairs: list[tuple[str, str]],
) -> None:
    sent = "&".join(f"{name}={quote(value, safe='~')}" for name, value in pairs)
    in_order = sorted((name, quote(value, safe="~")) for name, value in pairs)
    expected = "&".join(f"{name}={value}" for name, value in in_order)
    assert next(acs3._canonical_queries(sent.encode())) == expected
    small = re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), sent)
    assert next(acs3._canonical_queries(small.encode())) == expected
