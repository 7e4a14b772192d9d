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
        known = tuple((user, caller_of(user)) for user in users)
        by_access_key = {user.access_key: (user, caller) for user, caller in known}
        by_token_digest = {user.token_digest: (user, caller) for user, caller in known if user.token_digest}
        self._by_access_key, self._by_token_digest = by_access_key, by_token_digest

    def secret_of(self, access_key: str) -> str | None:
        """Return the secret key that belongs to an access key."""
        found = self._by_access_key.get(access_key)
        return found[0].secret_key if found else None

    def caller_of_access_key(self, access_key: str) -> Caller | None:
        """Return who an access key belongs to."""
        found = self._by_access_key.get(access_key)
        return found[1] if found else None

    def caller_of_token(self, token: str) -> Caller | None:
        """Return who a bearer token belongs to.

        The lookup goes by a hash of the token, so its timing says nothing about tokens that exist.
        """
        wanted = digest(token)
        found = self._by_token_digest.get(wanted)
        return found[1] if found and hmac.compare_digest(found[0].token_digest, wanted) else None


def caller_of(user: User) -> Caller:
    """Return the user as a caller."""
    return Caller(user=user.name, project_id=user.project_id, role=user.role)
