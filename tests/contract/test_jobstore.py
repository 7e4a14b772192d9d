"""What every JobStore does, on SQLite and on a real PostgreSQL."""

import asyncio
from dataclasses import replace

import pytest

from tests.unit.persistence.making import (
    OTHER_PROJECT,
    PROJECT,
    changing,
    make_job,
    make_spec,
    make_task,
    making,
)
from trackside.domain.errors import Invalid, JobNotFound, NotFound, Unavailable
from trackside.domain.event import Event, Level
from trackside.domain.job import Ending, Job, JobId, Record, StartType, TaskName, TaskState
from trackside.domain.phase import FINAL, Phase
from trackside.domain.reason import Reason, ReasonCode
from trackside.persistence import Stores, open_stores
from trackside.ports import EventQuery, JobQuery, Update

pytestmark = pytest.mark.anyio
NOBODY = JobId("00000000-0000-0000-0000-000000000000")


async def test_an_inserted_job_is_there_with_its_number_and_events(stores: Stores) -> None:
    first = await stores.jobs.insert(PROJECT, making("submitted"))
    second = await stores.jobs.insert(PROJECT, making())

    assert (first.number, second.number) == (1, 2)
    assert first.revision == 1
    assert stores.jobs.get(first.id) == first
    told = await stores.jobs.events(EventQuery(job_id=first.id))
    assert [event.message for event in told.events] == ["submitted"]


async def test_each_project_counts_for_itself(stores: Stores) -> None:
    await stores.identities.put_project(OTHER_PROJECT, "second")
    numbers = [
        (await stores.jobs.insert(project, making(project_id=project))).number
        for project in (PROJECT, OTHER_PROJECT, PROJECT, PROJECT, OTHER_PROJECT)
    ]
    assert numbers == [1, 1, 2, 3, 2]


async def test_an_unknown_project_takes_no_job(stores: Stores) -> None:
    with pytest.raises(NotFound):
        await stores.jobs.insert(OTHER_PROJECT, making(project_id=OTHER_PROJECT))
    assert await stores.jobs.active() == ()


async def test_an_id_is_not_stored_twice(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    await stores.jobs.update(job.id, changing(phase=Phase.STOPPED))
    with pytest.raises(Invalid):
        await stores.jobs.insert(PROJECT, making(id=job.id))
    assert await stores.jobs.count(PROJECT) == 1
    assert (await stores.jobs.insert(PROJECT, making())).number == 2


async def test_an_id_in_the_database_is_refused_though_memory_forgot_it(
    stores: Stores, database_url: str
) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    await stores.jobs.update(job.id, changing(phase=Phase.STOPPED))
    again = open_stores(database_url)  # a finished job is not loaded
    await again.start()
    try:
        outcomes = await asyncio.gather(
            again.jobs.insert(PROJECT, making()),
            again.jobs.insert(PROJECT, making(id=job.id)),
            again.jobs.insert(PROJECT, making()),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], Invalid)
        assert isinstance(outcomes[0], Job)
        assert isinstance(outcomes[2], Job)
        assert await again.jobs.count(PROJECT) == 3
    finally:
        again.close()


async def test_what_make_raises_comes_out_and_costs_no_number(stores: Stores) -> None:
    def refuse(number: int) -> Update:
        raise Invalid("no")

    with pytest.raises(Invalid, match="no"):
        await stores.jobs.insert(PROJECT, refuse)
    assert (await stores.jobs.insert(PROJECT, making())).number == 1


async def test_an_update_is_stored_and_grows_the_revision(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    started = await stores.jobs.update(job.id, changing(phase=Phase.STARTING, revision=77))
    assert (started.phase, started.revision) == (Phase.STARTING, 2)
    assert stores.jobs.get(job.id) == started


async def test_no_change_changes_nothing(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    assert await stores.jobs.update(job.id, lambda _: None) == job
    assert await stores.jobs.update(job.id, lambda job: Update(job=replace(job))) == job
    assert stores.jobs.get(job.id) == job


async def test_events_without_a_change_are_kept(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    event = Event(job_id=job.id, at_ms=5, message="seen")
    same = await stores.jobs.update(job.id, lambda job: Update(job=job, events=(event,)))
    assert same.revision == 1
    assert (await stores.jobs.events(EventQuery(job_id=job.id))).events == (event,)


async def test_updating_a_job_that_is_gone_is_an_error(stores: Stores) -> None:
    with pytest.raises(JobNotFound):
        await stores.jobs.update(NOBODY, changing(phase=Phase.STOPPED))


async def test_what_a_change_raises_comes_out_and_nothing_is_stored(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())

    def refuse(job: Job) -> Update:
        raise Unavailable("not now")

    with pytest.raises(Unavailable, match="not now"):
        await stores.jobs.update(job.id, refuse)
    assert stores.jobs.get(job.id) == job


async def test_one_failing_change_does_not_harm_its_neighbours(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())

    def count(job: Job) -> Update:
        return Update(job=replace(job, node_counts=(*job.node_counts, (1, 1))))

    def count_and_fail(job: Job) -> Update:
        count(job)
        raise Invalid("no")

    outcomes = await asyncio.gather(
        *(stores.jobs.update(job.id, count_and_fail if i % 3 == 0 else count) for i in range(30)),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, Invalid) for outcome in outcomes) == 10
    stored = stores.jobs.get(job.id)
    assert stored is not None
    assert len(stored.node_counts) == 20


async def test_two_hundred_updates_at_once_all_count(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())

    def count(job: Job) -> Update:
        return Update(job=replace(job, node_counts=(*job.node_counts, (len(job.node_counts), 1))))

    revisions = [
        job.revision for job in await asyncio.gather(*(stores.jobs.update(job.id, count) for _ in range(200)))
    ]
    assert sorted(revisions) == list(range(2, 202))
    stored = stores.jobs.get(job.id)
    assert stored is not None
    assert [at for at, _ in stored.node_counts] == list(range(200))


async def test_writes_that_wait_share_commits(stores: Stores) -> None:
    before = stores.writer.commits
    jobs = await asyncio.gather(*(stores.jobs.insert(PROJECT, making("submitted")) for _ in range(500)))
    assert sorted(job.number for job in jobs) == list(range(1, 501))
    assert stores.writer.commits - before < 50
    assert await stores.jobs.count(PROJECT) == 500


async def test_many_changes_are_one_transaction(stores: Stores) -> None:
    one, two = [await stores.jobs.insert(PROJECT, making()) for _ in range(2)]

    def refuse(job: Job) -> Update:
        raise Invalid("no")

    with pytest.raises(Invalid):
        await stores.jobs.update_many([(one.id, changing(phase=Phase.STARTING)), (two.id, refuse)])
    assert stores.jobs.get(one.id) == one

    await stores.jobs.update_many(
        [
            (one.id, changing(phase=Phase.STARTING)),
            (NOBODY, refuse),
            (two.id, lambda _: None),
            (one.id, changing(phase=Phase.RUNNING)),
        ]
    )
    stored = stores.jobs.get(one.id)
    assert stored is not None
    assert (stored.phase, stored.revision) == (Phase.RUNNING, 3)
    assert stores.jobs.get(two.id) == two


async def test_a_whole_life_reads_back_equal(stores: Stores, database_url: str) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    reason = Reason(text="worker-1 ended", code=ReasonCode.EXIT_CODE, task="worker-1", evidence=("log:3",))
    first_tasks = tuple(make_task(i, state=TaskState.ENDED, exit_code=i) for i in range(12))
    again = tuple(make_task(i, attempt=2) for i in range(12))
    second = Record(number=2, queued_at_ms=9, start_type=StartType.RESTARTED, culprit=TaskName("worker-1"))
    steps = [
        changing(phase=Phase.STARTING, tasks=tuple(make_task(i) for i in range(12))),
        changing(phase=Phase.RUNNING, tasks=first_tasks, started_at_ms=5, node_counts=((5, 12),)),
        lambda job: Update(
            job=replace(
                job,
                records=(replace(job.records[0], ended_at_ms=8, reason=reason), second),
                tasks=again,
                past_tasks=first_tasks,
                phase=Phase.RESTARTING,
            )
        ),
        changing(tasks=again[1:]),  # a task that is dropped leaves no row behind
        changing(ending=Ending(phase=Phase.FAILED, reason=reason, decided_at_ms=11), reason=reason),
        changing(phase=Phase.FAILED, ended_at_ms=12, spec=make_spec(name="renamed", description="new")),
    ]
    for step in steps:
        job = await stores.jobs.update(job.id, step)
        fresh = open_stores(database_url)
        assert fresh.jobs.get(job.id) == job
        fresh.close()


async def test_get_knows_nothing_of_strangers(stores: Stores) -> None:
    assert stores.jobs.get(NOBODY) is None
    assert stores.jobs.get(JobId("nul\x00byte")) is None
    assert stores.jobs.get(JobId("half \ud800 pair")) is None
    assert stores.jobs.get(JobId("")) is None


async def test_active_are_all_that_are_not_final_in_order_of_arrival(
    stores: Stores, database_url: str
) -> None:
    jobs = [await stores.jobs.insert(PROJECT, making(phase=phase)) for phase in Phase]
    expected = [job.id for job in jobs if job.phase not in FINAL]
    assert [job.id for job in await stores.jobs.active()] == expected

    reopened = open_stores(database_url)
    assert [job.id for job in await reopened.jobs.active()] == expected
    reopened.close()

    await stores.jobs.update(expected[0], changing(phase=Phase.STOPPED))
    assert [job.id for job in await stores.jobs.active()] == expected[1:]


async def test_a_deleted_job_is_gone_with_everything_and_its_number_is_not_issued_again(
    stores: Stores, database_url: str
) -> None:
    kept = await stores.jobs.insert(PROJECT, making("kept"))
    job = await stores.jobs.insert(PROJECT, making("told", tasks=(make_task(),)))
    await stores.jobs.delete(job.id)

    assert stores.jobs.get(job.id) is None
    assert await stores.jobs.active() == (kept,)
    assert (await stores.jobs.events(EventQuery(job_id=job.id))).matching == 0
    assert (await stores.jobs.search(JobQuery(project_id=PROJECT))).jobs == (kept,)
    with pytest.raises(JobNotFound):
        await stores.jobs.delete(job.id)
    assert (await stores.jobs.insert(PROJECT, making())).number == 3

    await stores.jobs.delete((await stores.jobs.insert(PROJECT, making())).id)
    reopened = open_stores(database_url)
    await reopened.start()
    assert (await reopened.jobs.insert(PROJECT, making())).number == 5
    reopened.close()


async def test_a_job_inserted_and_deleted_at_once_uses_up_its_number(stores: Stores) -> None:
    make = making()
    job_id = make(0).job.id
    await asyncio.gather(stores.jobs.insert(PROJECT, make), stores.jobs.delete(job_id))
    assert stores.jobs.get(job_id) is None
    assert await stores.jobs.count(PROJECT) == 0
    assert (await stores.jobs.insert(PROJECT, making())).number == 2


async def test_a_job_being_deleted_is_in_no_list_but_still_active(stores: Stores, database_url: str) -> None:
    shown = await stores.jobs.insert(PROJECT, making(spec=make_spec(name="shown")))
    job = await stores.jobs.insert(PROJECT, making(spec=make_spec(name="going")))
    going = await stores.jobs.update(job.id, changing(deleting=True))

    page = await stores.jobs.search(JobQuery(project_id=PROJECT))
    assert (page.jobs, page.matching, page.total) == ((shown,), 1, 1)
    named = await stores.jobs.search(JobQuery(project_id=PROJECT, names_like=("o",)))
    assert (named.jobs, named.matching, named.total) == ((shown,), 1, 1)
    assert await stores.jobs.count(PROJECT) == 1
    assert not await stores.jobs.name_exists(PROJECT, "0", "going")
    assert await stores.jobs.active() == (shown, going)
    assert stores.jobs.get(job.id) == going
    assert await stores.jobs.deleted() == ()

    over = await stores.jobs.update(job.id, changing(phase=Phase.STOPPED))
    assert await stores.jobs.active() == (shown,)
    assert await stores.jobs.deleted() == (over,)
    assert stores.jobs.get(job.id) == over
    reopened = open_stores(database_url)
    assert await reopened.jobs.deleted() == (over,)
    reopened.close()

    await stores.jobs.delete(job.id)
    assert await stores.jobs.deleted() == ()
    assert await stores.jobs.count(PROJECT) == 1


async def test_names_exist_within_project_and_workspace(stores: Stores) -> None:
    await stores.jobs.insert(PROJECT, making(spec=make_spec(name="bert", workspace_id="w")))
    assert await stores.jobs.name_exists(PROJECT, "w", "bert")
    assert not await stores.jobs.name_exists(PROJECT, "0", "bert")
    assert not await stores.jobs.name_exists(OTHER_PROJECT, "w", "bert")
    assert not await stores.jobs.name_exists(PROJECT, "w", "BERT")


@pytest.mark.parametrize(
    "bad",
    [
        {"owner": "a\x00b"},
        {"owner": "half \ud800 pair"},
        {"spec": make_spec(name="a\x00b")},
        {"spec": make_spec(environments={"KEY": "a\x00b"})},
        {"spec": make_spec(declared={"x": ["half \udfff pair"]})},
        {"created_at_ms": 2**63},
        {"spec": make_spec(priority=2**70)},
        {"spec": make_spec(grace_seconds=float("nan"))},
        {"spec": make_spec(declared={"x": object()})},
    ],
)
async def test_what_cannot_be_stored_is_invalid_and_harms_nobody(
    stores: Stores, bad: dict[str, object]
) -> None:
    outcomes = await asyncio.gather(
        stores.jobs.insert(PROJECT, making()),
        stores.jobs.insert(PROJECT, making(**bad)),
        stores.jobs.insert(PROJECT, making()),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Job, Invalid, Job]
    assert await stores.jobs.count(PROJECT) == 2
    assert len(await stores.jobs.active()) == 2


async def test_a_backslash_before_u0000_is_not_a_nul(stores: Stores, database_url: str) -> None:
    spec = make_spec(environments={"PATTERN": r"\u0000"}, declared={"x": [r"\\u0000", None, 1.5, 10**25]})
    job = await stores.jobs.insert(PROJECT, making(spec=spec))
    reopened = open_stores(database_url)
    assert reopened.jobs.get(job.id) == job
    reopened.close()


async def test_bad_text_in_questions_is_invalid(stores: Stores) -> None:
    with pytest.raises(Invalid):
        await stores.jobs.search(JobQuery(project_id=PROJECT, names_like=("a\x00",)))
    with pytest.raises(Invalid):
        await stores.jobs.events(EventQuery(job_id=NOBODY, contains="\ud800"))
    with pytest.raises(Invalid):
        await stores.jobs.name_exists(PROJECT, "0", "a\x00")
    with pytest.raises(Invalid):
        await stores.jobs.update(JobId("a\x00"), lambda _: None)
    with pytest.raises(Invalid):
        await stores.jobs.add_events(
            [Event(job_id=(await stores.jobs.insert(PROJECT, making())).id, at_ms=1, message="\x00")]
        )


async def test_events_are_filtered_ordered_paged_and_counted(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    other = await stores.jobs.insert(PROJECT, making("of another"))
    events = [
        Event(job_id=job.id, at_ms=10, message="Queued 100%", level=Level.INFO),
        Event(job_id=job.id, at_ms=20, message="Läuft", level=Level.WARNING, task="worker-0", attempt=1),
        Event(
            job_id=job.id, at_ms=20, message="started worker_1", task="worker-1", attempt=1, source="agent"
        ),
        Event(job_id=job.id, at_ms=40, message="failed", level=Level.ERROR, task="worker-1"),
    ]
    await stores.jobs.add_events([events[3], *events[:3]])

    async def ask(**filters: object) -> tuple[list[int], int]:
        page = await stores.jobs.events(EventQuery(job_id=job.id, **filters))  # type: ignore[arg-type]
        return [events.index(event) for event in page.events], page.matching

    assert await ask() == ([0, 1, 2, 3], 4)
    assert await ask(descending=True) == ([3, 2, 1, 0], 4)
    assert await ask(offset=1, limit=2) == ([1, 2], 4)
    assert await ask(limit=0) == ([], 4)
    assert await ask(levels=("Warning", "Error")) == ([1, 3], 2)
    assert await ask(contains="LÄUFT") == ([1], 1)
    assert await ask(contains="100%") == ([0], 1)
    assert await ask(contains="%") == ([0], 1)
    assert await ask(contains="_") == ([2], 1)
    assert await ask(contains="nothing") == ([], 0)
    assert await ask(from_ms=20, to_ms=20) == ([1, 2], 2)
    assert await ask(from_ms=21) == ([3], 1)
    assert await ask(task="worker-1") == ([2, 3], 2)
    assert (await stores.jobs.events(EventQuery(job_id=other.id))).matching == 1


async def test_events_of_a_job_that_is_gone_are_dropped(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    gone = Event(job_id=NOBODY, at_ms=1, message="late")
    kept = Event(job_id=job.id, at_ms=1, message="kept")
    await stores.jobs.add_events([gone, kept])
    assert (await stores.jobs.events(EventQuery(job_id=NOBODY))).matching == 0
    assert (await stores.jobs.events(EventQuery(job_id=job.id))).events == (kept,)


async def test_a_second_process_is_noticed_and_no_change_is_lost(stores: Stores, database_url: str) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    other = open_stores(database_url)
    await other.start()
    try:

        def count(job: Job) -> Update:
            return Update(job=replace(job, node_counts=(*job.node_counts, (1, 1))))

        for _ in range(3):
            await stores.jobs.update(job.id, count)
            last = await other.jobs.update(job.id, count)
        assert len(last.node_counts) == 6
        numbers = [
            (await each.jobs.insert(PROJECT, making())).number for each in (stores, other, stores, other)
        ]
        assert numbers == [2, 3, 4, 5]
        await other.jobs.delete(job.id)
        with pytest.raises(JobNotFound):
            await stores.jobs.update(job.id, count)
        assert stores.jobs.get(job.id) is None
    finally:
        other.close()


async def test_what_waited_for_a_start_that_never_came_is_done_at_the_close(database_url: str) -> None:
    stores = open_stores(database_url)
    waiting = asyncio.create_task(stores.identities.put_project(PROJECT, "x"))
    await asyncio.sleep(0)  # let it queue
    stores.close()
    await waiting
    again = open_stores(database_url)
    await again.start()
    try:
        assert await again.identities.projects() == ((PROJECT, "x"),)
    finally:
        again.close()


async def test_a_closed_store_says_so(database_url: str) -> None:
    stores = open_stores(database_url)
    await stores.start()
    stores.close()
    stores.close()
    with pytest.raises(Unavailable, match="closed"):
        await stores.identities.put_project(PROJECT, "x")


async def test_jobs_made_elsewhere_equal_those_stored(stores: Stores) -> None:
    job = make_job(1)
    assert await stores.jobs.insert(PROJECT, lambda number: Update(job=job)) == replace(job, revision=1)
