"""Sources that hang or fail hold up nobody, and what they said last counts only so long."""

import threading
from collections.abc import Iterator

import pytest

from tests.unit.collect.workload import Clock, next_pass, one, task
from trackside.collect.cards import CardReading, CardWatch
from trackside.collect.sensors import Sensors
from trackside.domain.metric import Metric
from trackside.domain.resources import Accelerator

GPU, NPU = Accelerator.GPU, Accelerator.NPU
STALE_MS = 15_000


class Scripted:
    """A source that says what it is told, and hangs when it is told to."""

    def __init__(self, family: Accelerator, **values: float) -> None:
        self.family = family
        self.values = {Metric(name): value for name, value in values.items()}
        self.free = threading.Event()
        self.free.set()
        self.done = threading.Semaphore(0)
        self.closed = threading.Event()
        self.breaks = False

    def read(self, cards: frozenset[int]) -> dict[int, CardReading]:
        self.free.wait(30)
        try:
            if self.breaks:
                raise RuntimeError("scripted")
            return {card: CardReading(dict(self.values)) for card in cards} if self.values else {}
        finally:
            self.done.release()

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def gpu() -> Scripted:
    return Scripted(GPU, gpu_percent=50.0)


@pytest.fixture
def npu() -> Scripted:
    return Scripted(NPU, npu_percent=20.0)


CARDS = frozenset({(GPU, 0), (NPU, 0)})


@pytest.fixture
def watch(gpu: Scripted, npu: Scripted) -> Iterator[CardWatch]:
    made = CardWatch([gpu, npu], stale_ms=STALE_MS)
    yield made
    gpu.free.set()
    npu.free.set()
    made.close()
    assert all(one.closed.wait(5) for one in (gpu, npu) if one.done.acquire(blocking=False))


def read(watch: CardWatch, now_ms: int) -> dict[str, float]:
    """Return all values of one pass."""
    watch.ask(CARDS, now_ms)
    found = watch.collect(CARDS, now_ms)
    return {metric: value for reading in found.values() for metric, value in reading.values.items()}


def test_all_families_answer_in_one_pass(watch: CardWatch) -> None:
    assert read(watch, 0) == {"gpu_percent": 50.0, "npu_percent": 20.0}


def test_a_source_that_hangs_is_replaced_by_its_last_word_until_that_is_stale(
    watch: CardWatch, gpu: Scripted, npu: Scripted
) -> None:
    assert read(watch, 0)["gpu_percent"] == 50.0
    gpu.free.clear()
    gpu.values[Metric.GPU_PERCENT] = 70.0
    for now_ms in (5_000, 10_000, 15_000):
        npu.values[Metric.NPU_PERCENT] = now_ms / 1000
        assert read(watch, now_ms) == {"gpu_percent": 50.0, "npu_percent": now_ms / 1000}
    assert read(watch, 20_000) == {"npu_percent": 15.0}
    gpu.done.acquire()
    gpu.free.set()
    assert gpu.done.acquire(timeout=5)
    assert read(watch, 25_000)["gpu_percent"] == 70.0


def test_what_a_source_says_no_more_is_gone_at_once(watch: CardWatch, gpu: Scripted) -> None:
    read(watch, 0)
    gpu.values.clear()
    assert "gpu_percent" not in read(watch, 5_000)


def test_a_source_that_breaks_leaves_the_others_and_comes_back(watch: CardWatch, gpu: Scripted) -> None:
    gpu.breaks = True
    assert read(watch, 0) == {"npu_percent": 20.0}
    gpu.breaks = False
    assert read(watch, 5_000) == {"gpu_percent": 50.0, "npu_percent": 20.0}


def test_an_error_of_a_card_is_told_once_even_if_its_reading_stands_in(
    watch: CardWatch, gpu: Scripted
) -> None:
    gpu.values[Metric.GPU_XID] = 79.0
    assert read(watch, 0)["gpu_xid"] == 79.0
    gpu.free.clear()
    assert "gpu_xid" not in read(watch, 5_000)


def test_the_first_source_has_the_first_word_and_the_second_fills_in() -> None:
    first = Scripted(GPU, gpu_percent=1.0)
    second = Scripted(GPU, gpu_percent=2.0, gpu_power_watts=3.0)
    watch = CardWatch([first, second], stale_ms=STALE_MS)
    assert read(watch, 0) == {"gpu_percent": 1.0, "gpu_power_watts": 3.0}
    watch.close()


def test_a_hanging_card_does_not_delay_the_other_sensors(gpu: Scripted) -> None:
    clock = Clock()
    gpu.free.clear()
    with Sensors(5_000, clock=clock, sources=[gpu]) as sensors, task(cards=(0,), accelerator=GPU) as ours:
        sensors.add(ours.probe)
        samples = next_pass(sensors, clock)
        assert one(samples, Metric.CPU_PERCENT).value >= 0
        assert not [sample for sample in samples if sample.metric == Metric.GPU_PERCENT]
        gpu.free.set()
        assert gpu.done.acquire(timeout=5)
        samples = next_pass(sensors, clock)
        assert one(samples, Metric.GPU_PERCENT, card=0).value == 50.0
