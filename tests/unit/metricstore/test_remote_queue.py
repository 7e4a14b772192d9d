"""The queue on disk: in order, bounded, and there again after a restart."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.metricstore.remote_queue import BATCH_SAMPLES_MAX, DiskQueue

BIG = 1 << 30


def batch(first: int, count: int = 3) -> list[Sample]:
    return [
        Sample(JobId("j"), "w", "loss", at, at / 7, at % 2 or None, (("a", "b"),))
        for at in range(first, first + count)
    ]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[DiskQueue]:
    made = DiskQueue(tmp_path / "queue.db", bytes_max=BIG)
    yield made
    made.close()


def test_samples_come_out_as_they_went_in(queue: DiskQueue) -> None:
    queue.push(batch(0))
    queue.push(batch(10))
    assert queue.waiting == 6
    through, samples = queue.peek(100)
    assert samples == batch(0) + batch(10)
    queue.shipped(through)
    assert queue.peek(100) == (0, [])
    assert (queue.waiting, queue.bytes) == (0, 0)


def test_whole_batches_are_taken_and_at_least_one(queue: DiskQueue) -> None:
    for first in (0, 10, 20):
        queue.push(batch(first))
    assert queue.peek(1)[1] == batch(0)
    through, samples = queue.peek(7)
    assert samples == batch(0) + batch(10)
    queue.shipped(through)
    assert queue.peek(7)[1] == batch(20)


def test_a_large_push_is_several_batches(queue: DiskQueue) -> None:
    queue.push(batch(0, BATCH_SAMPLES_MAX + 5))
    assert len(queue.peek(1)[1]) == BATCH_SAMPLES_MAX


def test_what_waits_is_there_after_a_restart(tmp_path: Path) -> None:
    first = DiskQueue(tmp_path / "queue.db", bytes_max=BIG)
    first.push(batch(0))
    first.forget("gone")
    size = first.bytes
    first.close()
    again = DiskQueue(tmp_path / "queue.db", bytes_max=BIG)
    assert (again.waiting, again.bytes, again.to_forget()) == (3, size, ["gone"])
    assert again.peek(100)[1] == batch(0)
    again.close()


def test_when_it_is_full_the_oldest_give_way_and_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = DiskQueue(tmp_path / "queue.db", bytes_max=1_000)
    for first in range(0, 400, 4):
        queue.push(batch(first, 4))
    assert queue.bytes <= 1_000
    assert queue.dropped > 0
    assert queue.dropped + queue.waiting == 400
    assert queue.peek(1_000)[1] == batch(queue.dropped, 400 - queue.dropped), "the newest are there, in order"
    assert "oldest samples were dropped" in caplog.text
    queue.close()


def test_a_job_is_forgotten_when_all_before_it_has_been_shipped(queue: DiskQueue) -> None:
    queue.push(batch(0))
    queue.forget("a")
    queue.push(batch(10))
    assert queue.forgotten() == []
    queue.shipped(queue.peek(1)[0])
    assert queue.forgotten() == ["a"]
    queue.shipped(queue.peek(1)[0])
    assert queue.forgotten() == ["a"]
    queue.forgot("a")
    assert (queue.forgotten(), queue.to_forget()) == ([], [])


def test_a_damaged_batch_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue = DiskQueue(tmp_path / "queue.db", bytes_max=BIG)
    queue.push(batch(0))
    queue.push(batch(10))
    with sqlite3.connect(tmp_path / "queue.db") as other:
        other.execute("UPDATE batch SET body = x'00112233' WHERE id = 1")
    other.close()
    through, samples = queue.peek(100)
    assert (through, samples) == (2, batch(10))
    assert "damaged" in caplog.text
    queue.close()
