"""Each request is taken once, for as long as its date would let it in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackside.auth.nonces import ALLOWANCE_SECONDS, BUCKET_SECONDS, Nonces
from trackside.auth.proof import Proof
from trackside.domain.errors import Unauthenticated

START_S, WINDOW = 1_769_904_000, 900


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> int:
        return self.now_s * 1000


def nonces(clock: Clock, **options: int) -> Nonces:
    return Nonces(now_ms=clock, window_seconds=WINDOW, **options)


def test_a_replay_is_refused_and_another_nonce_or_key_is_not() -> None:
    seen = nonces(Clock())
    seen.take(Proof("ak", "n1", START_S))
    seen.take(Proof("ak", "n2", START_S))
    seen.take(Proof("other", "n1", START_S))
    for date in (START_S, START_S + 60):
        with pytest.raises(Unauthenticated, match="made already"):
            seen.take(Proof("ak", "n1", date))


def test_what_was_refused_leaves_no_trace() -> None:
    seen = nonces(Clock())
    seen.take(Proof("ak", "n", START_S))
    with pytest.raises(Unauthenticated):
        seen.take(Proof("ak", "n", START_S))
    assert len(seen) == 1


@given(st.integers(-WINDOW, WINDOW), st.lists(st.integers(0, WINDOW), max_size=20))
def test_a_nonce_is_remembered_for_as_long_as_its_date_is_good(off_s: int, steps: list[int]) -> None:
    clock = Clock()
    seen = nonces(clock, allowance_seconds=2 * WINDOW)
    first = Proof("ak", "n", START_S + off_s)
    seen.take(first)
    for number, step in enumerate(steps):
        clock.now_s += step
        if abs(clock.now_s - first.signed_at_s) > WINDOW:
            return
        with pytest.raises(Unauthenticated):
            seen.take(first)
        seen.take(Proof("ak", f"other {number}", clock.now_s))


def test_memory_stays_bounded_over_time() -> None:
    clock = Clock()
    seen = nonces(clock)
    for second in range(3 * WINDOW):
        clock.now_s = START_S + second
        seen.take(Proof("ak", str(second), clock.now_s))
    assert len(seen) <= WINDOW + 2 * BUCKET_SECONDS


def test_when_there_are_too_many_the_oldest_go_and_their_dates_with_them() -> None:
    clock = Clock()
    seen = nonces(clock, nonces_max=10)
    old = Proof("ak", "old", START_S)
    seen.take(old)
    clock.now_s += 2 * BUCKET_SECONDS
    for number in range(10):
        seen.take(Proof("ak", str(number), clock.now_s))
    assert len(seen) == 10
    with pytest.raises(Unauthenticated, match="may be a repeated one"):
        seen.take(old)
    with pytest.raises(Unauthenticated, match="made already"):
        seen.take(Proof("ak", "3", clock.now_s))


def test_a_restart_refuses_what_is_dated_before_it() -> None:
    clock = Clock()
    seen = nonces(clock)
    seen.take(Proof("ak", "a clock that is a little behind", START_S - ALLOWANCE_SECONDS))
    with pytest.raises(Unauthenticated, match="may be a repeated one"):
        seen.take(Proof("ak", "n", START_S - ALLOWANCE_SECONDS - 1))
