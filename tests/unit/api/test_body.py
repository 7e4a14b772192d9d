"""How much of a body is taken in."""

import pytest

from trackside.api.body import BodyLimits
from trackside.domain.errors import TooLarge, Unavailable


def test_a_body_of_just_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    limits = BodyLimits(6)
    limits.announced(6)
    limits.arrived(2, so_far=2)
    limits.arrived(4, so_far=6)
    with pytest.raises(TooLarge):
        limits.arrived(1, so_far=7)


def test_a_body_over_the_limit_is_refused_before_or_while_it_arrives() -> None:
    limits = BodyLimits(5)
    with pytest.raises(TooLarge, match="5 bytes"):
        limits.announced(6)
    limits.arrived(3, so_far=3)
    with pytest.raises(TooLarge, match="5 bytes"):
        limits.arrived(3, so_far=6)


def test_all_that_is_arriving_has_a_limit_too() -> None:
    limits = BodyLimits(10, unfinished_bytes_max=5)
    limits.arrived(4, so_far=4)
    with pytest.raises(Unavailable):
        limits.arrived(2, so_far=2)
    limits.ended(2)
    limits.arrived(1, so_far=5)
    limits.ended(5)
    limits.arrived(5, so_far=5)
