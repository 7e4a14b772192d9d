"""Knows which nonces were used, for as long as a request that bears one could still be taken.

Nonces live in memory only. A server that starts, or that had to forget because too many were used, instead
refuses what is dated before the moment from which it remembers: a little allowance for clocks that are
behind is the one gap in which a request of before the restart could be sent again.
"""

from collections.abc import Callable
from hashlib import blake2b

from trackside.auth.proof import Proof
from trackside.domain.errors import Unauthenticated

NONCES_MAX = 1_000_000  # about 100 MB: 500 requests per second through a window of 15 minutes
ALLOWANCE_SECONDS = 30
BUCKET_SECONDS = 30
_DIGEST_BYTES = 8


class Nonces:
    """Take each nonce once. Every step costs the same, however many are remembered."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        window_seconds: int,
        nonces_max: int = NONCES_MAX,
        allowance_seconds: int = ALLOWANCE_SECONDS,
    ) -> None:
        self._now_ms = now_ms
        self._window_seconds = window_seconds
        self._nonces_max = nonces_max
        self._seen: set[int] = set()
        self._buckets: dict[int, list[int]] = {}  # by the request's date: what is forgotten together
        self._oldest_date_s = now_ms() // 1000 - allowance_seconds

    def __len__(self) -> int:
        return len(self._seen)

    def take(self, proof: Proof) -> None:
        """Note that a request was made, or raise Unauthenticated if it may have been made before."""
        if proof.signed_at_s < self._oldest_date_s:
            raise Unauthenticated(
                "The request is dated before the moment from which this server remembers requests, so it"
                " may be a repeated one. Send it anew; if that does not help, check the clocks."
            )
        mark = _mark(proof)
        if mark in self._seen:
            raise Unauthenticated(
                "A request with this x-acs-signature-nonce was made already; every request needs its own."
            )
        number = proof.signed_at_s // BUCKET_SECONDS
        bucket = self._buckets.get(number)
        if bucket is None:
            self._forget_expired()
            bucket = self._buckets.setdefault(number, [])
        bucket.append(mark)
        self._seen.add(mark)
        if len(self._seen) > self._nonces_max:
            self._forget_oldest()

    def _forget_expired(self) -> None:
        """Drop what is older than the window: such a request is refused by its date."""
        expired = (self._now_ms() // 1000 - self._window_seconds) // BUCKET_SECONDS
        for number in [number for number in self._buckets if number < expired]:
            self._seen.difference_update(self._buckets.pop(number))

    def _forget_oldest(self) -> None:
        """Make room, and refuse from now on what is as old as that which is forgotten."""
        number = min(self._buckets)
        self._seen.difference_update(self._buckets.pop(number))
        self._oldest_date_s = max(self._oldest_date_s, (number + 1) * BUCKET_SECONDS)


def _mark(proof: Proof) -> int:
    """Return 64 bits that stand for a key's nonce: less to keep, and no client chooses how much."""
    said = f"{proof.access_key}\n{proof.nonce}".encode("latin-1", "replace")
    return int.from_bytes(blake2b(said, digest_size=_DIGEST_BYTES).digest(), "big")
