"""MA_HANG_DETECT_TIME, taken as far as it can be."""

import pytest

from trackside.api.modelarts_v2.hang import hang_doubts, to_hang
from trackside.domain.fault import HangPolicy, HangRule


def test_every_job_is_looked_at_after_half_an_hour() -> None:
    assert to_hang({}) == HangPolicy(rule=HangRule.ACTIVITY, window_seconds=1800, exit_seconds=None)
    assert list(hang_doubts({"LR": "1"})) == []


@pytest.mark.parametrize(
    ("given", "minutes", "doubted"),
    [
        ("10", 10, False),
        (" 720 ", 720, False),
        ("45", 45, False),
        ("9", 10, True),
        ("721", 720, True),
        ("0", 10, True),
        ("-5", 30, True),
        ("half an hour", 30, True),
        ("", 30, True),
        ("9" * 40, 30, True),
    ],
)
def test_what_is_out_of_range_is_taken_as_near_as_can_be_and_told(
    given: str, minutes: int, doubted: bool
) -> None:
    environments = {"MA_HANG_DETECT_TIME": given}
    assert to_hang(environments).window_seconds == minutes * 60
    doubts = list(hang_doubts(environments))
    assert bool(doubts) == doubted
    assert all(f"must be 10 to 720 minutes, not {given!r}: {minutes} are taken" in one for one in doubts)
