"""The samples that every store is fed: tasks that look like training, tick by tick.

Percent come with one or two decimals, rates in whole kilobytes, cards in whole percent, degrees and watts;
some stand still, some wander, some are noise, some are bursts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import Grid, Readings, pack

TICK_MS = 15_000
Floats = npt.NDArray[np.float64]
Made = Callable[[np.random.Generator, int, int], Floats]


def _level(low: float, high: float, noise: float, decimals: int) -> Made:
    """Make series that stay near a level of their own."""

    def make(chance: np.random.Generator, tasks: int, ticks: int) -> Floats:
        levels = chance.uniform(low, high, (tasks, 1))
        return np.round(np.abs(levels + chance.normal(0, noise, (tasks, ticks))), decimals)

    return make


def _drift(low: float, high: float, noise: float, decimals: int) -> Made:
    """Make series that wander."""

    def make(chance: np.random.Generator, tasks: int, ticks: int) -> Floats:
        walk = np.cumsum(chance.normal(0, noise, (tasks, ticks)), axis=1)
        return np.round(np.abs(chance.uniform(low, high, (tasks, 1)) + walk), decimals)

    return make


def _bursts(every: int, length: int, high: int) -> Made:
    """Make rates that are zero but for bursts, as checkpoints are."""

    def make(chance: np.random.Generator, tasks: int, ticks: int) -> Floats:
        on = (np.arange(ticks)[None, :] + chance.integers(0, every, (tasks, 1))) % every < length
        return np.where(on, chance.integers(high // 2, high, (tasks, ticks)) * 1024.0, 0.0)

    return make


def _steady(low: int, high: int, spread: float) -> Made:
    """Make rates that are much the same all the time."""

    def make(chance: np.random.Generator, tasks: int, ticks: int) -> Floats:
        levels = chance.uniform(low, high, (tasks, 1))
        return np.round(levels * (1 + chance.normal(0, spread, (tasks, ticks)))) * 1024.0

    return make


METRICS: dict[str, Made] = {
    "cpu_percent": _level(30, 90, 1.5, 1),
    "memory_percent": _drift(20, 70, 0.02, 2),
    "memory_peak_percent": _drift(30, 80, 0.0, 2),
    "shm_percent": _drift(5, 20, 0.005, 2),
    "disk_read_bytes_per_second": _bursts(40, 3, 20_000),
    "disk_write_bytes_per_second": _bursts(40, 2, 50_000),
    "network_receive_bytes_per_second": _steady(1_000, 20_000, 0.01),
    "network_send_bytes_per_second": _steady(1_000, 20_000, 0.01),
    "gpu_percent": _level(85, 97, 2.0, 0),
    "gpu_memory_percent": _drift(50, 95, 0.0, 1),
    "gpu_power_watts": _level(250, 380, 6.0, 0),
    "gpu_temperature_celsius": _drift(55, 75, 0.15, 0),
    "gpu_memory_temperature_celsius": _drift(60, 85, 0.1, 0),
    "gpu_clock_megahertz": _level(1700, 1710, 8.0, 0),
    "gpu_ecc_errors": _drift(0, 0.2, 0.0, 0),
    "train_loss": _drift(2, 3, 0.004, 4),
}


def job_id(number: int) -> str:
    """Return the id of a job of the workload."""
    return f"00000000-0000-4000-8000-{number:012d}"


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs of equal size, some metrics of all their tasks, one tick after the other."""

    jobs: int
    tasks: int  # of each job
    ticks: int
    first_ms: int
    metrics: tuple[str, ...] = tuple(METRICS)

    @property
    def series(self) -> list[tuple[str, str, str]]:
        """Return job, task and metric of every series."""
        return [
            (job_id(job), f"worker-{task}", metric)
            for job in range(self.jobs)
            for task in range(self.tasks)
            for metric in self.metrics
        ]

    @property
    def samples(self) -> int:
        """Return how many samples there are."""
        return self.jobs * self.tasks * len(self.metrics) * self.ticks

    @property
    def end_ms(self) -> int:
        """Return when the last tick is over."""
        return self.first_ms + self.ticks * TICK_MS

    def matrix(self) -> Floats:
        """Return all values, a row per tick, a column per series."""
        chance = np.random.default_rng(11)
        every = self.jobs * self.tasks
        made = [METRICS[metric](chance, every, self.ticks) for metric in self.metrics]
        return np.ascontiguousarray(np.stack(made, axis=1).reshape(-1, self.ticks).T)

    def readings(self) -> Iterator[Readings]:
        """Yield what arrives at each tick, as an agent tells it."""
        names = tuple((metric, None, ()) for metric in self.metrics)
        tasks = tuple(f"worker-{task}" for task in range(self.tasks))
        series = pack([Grid(JobId(job_id(job)), tasks, names) for job in range(self.jobs)])
        for tick, row in enumerate(self.matrix()):
            at_ms = self.first_ms + tick * TICK_MS
            yield Readings(series=series, times_ms=(at_ms,), values=row.tobytes())

    def batches(self) -> Iterator[list[Sample]]:
        """Yield what arrives at each tick."""
        names = [(JobId(job), task, metric) for job, task, metric in self.series]
        for tick, row in enumerate(self.matrix()):
            at_ms = self.first_ms + tick * TICK_MS
            yield [
                Sample(job, task, metric, at_ms, value)
                for (job, task, metric), value in zip(names, row.tolist(), strict=True)
            ]
