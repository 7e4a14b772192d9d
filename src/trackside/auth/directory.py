"""Knows which user an access key or a token belongs to; knows nothing of where users are kept."""

import hmac
from collections.abc import Iterable

from trackside.auth.tokens import digest
from trackside.domain.identity import Caller, User


class Directory:
    """All users in memory, replaced as a whole when they change."""

    def __init__(self, users: Iterable[User] = ()) -> None:
        self.replace(users)

    def replace(self, users: Iterable[User]) -> None:
        """Forget every user and know these instead."""
        known = tuple(users)
        by_access_key = {user.access_key: user for user in known}
        by_token_digest = {user.token_digest: user for user in known if user.token_digest}
        self._by_access_key, self._by_token_digest = by_access_key, by_token_digest

    def secret_of(self, access_key: str) -> str | None:
        """Return the secret key that belongs to an access key."""
        user = self._by_access_key.get(access_key)
        return user.secret_key if user else None

    def user_of_access_key(self, access_key: str) -> User | None:
        """Return the user of an access key."""
        return self._by_access_key.get(access_key)

    def user_of_token(self, token: str) -> User | None:
        """Return the user of a bearer token.

        The lookup goes by a hash of the token, so its timing says nothing about tokens that exist.
        """
        wanted = digest(token)
        user = self._by_token_digest.get(wanted)
        return user if user and hmac.compare_digest(user.token_digest, wanted) else None


def caller_of(user: User) -> Caller:
    """Return the user as a caller."""
    return Caller(user=user.name, project_id=user.project_id, role=user.role)
