"""A returned write survives the death of the process, and a full disk."""

import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.persistence.making import PROJECT, making
from trackside.domain.errors import Unavailable
from trackside.domain.job import Job, JobId
from trackside.persistence import Stores, open_stores

ROUNDS = 10
LINES_MAX = 120  # told before the kill
ROOT = Path(__file__).parents[2]
ROOM_BYTES = 1024**2
INSERTS_MAX = 1_000  # far more than there is room for


def write_until_killed(url: str, lines: int) -> list[tuple[JobId, int, int]]:
    """Return the id, number and revision of every write that was acknowledged."""
    command = [sys.executable, "-m", "tests.unit.persistence.child", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        told += child.stdout.readlines()  # said between our last look and its death
    assert child.returncode == -9
    assert told[0]
    whole = [line.decode().split() for line in told if line.endswith(b"\n")]
    return [(JobId(job_id), int(number), int(revision)) for job_id, number, revision in whole]


def test_what_was_acknowledged_is_there_after_kill_9_and_no_number_came_twice(sqlite_url: str) -> None:
    moments = random.Random()  # different moments in every run: the promise holds at all of them
    numbers: dict[int, JobId] = {}
    revisions: dict[JobId, int] = {}
    for _ in range(ROUNDS):
        for job_id, number, revision in write_until_killed(sqlite_url, moments.randint(1, LINES_MAX)):
            assert numbers.setdefault(number, job_id) == job_id
            revisions[job_id] = max(revision, revisions.get(job_id, 0))

        stores = open_stores(sqlite_url)
        stored = {job_id: stores.jobs.get(job_id) for job_id in revisions}
        stores.close()
        for job_id, revision in revisions.items():
            job = stored[job_id]
            assert job is not None
            assert job.revision >= revision
            assert numbers[job.number] == job_id


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Let writes beyond this size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def insert_until_refused(stores: Stores) -> list[Job]:
    """Return the jobs that were stored before the first refusal."""
    kept: list[Job] = []
    for _ in range(INSERTS_MAX):
        try:
            kept.append(await stores.jobs.insert(PROJECT, making()))
        except Unavailable:
            return kept
    raise AssertionError("the disk was never full")


@pytest.mark.anyio
async def test_a_full_disk_refuses_writes_loses_none_and_is_forgotten_once_there_is_room(
    sqlite_url: str, tmp_path: Path, anyio_backend: str
) -> None:
    stores = open_stores(sqlite_url)
    await stores.start()
    await stores.identities.put_project(PROJECT, "first")
    with files_no_larger_than((tmp_path / "state.db-wal").stat().st_size + ROOM_BYTES):
        kept = await insert_until_refused(stores)
        assert stores.jobs.get(kept[0].id) == kept[0]
    kept.append(await stores.jobs.insert(PROJECT, making()))
    stores.close()

    reopened = open_stores(sqlite_url)
    assert list(await reopened.jobs.active()) == kept
    assert [job.number for job in kept] == list(range(1, len(kept) + 1))
    reopened.close()
