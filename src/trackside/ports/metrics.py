"""How samples are kept and asked for: what every store does, and what one may offer besides."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.domain.readings import Readings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Name one series of a job."""

    task: str
    metric: str
    card: int | None = None
    labels: tuple[tuple[str, str], ...] = ()


class MetricStore(Protocol):
    """Keeps samples. Appending the same sample twice changes nothing."""

    remote: bool  # whether a query waits for another machine

    def append(self, samples: Sequence[Sample]) -> None:
        """Keep samples; they are durable on return."""
        ...

    def append_readings(self, readings: Sequence[Readings]) -> None:
        """Keep samples that come as rows; they are durable on return."""
        ...

    def means(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metric: str | None = None,
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> dict[SeriesKey, dict[int, float]]:
        """Return, per series, the mean of each step [t, t+step) that has samples, keyed by t."""
        ...

    def latest(
        self, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        """Return the newest sample (time, value) of every series that has one since then."""
        ...

    def revision(self, job_id: JobId) -> int:
        """Return a number that changes whenever samples of the job arrive."""
        ...

    def forget(self, job_id: JobId) -> None:
        """Drop all samples of a job."""
        ...


@runtime_checkable
class SaysWhenReady(Protocol):
    """What a metric store may offer besides: to say beforehand whether an append would have to wait."""

    def ready(self, readings: Sequence[Readings]) -> bool:
        """Say whether an append of these would now wait for nothing but one write to the disk."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MeanColumns:
    """Means of some series as columns: those of the first series, then those of the second, and so on."""

    keys: Sequence[SeriesKey]
    bounds: Sequence[int]  # the means of series n stand from bounds[n] to bounds[n + 1]
    steps_ms: "npt.NDArray[np.int64]"  # the steps that occur, ascending, each once
    which: "npt.NDArray[np.int64] | None"  # whose mean it is, by place in steps_ms; None: each has all
    means: "npt.NDArray[np.float64]"


@runtime_checkable
class MeansInColumns(Protocol):
    """What a metric store may offer besides: means as columns, for answers of a hundred thousand points."""

    def means_columns(
        self,
        job_id: JobId,
        *,
        task: str | None,
        metrics: Sequence[str],
        start_ms: int,
        end_ms: int,
        step_ms: int,
    ) -> MeanColumns:
        """Return the means of tasks as a whole (series of cards and with labels are left out)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LatestColumns:
    """The newest samples of some series of a job."""

    keys: Sequence[SeriesKey]
    at_ms: Sequence[int]
    values: Sequence[float]


@runtime_checkable
class LatestOfMetric(Protocol):
    """What a metric store may offer besides: the newest values of one metric, without reading the others."""

    def latest_of(
        self, metric: str, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, LatestColumns]:
        """Return the newest samples of every series of a metric that has one since then."""
        ...
