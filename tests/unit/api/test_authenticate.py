"""Who a request comes from, whichever way it proves it."""

import time
from collections.abc import Callable

import pytest
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.sdk_request import SdkRequest
from huaweicloudsdkcore.signer.signer import Signer

from trackside.api.authenticate import Authenticator
from trackside.api.operation import Signed
from trackside.auth.directory import Directory, caller_of
from trackside.auth.temporary import TemporaryKeys
from trackside.auth.tokens import digest
from trackside.domain.errors import Forbidden, Unauthenticated
from trackside.domain.identity import User, UserRole
from trackside.domain.job import ProjectId


def user(name: str) -> User:
    return User(
        name=name,
        project_id=ProjectId("p"),
        role=UserRole.USER,
        access_key=f"AK{name}",
        secret_key=f"SK{name}",
        token_digest=digest(f"T{name}"),
    )


AUTHENTICATE = Authenticator(
    Directory([user("ann"), user("bob")]), now_ms=lambda: time.time_ns() // 1_000_000
)


def request(headers: dict[str, str], *, project_id: str | None = "p") -> Signed:
    path = {} if project_id is None else {"project_id": project_id}
    return Signed("GET", b"/v2/p/jobs", b"", headers, b"", path, "modelarts:trainJob:list")


def signed_headers(name: str, **more: str) -> dict[str, str]:
    sdk = SdkRequest(
        method="GET",
        schema="http",
        host="h",
        resource_path="/v2/p/jobs",
        query_params=[],
        header_params={key.replace("_", "-"): value for key, value in more.items()},
        body=b"",
    )
    Signer(BasicCredentials(f"AK{name}", f"SK{name}", "p")).sign(sdk)
    return {key.lower(): value for key, value in sdk.header_params.items()}


# Signed when they are used: a signature is good for a quarter of an hour.
GOOD: list[Callable[[], dict[str, str]]] = [
    lambda: {"x-auth-token": "Tann"},
    lambda: {"authorization": "Bearer Tann"},
    lambda: {"authorization": "Bearer Tann", "x-auth-token": "Tbob"},
    lambda: signed_headers("ann"),
    lambda: signed_headers("ann", X_Auth_Token="Tbob"),
    lambda: signed_headers("ann", X_Project_Id="p"),
]
BAD: list[Callable[[], dict[str, str]]] = [
    dict,
    lambda: {"x-auth-token": ""},
    lambda: {"x-auth-token": "Teve"},
    lambda: {"authorization": "Bearer Teve", "x-auth-token": "Tann"},
    lambda: {"authorization": "Basic Tann"},
    lambda: {**signed_headers("ann"), "host": "other"},
    lambda: signed_headers("eve"),
    lambda: {**signed_headers("eve"), "x-auth-token": "Tann"},
    lambda: signed_headers("ann", X_Project_Id="q"),
]


@pytest.mark.parametrize("headers", GOOD)
def test_the_caller_is_who_proved_it(headers: Callable[[], dict[str, str]]) -> None:
    assert AUTHENTICATE(request(headers())).user == "ann"


@pytest.mark.parametrize("headers", BAD)
def test_who_cannot_prove_it_is_refused(headers: Callable[[], dict[str, str]]) -> None:
    with pytest.raises(Unauthenticated):
        AUTHENTICATE(request(headers()))


def test_a_project_is_a_wall() -> None:
    with pytest.raises(Forbidden):
        AUTHENTICATE(request({"x-auth-token": "Tann"}, project_id="q"))
    with pytest.raises(Forbidden):
        AUTHENTICATE(request({"x-auth-token": "Tann", "x-project-id": "q"}, project_id=None))


def test_a_path_without_a_project_is_fine() -> None:
    assert AUTHENTICATE(request({"x-auth-token": "Tann"}, project_id=None)).project_id == "p"
    named = request({"x-auth-token": "Tann", "x-project-id": "p"}, project_id=None)
    assert AUTHENTICATE(named).user == "ann"


def test_temporary_keys_go_with_their_token_only() -> None:
    now_ms = lambda: time.time_ns() // 1_000_000  # noqa: E731
    directory = Directory([user("ann")])
    keys = TemporaryKeys(key=b"k", now_ms=now_ms, caller_named=lambda name: caller_of(user(name)))
    authenticate = Authenticator(directory, now_ms=now_ms, temporary=keys)
    made = keys.issue(caller_of(user("ann")), 60)

    def signed(**more: str) -> Signed:
        sdk = SdkRequest("GET", "http", "h", "/v2/p/jobs", query_params=[], header_params=more, body=b"")
        Signer(BasicCredentials(made.access_key, made.secret_key, "p")).sign(sdk)
        return request({key.lower(): value for key, value in sdk.header_params.items()})

    assert authenticate(signed(**{"X-Security-Token": made.security_token})).user == "ann"
    with pytest.raises(Unauthenticated, match="Unknown access key"):
        authenticate(signed())
    with pytest.raises(Unauthenticated, match="not one of this server"):
        authenticate(signed(**{"X-Security-Token": "made up"}))
    with pytest.raises(Unauthenticated, match="not taken here"):
        AUTHENTICATE(signed(**{"X-Security-Token": made.security_token}))
