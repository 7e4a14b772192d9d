import pytest

from trackside.domain.metric import minute_grid
from trackside.domain.wording import counted, duration_text, signal_name, size_text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0 ms"),
        (250, "250 ms"),
        (9_000, "9 s"),
        (61_000, "1 min 01 s"),
        (120_000, "2 min"),
        (3_600_000, "1 h"),
        (7_380_000, "2 h 03 min"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert duration_text(ms) == text


@pytest.mark.parametrize(
    ("size", "text"), [(12, "12 B"), (2048, "2.0 KiB"), (16 * 1024**3, "16.0 GiB"), (1024**6, "1024.0 PiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


def test_counts_and_signals() -> None:
    assert (counted(1, "task"), counted(1024, "task")) == ("1 task", "1,024 tasks")
    assert (signal_name(9), signal_name(99)) == ("SIGKILL", "signal 99")


def test_the_grid_holds_every_minute_that_is_touched() -> None:
    assert list(minute_grid(59_999, 60_001)) == [0, 60_000]
    assert list(minute_grid(60_000, 120_000)) == [60_000]
    assert list(minute_grid(60_500, 60_500)) == [60_000]
