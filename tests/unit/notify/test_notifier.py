"""The notifier on a real database, with real receivers that fail, hang, are down and come back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.servers.receiver import Received, Receiver, Reply
from tests.unit.notify.making import PROJECT, make_topic
from tests.unit.persistence.making import making
from trackside.clock import SystemClock
from trackside.domain.event import Event, EventKind, Level
from trackside.domain.job import Job
from trackside.domain.phase import Phase
from trackside.domain.topic import Format, Topic
from trackside.notify.notifier import BACKOFF_SECONDS, Notifier
from trackside.notify.route import Route
from trackside.notify.sender import Sender
from trackside.persistence import Stores, open_stores
from trackside.ports import EventQuery, Update

pytestmark = pytest.mark.anyio
WAIT_SECONDS = 60.0
QUICKLY = (0.05, 0.05, 0.05, 0.05)


@pytest.fixture
async def stores(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stores]:
    """Open a database with one project."""
    opened = open_stores(f"sqlite:///{tmp_path}/state.db")
    await opened.start()
    await opened.identities.put_project(PROJECT, "first")
    yield opened
    opened.close()


@asynccontextmanager
async def running(
    stores: Stores, *topics: Topic, backoff: tuple[float, ...] = QUICKLY, timeout_seconds: float = 10.0
) -> AsyncIterator[Notifier]:
    """Run a notifier that tells every topic of everything."""
    known = {topic.name: topic for topic in topics}
    clock = SystemClock()
    notifier = Notifier(
        stores.outbox,
        Sender(
            clock=clock,
            link=lambda job: f"http://x/{job}",
            mailer=None,
            route=Route(),
            timeout_seconds=timeout_seconds,
        ),
        clock,
        topics=lambda: known,
        recipients=lambda notice: known,
        tell=stores.jobs.add_events,
        backoff_seconds=backoff,
    )
    task = asyncio.create_task(notifier.run())
    try:
        yield notifier
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def turn(stores: Stores, job: Job, kind: EventKind, phase: Phase = Phase.RUNNING) -> None:
    event = Event(job_id=job.id, at_ms=5, message=f"it {kind}", kind=kind)
    await stores.jobs.update(job.id, lambda old: Update(job=replace(old, phase=phase), events=(event,)))


async def new_job(stores: Stores) -> Job:
    return await stores.jobs.insert(PROJECT, making())


async def heard(receiver: Receiver) -> Received:
    return await asyncio.to_thread(receiver.get)


async def eventually(look: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not look():
            await asyncio.sleep(0.01)


async def all_done(stores: Stores) -> None:
    """Wait until nothing is left to send."""
    async with asyncio.timeout(WAIT_SECONDS):
        # In this order: what is not fresh any more is addressed, and then it waits until it is done.
        while await stores.outbox.fresh(limit=1) or await stores.outbox.next_due_ms(without=()) is not None:
            await asyncio.sleep(0.01)


async def told(stores: Stores, job: Job) -> list[Event]:
    events = (await stores.jobs.events(EventQuery(job_id=job.id))).events
    return [event for event in events if event.source == "notifier"]


async def test_turns_arrive_in_order_and_nothing_is_left(stores: Stores) -> None:
    job = await new_job(stores)
    with Receiver() as receiver:
        async with running(stores, make_topic(receiver.url)) as notifier:
            for kind in (EventKind.STARTED, EventKind.HANGED, EventKind.FAILED):
                await turn(stores, job, kind)
            got = [(await heard(receiver)).content for _ in range(3)]
            await eventually(lambda: notifier.sent == 3)
            await all_done(stores)
    assert [one["event"] for one in got] == ["JobStarted", "JobHanged", "JobFailed"]
    assert {one["job"]["id"] for one in got} == {job.id}
    assert await told(stores, job) == []


async def test_what_happened_while_nobody_ran_is_sent_at_the_start(stores: Stores) -> None:
    job = await new_job(stores)
    await turn(stores, job, EventKind.STOPPED, Phase.STOPPED)
    await stores.jobs.delete(job.id)
    with Receiver() as receiver:
        async with running(stores, make_topic(receiver.url)):
            got = (await heard(receiver)).content
    assert (got["event"], got["job"]["id"], got["job"]["phase"]) == ("JobTerminated", job.id, "stopped")


async def test_a_crash_between_sending_and_striking_off_sends_the_same_again(stores: Stores) -> None:
    job = await new_job(stores)
    await turn(stores, job, EventKind.STARTED)
    with Receiver(Reply(hang=True)) as receiver:
        async with running(stores, make_topic(receiver.url)):
            first = await heard(receiver)
        async with running(stores, make_topic(receiver.url)):
            second = await heard(receiver)
            await all_done(stores)
    assert first.content["id"] == second.content["id"]
    assert first.headers["x-trackside-delivery"] == second.headers["x-trackside-delivery"]


async def test_a_receiver_that_refuses_is_tried_again_with_the_same_id(stores: Stores) -> None:
    job = await new_job(stores)
    with Receiver(Reply(status=500), Reply(status=302), Reply(raw=b""), Reply(status=429)) as receiver:
        async with running(stores, make_topic(receiver.url)):
            await turn(stores, job, EventKind.STARTED)
            got = [await heard(receiver) for _ in range(5)]
            await all_done(stores)
    assert len({one.content["id"] for one in got}) == 1
    assert await told(stores, job) == []


async def test_giving_up_is_told_without_the_address(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    job = await new_job(stores)
    said = b'{"errcode": 93000, "errmsg": "no robot very-secret-key at /hook/very-secret-path?key=x"}'
    with Receiver(choose=lambda _: Reply(body=said)) as receiver, caplog.at_level(logging.DEBUG):
        topic = make_topic(receiver.url, format=Format.WECOM)
        async with running(stores, topic) as notifier:
            await turn(stores, job, EventKind.FAILED, Phase.FAILED)
            await eventually(lambda: notifier.given_up)
            assert receiver.got.qsize() == 5
            assert (notifier.sent, notifier.given_up) == (0, 1)
    (event,) = await told(stores, job)
    assert event.level is Level.WARNING
    assert event.message.startswith(
        "topic ops was not told of JobFailed; given up after 5 tries: it refused with code 93000: no robot …"
    )
    assert event.kind is None
    assert "very-secret" not in event.message + caplog.text
    assert "ops was not told" in caplog.text


async def test_a_receiver_that_comes_back_gets_everything(stores: Stores) -> None:
    job = await new_job(stores)
    receiver = Receiver()
    receiver.stop()
    patient = (0.2,) * 100
    with receiver:
        async with running(stores, make_topic(receiver.url), backoff=patient):
            for kind in (EventKind.STARTED, EventKind.RESTARTED, EventKind.COMPLETED):
                await turn(stores, job, kind)
            await eventually_failed(stores)
            receiver.start()
            got = [(await heard(receiver)).content["event"] for _ in range(3)]
            await all_done(stores)
    assert sorted(got) == ["JobCompleted", "JobRestarted", "JobStarted"]


async def eventually_failed(stores: Stores) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            waiting = await stores.outbox.due(2**62, wait_ms_max=1, without=(), limit=10)
            if waiting and all(one.tries for one in waiting):
                return
            await asyncio.sleep(0.01)


async def test_one_that_is_down_is_asked_once_for_all_that_waits(stores: Stores) -> None:
    job = await new_job(stores)
    for _ in range(20):
        await turn(stores, job, EventKind.RESTARTED)
    with Receiver(choose=lambda _: Reply(raw=b"")) as receiver:
        async with running(stores, make_topic(receiver.url), backoff=(0.05,)) as notifier:
            await eventually(lambda: notifier.given_up == 20)
            assert receiver.got.qsize() == 2
    assert len(await told(stores, job)) == 20


async def test_one_message_that_is_refused_does_not_hold_up_the_next(stores: Stores) -> None:
    def choose(received: Received) -> Reply:
        return Reply(status=500 if received.content["event"] == "JobStarted" else 200)

    job = await new_job(stores)
    with Receiver(choose=choose) as receiver:
        async with running(stores, make_topic(receiver.url), backoff=(3600.0,)) as notifier:
            await turn(stores, job, EventKind.STARTED)
            await turn(stores, job, EventKind.COMPLETED)
            got = [(await heard(receiver)).content["event"] for _ in range(2)]
            await eventually(lambda: notifier.sent == 1)
    assert got == ["JobStarted", "JobCompleted"]
    (left,) = await stores.outbox.due(2**62, wait_ms_max=1, without=(), limit=10)
    assert (left.notice.kind, left.tries) == (EventKind.STARTED, 1)


async def test_many_that_hang_delay_nobody(stores: Stores) -> None:
    job = await new_job(stores)
    hanging = Receiver(choose=lambda _: Reply(hang=True))
    with hanging, Receiver() as good:
        bad = [make_topic(hanging.url, name=f"bad-{number}") for number in range(50)]
        topics = (*bad, make_topic(good.url, name="z-good"))
        async with running(stores, *topics, timeout_seconds=600.0) as notifier:
            for _ in range(20):
                await turn(stores, job, EventKind.RESTARTED)
            got = [(await heard(good)).content["event"] for _ in range(20)]
            await eventually(lambda: notifier.sent == 20)
            assert notifier.given_up == 0, "those that hang are still waited for"
    assert got == ["JobRestarted"] * 20


async def test_a_topic_that_was_removed_is_told_nothing(stores: Stores) -> None:
    job = await new_job(stores)
    await turn(stores, job, EventKind.STARTED)
    [(number, _)] = await stores.outbox.fresh(limit=1)
    await stores.outbox.address({number: ["gone"]}, due_at_ms=0)
    async with running(stores):
        await all_done(stores)
    assert await told(stores, job) == []


async def test_nobody_to_tell_leaves_nothing(stores: Stores) -> None:
    job = await new_job(stores)
    await turn(stores, job, EventKind.STARTED)
    assert len(await stores.outbox.fresh(limit=2)) == 1
    async with running(stores) as notifier:
        await all_done(stores)
        assert (notifier.sent, notifier.given_up) == (0, 0)
    assert await stores.outbox.fresh(limit=1) == []
    assert await told(stores, job) == []


async def test_mail_without_a_server_is_given_up_with_a_reason(stores: Stores) -> None:
    job = await new_job(stores)
    topic = make_topic("ana@example.com", format=Format.EMAIL)
    async with running(stores, topic, backoff=()):
        await turn(stores, job, EventKind.STARTED)
        await all_done(stores)
    (event,) = await told(stores, job)
    assert event.message.endswith("given up after 1 try: the server has no smtp_url: mail cannot be sent")


def test_five_tries_take_about_ten_minutes() -> None:
    assert (len(BACKOFF_SECONDS) + 1, sum(BACKOFF_SECONDS)) == (5, 600)
