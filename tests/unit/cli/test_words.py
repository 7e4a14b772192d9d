"""Things are said in one way, and the unknown as a dash."""

import pytest

from trackside.cli import words
from trackside.domain.phase import Phase


def test_every_phase_has_a_state() -> None:
    assert set(words.STATE_OF) == {str(phase) for phase in Phase}


@pytest.mark.parametrize(
    ("word", "phases"),
    [
        ("failed", ("failed", "create_failed")),
        ("Waiting", ("creating", "queued")),
        ("queued", ("queued",)),
        ("lost", ("lost",)),
        ("none-such", ()),
    ],
)
def test_state_words_stand_for_phases(word: str, phases: tuple[str, ...]) -> None:
    assert words.phases_of(word) == phases


def test_active_is_everything_that_is_not_over() -> None:
    assert set(words.phases_of("active")) | words.FINAL_PHASES == {str(phase) for phase in Phase}


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("cpu_percent", 94.2, "94 %"),
        ("cpu_percent", 0.46, "0.5 %"),
        ("cpu_percent", None, words.UNKNOWN),
        ("disk_read_bytes_per_second", 2048.0, "2.0 KiB/s"),
        ("memory_used_bytes", 16 * 1024**3, "16.0 GiB"),
        ("loss", 2.11312, "2.113"),
    ],
)
def test_measures_carry_their_unit(metric: str, value: float | None, text: str) -> None:
    assert words.measure(metric, value) == text


def test_times_say_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert words.clock(0) == "00:00:00 UTC"
        assert words.clock(0, utc=False) == "09:00:00 JST"
        assert words.date_and_clock(1_700_000_000_000) == "2023-11-14 22:13:20 UTC"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert words.iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert words.iso(None) is None
    assert words.said_time("2026-11-15T21:38:16.746Z") == "2026-11-15 21:38:16 UTC"
    assert words.said_time("soon") == "soon"
    assert words.ago(None, 5) == words.UNKNOWN


def test_a_gap_in_a_sparkline_stays_a_gap() -> None:
    assert words.sparkline([0.0, None, 50.0, 100.0]) == "▁ ▅█"
    assert words.sparkline([None, None]) == ""
    assert words.sparkline([0.0, 0.0]) == "▁▁"
