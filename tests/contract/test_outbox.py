"""The contract of the outbox and of the topic store, on every database."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from alembic import command
from sqlalchemy import Connection, Engine, MetaData, Table, Text, create_engine, insert, text

from tests.unit.persistence.making import PROJECT, making
from trackside.domain.errors import Invalid
from trackside.domain.event import Event, EventKind
from trackside.domain.job import Job
from trackside.domain.phase import Phase
from trackside.domain.reason import Reason, ReasonCode
from trackside.persistence import Stores, open_stores
from trackside.persistence.migrate import _config
from trackside.ports import Delivery, EventQuery, Update

pytestmark = pytest.mark.anyio


async def turn(stores: Stores, job: Job, kind: EventKind, *, at_ms: int = 5, **changes: object) -> Job:
    """Change the job and tell of it in the same write."""
    event = Event(job_id=job.id, at_ms=at_ms, message=f"it {kind}", kind=kind)
    return await stores.jobs.update(
        job.id,
        lambda old: Update(job=replace(old, **changes), events=(event,)),  # type: ignore[arg-type]
    )


async def waiting(stores: Stores, *, limit: int = 10) -> list[Delivery]:
    """Return every delivery that is not done."""
    return await stores.outbox.due(1_000, wait_ms_max=1_000, without=(), limit=limit)


async def test_an_event_keeps_its_kind(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making("submitted"))
    await turn(stores, job, EventKind.HANGED)
    told = (await stores.jobs.events(EventQuery(job_id=job.id))).events
    assert [event.kind for event in told] == [EventKind.HANGED, None]


async def test_a_turn_is_noticed_with_the_change_and_nothing_else_is(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making("submitted", short_id="abc"))
    reason = Reason(text="worker-0 exited", code=ReasonCode.EXIT_CODE, task="worker-0", hint="look")
    await turn(stores, job, EventKind.FAILED, phase=Phase.FAILED, reason=reason)
    await stores.jobs.add_events([Event(job_id=job.id, at_ms=6, message="by the way")])

    [(_, notice)] = await stores.outbox.fresh(limit=10)
    assert (notice.kind, notice.phase, notice.at_ms) == (EventKind.FAILED, Phase.FAILED, 5)
    assert (notice.job_id, notice.short_id, notice.job_name) == (job.id, "abc", "train")
    assert (notice.project_id, notice.owner, notice.workspace_id) == (PROJECT, "ann", "0")
    assert (notice.reason, notice.culprit, notice.attempt) == (reason, "worker-0", 1)
    assert len(notice.id) == 32


async def test_each_turn_of_one_batch_shows_the_job_as_it_was_then(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    await asyncio.gather(
        turn(stores, job, EventKind.STARTED, phase=Phase.RUNNING),
        turn(stores, job, EventKind.COMPLETED, phase=Phase.SUCCEEDED),
    )
    found = await stores.outbox.fresh(limit=10)
    assert [(notice.kind, notice.phase) for _, notice in found] == [
        (EventKind.STARTED, Phase.RUNNING),
        (EventKind.COMPLETED, Phase.SUCCEEDED),
    ]
    assert len({notice.id for _, notice in found}) == 2


async def test_a_change_that_is_refused_is_not_noticed(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())

    async def refused() -> None:
        with pytest.raises(Invalid):
            await turn(stores, job, EventKind.FAILED, owner="a\x00b")

    await asyncio.gather(turn(stores, job, EventKind.STARTED, phase=Phase.RUNNING), refused())
    assert [notice.kind for _, notice in await stores.outbox.fresh(limit=10)] == [EventKind.STARTED]


async def test_a_notice_outlives_its_job_and_a_restart(database_url: str) -> None:
    stores = open_stores(database_url)
    await stores.start()
    await stores.identities.put_project(PROJECT, "first")
    job = await stores.jobs.insert(PROJECT, making())
    await turn(stores, job, EventKind.STOPPED, phase=Phase.STOPPED)
    await stores.jobs.delete(job.id)
    [(_, before)] = await stores.outbox.fresh(limit=10)
    stores.close()

    stores = open_stores(database_url)
    await stores.start()
    [(number, after)] = await stores.outbox.fresh(limit=10)
    assert after == before
    await stores.outbox.address({number: ["ops"]}, due_at_ms=7)
    stores.close()

    stores = open_stores(database_url)
    assert await stores.outbox.fresh(limit=10) == []
    [delivery] = await waiting(stores)
    assert (delivery.notice, delivery.topic, delivery.tries, delivery.due_at_ms) == (before, "ops", 0, 7)
    stores.close()


async def test_a_notice_goes_with_its_last_delivery(stores: Stores, database_url: str) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    for kind in (EventKind.STARTED, EventKind.COMPLETED):
        await turn(stores, job, kind)
    first, second = [number for number, _ in await stores.outbox.fresh(limit=10)]
    await stores.outbox.address({first: ["a", "b"], second: []}, due_at_ms=7)
    a, b = sorted(await waiting(stores), key=lambda one: one.topic)
    assert (a.notice_id, b.notice_id, a.notice.kind) == (first, first, EventKind.STARTED)

    await stores.outbox.failed([a], due_at_ms=99)
    await stores.outbox.done([b])
    [left] = await waiting(stores)
    assert (left.topic, left.tries, left.due_at_ms) == ("a", 1, 99)
    assert await stores.outbox.fresh(limit=10) == []
    await stores.outbox.done([left])
    await stores.outbox.done([left])  # twice is harmless
    assert await waiting(stores) == []

    engine = create_engine(database_url)
    with engine.connect() as connection:
        for table in ("notices", "deliveries"):
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 0
    engine.dispose()


async def test_only_what_is_due_is_given_and_not_to_busy_topics(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    await turn(stores, job, EventKind.STARTED)
    [(number, _)] = await stores.outbox.fresh(limit=10)
    await stores.outbox.address({number: ["now", "later", "busy"]}, due_at_ms=100)
    [later] = [one for one in await waiting(stores) if one.topic == "later"]
    await stores.outbox.failed([later], due_at_ms=700)

    async def due(now_ms: int) -> list[str]:
        found = await stores.outbox.due(now_ms, wait_ms_max=1_000, without=["busy"], limit=10)
        return sorted(one.topic for one in found)

    assert await due(99) == []
    assert await due(100) == ["now"]
    assert await due(700) == ["later", "now"]
    assert await due(-500) == ["later"]  # no wait is that long: the clock was set back
    assert await stores.outbox.next_due_ms(without=["busy"]) == 100
    assert await stores.outbox.next_due_ms(without=["busy", "now"]) == 700
    assert await stores.outbox.next_due_ms(without=["busy", "now", "later"]) is None


async def test_both_last_deliveries_at_once_leave_nothing(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    await turn(stores, job, EventKind.STARTED)
    [(number, _)] = await stores.outbox.fresh(limit=10)
    await stores.outbox.address({number: ["a", "b"]}, due_at_ms=7)
    both = await waiting(stores)
    await asyncio.gather(*(stores.outbox.done([one]) for one in both))
    assert await stores.outbox.fresh(limit=10) == []
    assert await waiting(stores) == []


async def test_reads_are_limited_and_begin_with_the_oldest(stores: Stores) -> None:
    job = await stores.jobs.insert(PROJECT, making())
    for kind in (EventKind.STARTED, EventKind.RESTARTED, EventKind.FAILED):
        await turn(stores, job, kind)
    found = await stores.outbox.fresh(limit=2)
    assert [notice.kind for _, notice in found] == [EventKind.STARTED, EventKind.RESTARTED]
    await stores.outbox.address({number: ["a"] for number, _ in found}, due_at_ms=7)
    assert [one.notice.kind for one in await waiting(stores, limit=1)] == [EventKind.STARTED]
    assert [notice.kind for _, notice in await stores.outbox.fresh(limit=2)] == [EventKind.FAILED]


async def test_a_listener_is_woken_by_a_turn_and_not_by_another_event(stores: Stores) -> None:
    woken: asyncio.Queue[None] = asyncio.Queue()
    stores.outbox.listen(lambda: woken.put_nowait(None))
    job = await stores.jobs.insert(PROJECT, making("submitted"))
    await stores.jobs.add_events([Event(job_id=job.id, at_ms=6, message="by the way")])
    assert woken.empty()
    await turn(stores, job, EventKind.STARTED)
    async with asyncio.timeout(30):
        await woken.get()


async def test_topics_are_kept_replaced_and_removed(stores: Stores) -> None:
    await stores.topics.put("ops", {"url": "https://a.example/x"})
    await stores.topics.put("all", {"email": "a@b"})
    await stores.topics.put("ops", {"url": "https://b.example/x"})
    assert await stores.topics.topics() == [
        ("all", {"email": "a@b"}),
        ("ops", {"url": "https://b.example/x"}),
    ]
    await stores.topics.delete("all")
    await stores.topics.delete("nobody")
    assert [name for name, _ in await stores.topics.topics()] == ["ops"]
    with pytest.raises(Invalid):
        await stores.topics.put("a\x00b", {})


def test_a_database_from_before_has_events_without_a_kind(database_url: str) -> None:
    engine = create_engine(database_url)
    with closing_engine(engine) as connection:
        command.upgrade(_config(connection), "0003")
        connection.execute(text("INSERT INTO projects VALUES ('p1', 'first', 2, '{}')"))
        jobs = Table("jobs", MetaData(), autoload_with=connection)
        values = {column.name: "x" if isinstance(column.type, Text) else 1 for column in jobs.columns}
        connection.execute(insert(jobs), values | {"id": "j1", "project_id": "p1", "deleting": False})
        columns = "job_id, at_ms, level, source, message, message_folded"
        connection.execute(text(f"INSERT INTO events ({columns}) VALUES ('j1', 1, 'Info', 's', 'm', 'm')"))
        command.upgrade(_config(connection), "0004")
        assert connection.execute(text("SELECT kind FROM events")).scalars().all() == [None]
        assert connection.execute(text("SELECT count(*) FROM notices")).scalar() == 0


@contextmanager
def closing_engine(engine: Engine) -> Iterator[Connection]:
    """Begin a transaction; nothing is left open, whatever happens."""
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()
