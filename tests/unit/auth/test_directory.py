"""Who a key or a token belongs to."""

from trackside.auth.directory import Directory, caller_of
from trackside.auth.tokens import digest
from trackside.domain.identity import Caller, User, UserRole
from trackside.domain.job import ProjectId

ANN = User(
    name="ann",
    project_id=ProjectId("p"),
    role=UserRole.ADMIN,
    access_key="AK-ANN",
    secret_key="SK-ANN",
    token_digest=digest("token-ann"),
)
BOB = User(
    name="bob",
    project_id=ProjectId("q"),
    role=UserRole.VIEWER,
    access_key="AK-BOB",
    secret_key="SK-BOB",
    token_digest="",
)


def test_users_are_found_by_key_and_token() -> None:
    directory = Directory([ANN, BOB])
    assert directory.secret_of("AK-ANN") == "SK-ANN"
    assert directory.caller_of_access_key("AK-BOB") == caller_of(BOB)
    assert directory.caller_of_token("token-ann") == caller_of(ANN)


def test_the_unknown_are_nobody() -> None:
    directory = Directory([ANN, BOB])
    assert directory.secret_of("AK-EVE") is None
    assert directory.caller_of_access_key("AK-EVE") is None
    assert directory.caller_of_token("token-eve") is None
    assert directory.caller_of_token("") is None
    assert directory.caller_of_token(ANN.token_digest) is None


def test_replacing_forgets_who_was_there() -> None:
    directory = Directory([ANN])
    directory.replace([BOB])
    assert directory.secret_of("AK-ANN") is None
    assert directory.caller_of_token("token-ann") is None
    assert directory.secret_of("AK-BOB") == "SK-BOB"


def test_a_user_becomes_a_caller() -> None:
    assert caller_of(ANN) == Caller(user="ann", project_id=ProjectId("p"), role=UserRole.ADMIN)
