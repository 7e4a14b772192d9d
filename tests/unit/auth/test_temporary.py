"""Keys that work for a while, and nothing of them is stored."""

import pytest

from trackside.auth.temporary import TemporaryKeys
from trackside.domain.errors import Unauthenticated
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import ProjectId

ANA = Caller(user="ana", project_id=ProjectId("p"), role=UserRole.USER)
START_MS = 1_769_904_000_000


class World:
    """A clock that is set, and users that come and go."""

    def __init__(self, key: bytes = b"k") -> None:
        self.now_ms = START_MS
        self.users = {"ana": ANA}
        self.keys = TemporaryKeys(
            key=key, now_ms=lambda: self.now_ms, caller_named=lambda n: self.users.get(n)
        )


def test_they_end_at_their_second() -> None:
    world = World()
    made = world.keys.issue(ANA, 60)
    assert made.expires_s == START_MS // 1000 + 60
    world.now_ms += 59_999
    assert world.keys.open(made.security_token).caller == ANA
    world.now_ms += 1
    with pytest.raises(Unauthenticated, match="is over"):
        world.keys.open(made.security_token)


def test_a_server_that_starts_anew_knows_them_and_another_does_not() -> None:
    made = World().keys.issue(ANA, 60)
    again = World().keys.open(made.security_token)
    assert again.secret_of(made.access_key) == made.secret_key
    assert again.caller_of_access_key(made.access_key) == ANA
    assert again.caller_of_access_key("another") is None
    with pytest.raises(Unauthenticated, match="not one of this server"):
        World(b"other").keys.open(made.security_token)


def test_no_two_are_alike_and_the_role_is_that_of_now() -> None:
    world = World()
    first, second = (world.keys.issue(ANA, 60) for _ in range(2))
    assert first.access_key != second.access_key
    assert world.keys.open(first.security_token).secret_of(second.access_key) is None
    viewer = Caller(user="ana", project_id=ProjectId("p"), role=UserRole.VIEWER)
    world.users["ana"] = viewer
    assert world.keys.open(first.security_token).caller == viewer
    world.users["ana"] = Caller(user="ana", project_id=ProjectId("q"), role=UserRole.USER)
    with pytest.raises(Unauthenticated, match="gone"):
        world.keys.open(first.security_token)
