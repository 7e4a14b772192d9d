"""What comes while the store is busy goes to it together, and everybody hears how it went."""

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import Readings, readings_of
from trackside.metricstore import appender as appender_module
from trackside.metricstore.appender import QUICK_SECONDS, SMALL_SAMPLES_MAX, TRUSTED_AFTER, Appender


class Slow:
    """A store that waits to be let go on, and refuses what is told to be bad."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.begun = threading.Event()
        self.batches: list[int] = []

    def append_readings(self, readings: Sequence[Readings]) -> None:
        self.begun.set()
        assert self.go_on.wait(30)
        self.batches.append(len(readings))
        if any(0 in one.times_ms for one in readings):
            raise OSError("the disk is full")


class Ready(Slow):
    """A store that says whether it is ready, and in which thread it was used."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on.set()
        self.is_ready = True
        self.seconds = 0.0
        self.in_loop: list[bool] = []

    def ready(self, readings: Sequence[Readings]) -> bool:
        return self.is_ready and bool(readings)

    def append_readings(self, readings: Sequence[Readings]) -> None:
        self.in_loop.append(threading.current_thread() is threading.main_thread())
        super().append_readings(readings)
        time.sleep(self.seconds)


def tick(at_ms: int) -> list[Readings]:
    return list(
        readings_of([Sample(JobId("job"), "w", "loss", at_ms, 1.0), Sample(JobId("job"), "v", "m", 9, 2.0)])
    )


def test_what_comes_meanwhile_is_kept_together() -> None:
    async def come() -> None:
        first = asyncio.create_task(appender.append(tick(9)))
        await asyncio.to_thread(store.begun.wait, 30)
        others = [asyncio.create_task(appender.append(tick(9))) for _ in range(20)]
        await asyncio.sleep(0)  # they are in the queue now
        store.go_on.set()
        await asyncio.gather(first, *others)

    store = Slow()
    appender = Appender(store)
    asyncio.run(come())
    appender.close()
    assert store.batches == [1, 20]
    assert appender.appended == 42


def test_a_failure_is_told_and_the_next_ones_are_kept() -> None:
    async def come() -> None:
        with pytest.raises(OSError, match="full"):
            await appender.append(tick(0))
        await appender.append(tick(9))

    store = Slow()
    store.go_on.set()
    appender = Appender(store)
    asyncio.run(come())
    appender.close()
    assert appender.appended == 2


def test_closing_keeps_what_waits_and_somebody_who_left_is_no_harm() -> None:
    async def come() -> None:
        tasks = [asyncio.create_task(appender.append(tick(9))) for _ in range(3)]
        await asyncio.to_thread(store.begun.wait, 30)
        tasks[0].cancel()
        store.go_on.set()
        appender.close()
        await asyncio.gather(*tasks[1:])

    store = Slow()
    appender = Appender(store)
    asyncio.run(come())
    assert sum(store.batches) == 3


def appended(store: Ready, appender: Appender, ticks: int, *, readings: list[Readings] | None = None) -> None:
    async def come() -> None:
        for _ in range(ticks):
            await appender.append(readings or tick(9))

    asyncio.run(come())


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> tuple[Ready, Appender]:
    """Return a store whose disk was quick long enough, however busy this machine is, and its appender."""
    monkeypatch.setattr(appender_module, "QUICK_SECONDS", 1000.0)
    store = Ready()
    appender = Appender(store)
    appended(store, appender, TRUSTED_AFTER)
    assert not any(store.in_loop)
    return store, appender


def test_a_disk_that_was_quick_for_long_is_written_to_in_place(trusted: tuple[Ready, Appender]) -> None:
    store, appender = trusted
    appended(store, appender, 3)
    appender.close()
    assert store.in_loop[TRUSTED_AFTER:] == [True] * 3
    assert appender.appended == 2 * (TRUSTED_AFTER + 3)


def test_one_slow_append_ends_the_trust(
    trusted: tuple[Ready, Appender], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, appender = trusted
    monkeypatch.setattr(appender_module, "QUICK_SECONDS", QUICK_SECONDS)
    store.seconds = 2 * QUICK_SECONDS
    appended(store, appender, 3)
    appender.close()
    assert store.in_loop[TRUSTED_AFTER:] == [True, False, False]


def test_who_would_have_to_wait_and_who_brings_much_goes_to_the_thread(
    trusted: tuple[Ready, Appender],
) -> None:
    store, appender = trusted
    store.is_ready = False
    appended(store, appender, 1)
    store.is_ready = True
    much = readings_of(
        [Sample(JobId("j"), "w", "m", at_ms, 1.0) for at_ms in range(1, SMALL_SAMPLES_MAX + 2)]
    )
    appended(store, appender, 1, readings=list(much))
    appended(store, appender, 1)
    appender.close()
    assert store.in_loop[TRUSTED_AFTER:] == [False, False, True]


def test_a_failure_in_place_is_told(trusted: tuple[Ready, Appender]) -> None:
    store, appender = trusted
    with pytest.raises(OSError, match="full"):
        appended(store, appender, 1, readings=tick(0))
    appended(store, appender, 1)
    appender.close()
