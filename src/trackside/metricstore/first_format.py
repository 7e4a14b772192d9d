"""Knows the file's first format, one row per sample, for as long as such files are found."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.metricstore.database import format_of

BATCH = 20_000
NO_CARD = -1


def move_aside(path: Path) -> Path:
    """Rename a file of the first format; return where it is now (or would be)."""
    aside = path.with_suffix(".rows")
    if not aside.exists() and format_of(path) == 1:  # looking at it has folded its log into it
        path.rename(aside)
    return aside


def samples_of(aside: Path) -> Iterator[list[Sample]]:
    """Yield the samples of the former file in batches; appending some of them again does no harm."""
    if not aside.exists():
        return
    connection = sqlite3.connect(aside)
    try:
        rows = connection.execute(
            "SELECT job_id, task, metric, at_ms, value, card FROM series JOIN sample ON series_id = id"
        )
        while batch := rows.fetchmany(BATCH):
            yield [
                Sample(JobId(job), task, metric, at_ms, value, None if card == NO_CARD else card)
                for job, task, metric, at_ms, value, card in batch
            ]
    finally:
        connection.close()
