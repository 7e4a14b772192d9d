"""Knows the keys that work for a while: made from a sealed token and the server's key, so nothing is stored.

The token says whose they are and until when. Access key and secret key are derived from it, so that a token
works with its own pair only. A user that is gone takes its temporary keys along.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from trackside.domain.errors import Invalid, Unauthenticated
from trackside.domain.identity import Caller

SECONDS_MIN = 1
SECONDS_MAX = 36 * 3600
SECONDS_DEFAULT = 3600
ACCESS_KEY_PREFIX = "TMP"

_ACCESS_KEY_DIGITS = 17
_SECRET_KEY_LENGTH = 40
_SEAL_BYTES = hashlib.sha256().digest_size
_TOKENS_CACHED = 256  # a client sends the same one with every request


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKeys:
    """A fresh pair of keys with the token that must travel beside them."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(repr=False)
    expires_s: int


@dataclass(frozen=True, slots=True)
class OpenedKeys:
    """The one pair that a token stands for; looks up keys as the directory does."""

    access_key: str
    secret_key: str = field(repr=False)
    caller: Caller

    def secret_of(self, access_key: str) -> str | None:
        """Return the secret key that belongs to an access key."""
        return self.secret_key if access_key == self.access_key else None

    def caller_of_access_key(self, access_key: str) -> Caller | None:
        """Return who an access key belongs to."""
        return self.caller if access_key == self.access_key else None


class TemporaryKeys:
    """Issue temporary keys and open their tokens."""

    def __init__(
        self, *, key: bytes, now_ms: Callable[[], int], caller_named: Callable[[str], Caller | None]
    ) -> None:
        self._key = key
        self._now_ms = now_ms
        self._caller_named = caller_named
        self._read = lru_cache(maxsize=_TOKENS_CACHED)(self._unsealed)

    def issue(self, caller: Caller, seconds: int = SECONDS_DEFAULT) -> IssuedKeys:
        """Return keys that act for the caller for so many seconds."""
        if not SECONDS_MIN <= seconds <= SECONDS_MAX:
            raise Invalid(f"temporary keys last {SECONDS_MIN:,} to {SECONDS_MAX:,} seconds, not {seconds:,}")
        expires_s = self._now_ms() // 1000 + seconds
        said = json.dumps([caller.user, caller.project_id, expires_s, secrets.token_hex(8)]).encode()
        token = base64.urlsafe_b64encode(self._derived("token", said) + said).decode().rstrip("=")
        access_key, secret_key = self._pair(token)
        return IssuedKeys(
            access_key=access_key, secret_key=secret_key, security_token=token, expires_s=expires_s
        )

    def open(self, token: str) -> OpenedKeys:
        """Return the keys a token stands for, or refuse one that is over or was not made here."""
        user, project_id, expires_s, access_key, secret_key = self._read(token)
        if self._now_ms() // 1000 >= expires_s:
            raise Unauthenticated("The security token is over: ask for new temporary keys.")
        caller = self._caller_named(user)
        if caller is None or caller.project_id != project_id:
            raise Unauthenticated("The user of this security token is gone.")
        return OpenedKeys(access_key, secret_key, caller)

    def _unsealed(self, token: str) -> tuple[str, str, int, str, str]:
        foreign = Unauthenticated("The security token is not one of this server.")
        try:
            whole = base64.urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        except ValueError:
            raise foreign from None
        seal, said = whole[:_SEAL_BYTES], whole[_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._derived("token", said)):
            raise foreign
        user, project_id, expires_s, _ = json.loads(said)
        return user, project_id, expires_s, *self._pair(token)

    def _pair(self, token: str) -> tuple[str, str]:
        digits = self._derived("access-key", token.encode()).hex().upper()[:_ACCESS_KEY_DIGITS]
        secret = base64.urlsafe_b64encode(self._derived("secret-key", token.encode())).decode()
        return f"{ACCESS_KEY_PREFIX}{digits}", secret[:_SECRET_KEY_LENGTH]

    def _derived(self, purpose: str, said: bytes) -> bytes:
        return hmac.digest(self._key, f"temporary-{purpose}\n".encode() + said, "sha256")
