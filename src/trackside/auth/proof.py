"""Knows what a signed request has proved: whose key signed it, when, and the nonce that makes it unique."""

from typing import NamedTuple


class Proof(NamedTuple):
    """What a signature with a nonce says, once it is found right."""

    access_key: str
    nonce: str
    signed_at_s: int


NO_SUCH_SECRET = "no access key has this secret"  # noqa: S105
DOES_NOT_MATCH = (
    "The signature does not match the request. Check the secret key, and that method, path, query and"
    " signed headers arrive as they were signed."
)


def clock_trouble(header: str, date: str, now: str, window_seconds: int) -> str:
    """Say that a request's date is too far off."""
    return (
        f"{header} is {date} but the server's clock says {now}; they may differ by {window_seconds} s"
        " at most. Check the clocks."
    )
