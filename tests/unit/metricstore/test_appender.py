"""What comes while the store is busy goes to it together, and everybody hears how it went."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import Readings, readings_of
from trackside.metricstore.appender import Appender


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
