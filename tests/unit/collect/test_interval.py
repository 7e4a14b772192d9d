"""How readings become one number per interval."""

import pytest

from trackside.collect.interval import Counter, Gauge


def test_a_rate_covers_the_time_since_the_last_one_shipped() -> None:
    counter = Counter()
    counter.start(100, 1_000)
    counter.see(150, 2_000)
    counter.see(300, 3_000)
    assert counter.ship() == pytest.approx(100)
    counter.see(301, 3_500)
    assert counter.ship() == pytest.approx(2)


def test_a_counter_first_seen_has_no_rate_yet() -> None:
    counter = Counter()
    counter.see(5_000, 1_000)
    assert counter.ship() is None
    counter.see(6_000, 2_000)
    assert counter.ship() == pytest.approx(1_000)


def test_no_reading_no_rate() -> None:
    counter = Counter()
    assert counter.ship() is None
    counter.start(1, 1_000)
    assert counter.ship() is None


def test_a_counter_that_falls_gives_no_negative_rate_and_is_not_counted_twice() -> None:
    counter = Counter()
    counter.start(0, 0)
    counter.see(100, 1_000)
    assert counter.ship() == 100
    counter.see(40, 2_000)
    assert counter.ship() == 0
    counter.see(130, 3_000)
    assert counter.ship() == 30


def test_a_missed_reading_is_covered_by_the_next_one() -> None:
    counter = Counter()
    counter.start(0, 0)
    assert counter.ship() is None
    counter.see(200, 2_000)
    assert counter.ship() == 100


def test_a_gauge_is_the_mean_of_its_readings() -> None:
    gauge = Gauge()
    assert gauge.ship() is None
    assert gauge.last is None
    for value in (1, 2, 6):
        gauge.see(value)
    assert gauge.ship() == 3
    assert gauge.ship() is None


def test_a_gauge_remembers_the_level_it_began_with() -> None:
    gauge = Gauge()
    gauge.see(1)
    gauge.see(5)
    assert gauge.ship() == 3
    assert gauge.last == 5


def test_of_codes_the_newest_is_shipped_once() -> None:
    gauge = Gauge()
    assert gauge.ship_newest() is None
    gauge.see(79)
    gauge.see(43)
    assert gauge.ship_newest() == 43
    assert gauge.ship_newest() is None
