"""Knows what belongs into the file of one attempt, and reads it a piece at a time, however large it is."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from trackside.domain.event import Event
from trackside.domain.identity import Caller
from trackside.domain.job import Job, Record, task_names
from trackside.domain.metric import labels_text
from trackside.ports import EventQuery, LogStore, SeriesKey, Snapshot, StackStore
from trackside.service.archive import Archive
from trackside.service.jobs import Jobs
from trackside.service.metrics import Metrics

EVENTS_PER_PAGE = 200
POINTS_PER_QUERY = 20_000  # about: a query of the embedded store holds up everybody else
SERIES_PER_TASK = 25
SAMPLE_MS = 5_000
WINDOW_MS_MIN, WINDOW_MS_MAX = 5_000, 1_800_000
COLUMNS = ("time", "task", "card", "metric", "labels", "value")
README = """\
One attempt of a training job, as Trackside recorded it.

job       {name} ({job_id})
attempt   {number} of {attempts}

attempt.json   everything known of it: times, why it ended, who failed first, every task's end, what was
               done about it, and the time it cost. Times ending in _ms are milliseconds since 1970, UTC.
logs/          what each task printed in this attempt, and in this one only
metrics.csv    every sample of every task while the attempt ran (one per minute where the single samples
               are not kept any more)
events.jsonl   what happened to the job meanwhile, one JSON object per line
stacks/        where each process stood when the attempt seemed to hang; only there if it did

A field that is null, or a file that is empty: it was not seen or not measured, which is not the same as 0.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What one attempt's file is made of."""

    caller: Caller
    job: Job
    record: Record
    span: tuple[int, int] | None
    now_ms: int
    logs: LogStore
    stacks: StackStore
    metrics: Metrics
    jobs: Jobs

    async def pieces(self, archive: Archive, described: bytes) -> AsyncIterator[bytes]:
        """Yield the file."""
        starts = log_starts(self.job, self.record)
        members: list[tuple[str, AsyncIterator[bytes]]] = [
            ("README.txt", _once(self._readme())),
            ("attempt.json", _once(described)),
            *(
                (f"logs/{task}.log", self._log(task, starts.get(task, [])))
                for task in task_names(self.job.spec)
            ),
            *(
                (f"stacks/{one.task}.{one.at_ms}.txt", self._stacks(one))
                for one in await self.stacks.snapshots(self.job.id)
                if one.attempt in starts.get(one.task, [])
            ),
            ("events.jsonl", self._events()),
            ("metrics.csv", self._samples()),
        ]
        for name, content in members:
            archive.begin(name)
            async for piece in content:
                await asyncio.to_thread(archive.write, piece)
                yield archive.take()
            archive.end()
            yield archive.take()
        archive.close()
        yield archive.take()

    def _readme(self) -> bytes:
        told = {"name": self.job.spec.name, "job_id": self.job.id, "number": self.record.number}
        return README.format(**told, attempts=len(self.job.records)).encode()

    async def _log(self, task: str, starts: Sequence[int]) -> AsyncIterator[bytes]:
        with closing(self.logs.chunks(self.job.id, task, starts)) as chunks:
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                yield chunk

    async def _stacks(self, snapshot: Snapshot) -> AsyncIterator[bytes]:
        yield (await self.stacks.read(self.job.id, snapshot)).encode()

    async def _events(self) -> AsyncIterator[bytes]:
        until = self.now_ms if self.record.ended_at_ms is None else self.record.ended_at_ms
        offset = 0
        while True:
            query = EventQuery(
                job_id=self.job.id,
                from_ms=self.record.queued_at_ms,
                to_ms=max(until, self.record.queued_at_ms),
                offset=offset,
                limit=EVENTS_PER_PAGE,
            )
            page = await self.jobs.events(self.caller, query)
            yield b"".join(_event_line(event) for event in page.events)
            offset += len(page.events)
            if not page.events or offset >= page.matching:
                return

    async def _samples(self) -> AsyncIterator[bytes]:
        yield (",".join(COLUMNS) + "\n").encode()
        for start_ms, end_ms in self._windows():
            found = await self.metrics.series(
                self.caller,
                self.job.id,
                task=None,
                start_ms=start_ms,
                end_ms=end_ms,
                step_ms=self.metrics.finest_step_ms,
            )
            yield await asyncio.to_thread(_rows, found)

    def _windows(self) -> Iterator[tuple[int, int]]:
        """Yield the attempt's time in parts small enough to be asked for at once."""
        if self.span is None:
            return
        start_ms, end_ms = self.span
        fitting = POINTS_PER_QUERY * SAMPLE_MS // (SERIES_PER_TASK * self.job.spec.node_count)
        length = min(max(fitting, WINDOW_MS_MIN), WINDOW_MS_MAX)
        for at_ms in range(start_ms, end_ms, length):
            yield at_ms, min(at_ms + length, end_ms)


def log_starts(job: Job, record: Record) -> dict[str, list[int]]:
    """Return, by task, which of its starts belong to an attempt: they name its log files."""
    found: dict[str, list[int]] = {}
    for one in (*job.past_tasks, *job.tasks):
        if one.record == record.number:
            found.setdefault(one.name, []).append(one.attempt)
    return found


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _event_line(event: Event) -> bytes:
    told = {
        "time": _time(event.at_ms),
        "level": event.level.value,
        "source": event.source,
        "task": event.task,
        "task_start": event.attempt,
        "kind": event.kind.value if event.kind else None,
        "message": event.message,
    }
    return json.dumps(told, ensure_ascii=False).encode() + b"\n"


def _rows(found: Mapping[SeriesKey, Mapping[int, float]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(_cells(found))
    return text.getvalue().encode()


def _cells(found: Mapping[SeriesKey, Mapping[int, float]]) -> Iterable[tuple[object, ...]]:
    ordered = sorted(
        found, key=lambda key: (key.task, key.metric, key.card is not None, key.card, key.labels)
    )
    for key in ordered:
        card = "" if key.card is None else key.card
        for at_ms, value in sorted(found[key].items()):
            yield _time(at_ms), key.task, card, key.metric, labels_text(dict(key.labels)), value


def _time(at_ms: int) -> str:
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
