"""What the command line signs, the server's verifier accepts; anything changed on the way it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.auth.sdk_hmac import verify
from trackside.cli.signing import query_string, sign
from trackside.domain.errors import Unauthenticated

DATE, NOW_MS = "20261115T210000Z", 1_794_776_400_000
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12)
SEGMENT = st.text(alphabet="abcXYZ019-_.~ +%ü中", min_size=1, max_size=8).filter(
    lambda s: s not in (".", "..")
)


def check(path: str, query: str, body: bytes, headers: dict[str, str], *, method: str = "POST") -> str:
    return verify(
        method=method,
        raw_path=path.encode(),
        raw_query=query.encode(),
        headers={name.lower(): value for name, value in headers.items()},
        body=body,
        secret_of={"AK": "SK"}.get,
        now_ms=NOW_MS,
    )


@given(
    st.lists(SEGMENT, min_size=1, max_size=4),
    st.lists(st.tuples(TEXT, TEXT), max_size=4),
    st.binary(max_size=64),
)
def test_any_request_verifies(segments: list[str], pairs: list[tuple[str, str]], body: bytes) -> None:
    from urllib.parse import quote

    path, query = "/" + "/".join(quote(part, safe="~") for part in segments), query_string(pairs)
    headers = {"Host": "127.0.0.1:8470", "Content-Type": "application/json", "X-Project-Id": "p1"}
    signed = sign(
        method="POST",
        path=path,
        query=query,
        headers=headers,
        body=body,
        access_key="AK",
        secret_key="SK",
        date=DATE,
    )
    assert check(path, query, body, signed) == "AK"


@pytest.mark.parametrize("changed", ["path", "query", "body", "host", "method"])
def test_a_changed_request_does_not(changed: str) -> None:
    signed = sign(
        method="POST",
        path="/v2/p/jobs",
        query="a=1",
        headers={"Host": "here"},
        body=b"{}",
        access_key="AK",
        secret_key="SK",
        date=DATE,
    )
    if changed == "host":
        signed["Host"] = "there"
    with pytest.raises(Unauthenticated):
        check(
            "/v2/p/other" if changed == "path" else "/v2/p/jobs",
            "a=2" if changed == "query" else "a=1",
            b"[]" if changed == "body" else b"{}",
            signed,
            method="PUT" if changed == "method" else "POST",
        )
