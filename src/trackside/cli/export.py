"""Writes all points of a job as CSV or Parquet, a window at a time: no job has to fit into memory."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trackside.cli.errors import CliError, ExitCode, Usage
from trackside.domain.metric import labels_text

if TYPE_CHECKING:
    from trackside.cli.session import Session
    from trackside.cli.views import JobView, SeriesView

WINDOW_STEPS = 5_000  # what is asked for at once
RAW_WINDOW_MS = 30 * 60_000  # the server gives an hour of single samples at once
HEADER = "time,task,card,metric,labels,value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What to write: which points of which series."""

    job: "JobView"
    start_ms: int
    end_ms: int
    step_ms: int | None  # None: every sample as it was measured
    wanted: Callable[[Sequence["SeriesView"]], list["SeriesView"]]  # chooses and sorts

    def windows(self) -> Iterator[tuple[int, int]]:
        """Return the windows to ask for, each with whole steps: a step in two halves would be two points."""
        step = self.step_ms or 1
        length = RAW_WINDOW_MS if self.step_ms is None else WINDOW_STEPS * step
        start = self.start_ms
        while start < self.end_ms:
            end = min(start // step * step + length, self.end_ms)
            yield start, end
            start = end

    def pages(self, session: "Session") -> Iterator[list["SeriesView"]]:
        """Ask for one window after the other."""
        for start_ms, end_ms in self.windows():
            found = session.api.metrics(
                self.job.id,
                start_ms=start_ms,
                end_ms=end_ms,
                step_ms=self.step_ms or 1,
                raw=self.step_ms is None,
            )
            yield self.wanted(found)


def write_csv(session: "Session", export: Export) -> int:
    """Print every point; return how many."""
    from trackside.cli.words import iso

    session.out(HEADER)
    points = 0
    for one in itertools.chain.from_iterable(export.pages(session)):
        card = "" if one.card is None else one.card
        named = f"{one.task},{card},{_quoted(one.metric)},{_quoted(labels_text(one.labels))}"
        for at, value in one.points:
            session.out(f"{iso(at)},{named},{'' if value is None else value}")
        points += len(one.points)
    return points


def write_parquet(session: "Session", export: Export, path: Path) -> int:
    """Write every point to a Parquet file, whole or not at all; return how many."""
    pyarrow, parquet = _pyarrow()
    schema = pyarrow.schema(
        [
            ("time", pyarrow.timestamp("ms", tz="UTC")),
            ("task", pyarrow.string()),
            ("card", pyarrow.int32()),
            ("metric", pyarrow.string()),
            ("labels", pyarrow.string()),
            ("value", pyarrow.float64()),
        ]
    )
    unfinished = path.with_name(path.name + ".part")
    points = 0
    try:
        with parquet.ParquetWriter(unfinished, schema, compression="zstd") as writer:
            for page in export.pages(session):
                table = pyarrow.table(_columns(page), schema=schema)
                writer.write_table(table)
                points += len(table)
        unfinished.replace(path)
    except OSError as error:
        raise Usage(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return points


def _columns(page: Sequence["SeriesView"]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in HEADER.split(",")}
    for one in page:
        named = {"task": one.task, "card": one.card, "metric": one.metric, "labels": labels_text(one.labels)}
        for name, value in named.items():
            columns[name] += [value] * len(one.points)
        columns["time"] += [at for at, _ in one.points]
        columns["value"] += [value for _, value in one.points]
    return columns


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise CliError(
            "Parquet needs pyarrow, which is not installed here",
            code=ExitCode.USAGE,
            hint="pip install 'trackside[parquet]', or use --csv",
        ) from None
    return pyarrow, pyarrow.parquet


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if set(cell) & set('",\n\r') else cell
