"""Knows how keys and bearer tokens are made and looked up; keeps none of them."""

import hashlib
import secrets
import string

TOKEN_BYTES = 32
ACCESS_KEY_LENGTH = 20
SECRET_KEY_LENGTH = 40

_ACCESS_KEY_LETTERS = string.ascii_uppercase + string.digits
_SECRET_KEY_LETTERS = string.ascii_letters + string.digits


def new_token() -> str:
    """Return a fresh bearer token."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def digest(token: str) -> str:
    """Return what is kept of a token; a plain hash will do because tokens are random."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def new_access_key() -> str:
    """Return a fresh access key: the public half."""
    return _random(_ACCESS_KEY_LETTERS, ACCESS_KEY_LENGTH)


def new_secret_key() -> str:
    """Return a fresh secret key."""
    return _random(_SECRET_KEY_LETTERS, SECRET_KEY_LENGTH)


def _random(letters: str, length: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(length))
