"""How every JobStore takes the reports of agents: each exactly once, all of a batch or none."""

import asyncio
from dataclasses import replace

import pytest

from tests.unit.persistence.making import NODE, PROJECT, make_spec, making
from trackside.domain.errors import Invalid
from trackside.domain.event import Event
from trackside.domain.exchange import EndCause, Ended, Measured, Noted, Report, Started, TaskKey
from trackside.domain.job import Job, JobId, NodeId, TaskName
from trackside.persistence import Stores, open_stores
from trackside.ports import EventQuery, JobQuery, Update

pytestmark = pytest.mark.anyio
STREAM = "stream-1"


def key(job_id: str) -> TaskKey:
    """Name the first task of a job."""
    return TaskKey(job_id=JobId(job_id), attempt=1, task=TaskName("worker-0"))


def noted(seq: int, job_id: str) -> Report:
    """Return a report with a note."""
    return Report(seq=seq, noted=Noted(key=key(job_id), at_ms=seq, message=f"note {seq}"))


def count(job: Job, report: Report) -> Update:
    """Write down which report was applied, in the job and as an event."""
    told = Event(job_id=job.id, at_ms=report.seq, message=f"report {report.seq}")
    return Update(job=replace(job, node_counts=(*job.node_counts, (report.seq, 1))), events=(told,))


def applied(stores: Stores, job: Job) -> list[int]:
    """Return the numbers of the reports that were applied."""
    stored = stores.jobs.get(job.id)
    assert stored is not None
    return [seq for seq, _ in stored.node_counts]


async def test_each_report_is_applied_once_however_often_it_is_sent(
    stores: Stores, database_url: str
) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    reports = [noted(seq, job.id) for seq in (1, 2, 3)]
    assert await stores.jobs.apply_reports(NODE, STREAM, reports[:2], count) == 2
    assert await stores.jobs.apply_reports(NODE, STREAM, reports, count) == 3
    assert await stores.jobs.apply_reports(NODE, STREAM, reports, count) == 3
    assert applied(stores, job) == [1, 2, 3]
    assert (await stores.jobs.events(EventQuery(job_id=job.id))).matching == 3

    reopened = open_stores(database_url)
    await reopened.start()
    assert await reopened.jobs.apply_reports(NODE, STREAM, reports, count) == 3
    assert applied(reopened, job) == [1, 2, 3]
    reopened.close()


async def test_the_same_batch_sent_many_times_at_once_counts_once(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    reports = [noted(seq, job.id) for seq in range(1, 6)]
    done = await asyncio.gather(
        *(stores.jobs.apply_reports(NODE, STREAM, reports[: 1 + i % 5], count) for i in range(20))
    )
    assert max(done) == 5
    assert applied(stores, job) == [1, 2, 3, 4, 5]


async def test_reports_are_applied_in_their_order(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    shuffled = [noted(seq, job.id) for seq in (7, 5, 6)]
    assert await stores.jobs.apply_reports(NODE, STREAM, shuffled, count) == 7
    assert applied(stores, job) == [5, 6, 7]


async def test_streams_and_nodes_count_for_themselves(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    for node, stream in ((NODE, "a"), (NODE, "b"), (NodeId("node-b"), "a")):
        assert await stores.jobs.apply_reports(node, stream, [noted(1, job.id)], count) == 1
    assert applied(stores, job) == [1, 1, 1]


async def test_all_kinds_find_their_job_and_samples_only_move_on(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    reports = [
        Report(seq=1, started=Started(key=key(job.id), at_ms=1, pid=7, ip="10.0.0.1")),
        Report(seq=2, ended=Ended(key=key(job.id), at_ms=2, cause=EndCause.EXITED, exit_code=0)),
        noted(3, job.id),
        Report(seq=4, measured=Measured(samples=())),
        noted(5, "a job that is gone"),
    ]
    assert await stores.jobs.apply_reports(NODE, STREAM, reports, count) == 5
    assert applied(stores, job) == [1, 2, 3]


async def test_what_apply_declines_still_moves_the_stream_on(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    assert await stores.jobs.apply_reports(NODE, STREAM, [noted(1, job.id)], lambda *_: None) == 1
    assert await stores.jobs.apply_reports(NODE, STREAM, [noted(1, job.id)], count) == 1
    assert stores.jobs.get(job.id) == job


async def test_a_batch_that_fails_leaves_nothing(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())

    def fail_late(job: Job, report: Report) -> Update:
        if report.seq == 2:
            raise Invalid("no")
        return count(job, report)

    reports = [noted(1, job.id), noted(2, job.id)]
    with pytest.raises(Invalid):
        await stores.jobs.apply_reports(NODE, STREAM, reports, fail_late)
    assert stores.jobs.get(job.id) == job
    assert await stores.jobs.apply_reports(NODE, STREAM, reports, count) == 2
    assert applied(stores, job) == [1, 2]


async def test_an_empty_batch_says_how_far_the_stream_is(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    assert await stores.jobs.apply_reports(NODE, STREAM, [], count) == 0
    await stores.jobs.apply_reports(NODE, STREAM, [noted(4, job.id)], count)
    assert await stores.jobs.apply_reports(NODE, STREAM, [], count) == 4


async def test_reports_and_updates_at_once_all_count(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())

    def rename(job: Job) -> Update:
        return Update(job=replace(job, spec=make_spec(name=job.spec.name + "x")))

    await asyncio.gather(
        *(stores.jobs.apply_reports(NODE, f"s{i}", [noted(1, job.id)], count) for i in range(50)),
        *(stores.jobs.update(job.id, rename) for _ in range(50)),
    )
    page = await stores.jobs.search(JobQuery(project_id=PROJECT, names=("train" + "x" * 50,)))
    assert [len(found.node_counts) for found in page.jobs] == [50]
