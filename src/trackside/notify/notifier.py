"""Knows when who is told: follows the outbox, tries again with patience, and gives up in the open.

Every topic is served by itself, one message after the other, so that one that hangs delays no other. A topic
that does not answer is asked once for everything that waits for it. What was sent is struck off afterwards: a
crash in between sends it again, under the same id.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from trackside.domain.event import Event, Level
from trackside.domain.job import JobId
from trackside.domain.notice import EVENT_NAMES, Notice
from trackside.domain.topic import Topic, Undeliverable
from trackside.domain.wording import counted
from trackside.ports import Clock, Delivery, Outbox

BACKOFF_SECONDS = (10.0, 30.0, 120.0, 440.0)  # after the first try, the second …: five in ten minutes
LOOK_SECONDS = 60.0  # it is looked this often though nobody woke it
RETRY_SECONDS = 1.0  # after a round that failed
FRESH_MAX = 500  # notices addressed at a time
DUE_MAX = 500  # deliveries begun at a time
SOURCE = "notifier"

log = logging.getLogger(__name__)


class Sends(Protocol):
    """Sends a notice to a topic, or raises Undeliverable."""

    async def send(self, topic: Topic, notice: Notice) -> None:
        """Tell a topic."""
        ...


class Notifier:
    """Tells everybody who is to be told."""

    def __init__(
        self,
        outbox: Outbox,
        sender: Sends,
        clock: Clock,
        *,
        topics: Callable[[], Mapping[str, Topic]],
        recipients: Callable[[Notice], Collection[str]],
        tell: Callable[[Sequence[Event]], Awaitable[None]],
        backoff_seconds: Sequence[float] = BACKOFF_SECONDS,
    ) -> None:
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._topics = topics
        self._recipients = recipients
        self._tell = tell
        self._backoff_ms = [round(seconds * 1000) for seconds in backoff_seconds]
        self._wake = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self.sent = 0
        self.given_up = 0

    async def run(self) -> None:
        """Go on for ever; a round that fails is logged and tried again."""
        self._outbox.listen(self._wake.set)
        try:
            while True:
                try:
                    wait_seconds = await self._round()
                except Exception:
                    log.exception("looking for notifications failed; trying again")
                    wait_seconds = RETRY_SECONDS
                # Not wait_for: in Python 3.11 it forgets a cancellation that comes with the wake.
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await self._wake.wait()
        finally:
            for task in self._busy.values():
                task.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _round(self) -> float:
        """Address what is new, begin what is due; return how long nothing will be due."""
        self._wake.clear()
        await self._address()
        while await self._begin() == DUE_MAX:
            continue  # more may be due to topics that are not busy yet
        next_ms = await self._outbox.next_due_ms(without=tuple(self._busy))
        if next_ms is None:
            return LOOK_SECONDS
        return min(max(next_ms - self._clock.now_ms(), 0) / 1000, LOOK_SECONDS)

    async def _address(self) -> None:
        fresh = None
        while fresh is None or len(fresh) == FRESH_MAX:
            fresh = await self._outbox.fresh(limit=FRESH_MAX)
            if fresh:
                topics_of = {number: self._recipients(notice) for number, notice in fresh}
                await self._outbox.address(topics_of, due_at_ms=self._clock.now_ms())

    async def _begin(self) -> int:
        """Begin to serve each topic that something is due to; return how many deliveries that are."""
        due = await self._outbox.due(
            self._clock.now_ms(),
            wait_ms_max=max(self._backoff_ms, default=0),
            without=tuple(self._busy),
            limit=DUE_MAX,
        )
        by_topic: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in due:
            by_topic[delivery.topic].append(delivery)
        for name, deliveries in by_topic.items():
            self._busy[name] = asyncio.create_task(self._serve(name, deliveries))
        return len(due)

    async def _serve(self, name: str, deliveries: Sequence[Delivery]) -> None:
        try:
            await self._send_all(name, deliveries)
        except Exception:
            log.exception("telling the topic %s failed; trying again", name)
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            del self._busy[name]
            self._wake.set()

    async def _send_all(self, name: str, deliveries: Sequence[Delivery]) -> None:
        for position, delivery in enumerate(deliveries):
            topic = self._topics().get(name)
            if topic is None:  # it was removed: nobody wants to be told any more
                await self._outbox.done(deliveries[position:])
                return
            try:
                await self._sender.send(topic, delivery.notice)
            except Undeliverable as error:
                log.warning("topic %s was not told: %s", name, error.detail)
                await self._failed(deliveries[position:] if error.silent else [delivery], error.detail)
                if error.silent:
                    return
            else:
                await self._outbox.done([delivery])
                self.sent += 1

    async def _failed(self, deliveries: Sequence[Delivery], why: str) -> None:
        now_ms = self._clock.now_ms()
        by_tries: dict[int, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            by_tries[delivery.tries].append(delivery)
        for tries, those in by_tries.items():
            if tries < len(self._backoff_ms):
                await self._outbox.failed(those, due_at_ms=now_ms + self._backoff_ms[tries])
            else:
                await self._give_up(those, why, now_ms)

    async def _give_up(self, deliveries: Sequence[Delivery], why: str, now_ms: int) -> None:
        await self._tell([_given_up(delivery, why, now_ms) for delivery in deliveries])
        await self._outbox.done(deliveries)
        self.given_up += len(deliveries)


def _given_up(delivery: Delivery, why: str, now_ms: int) -> Event:
    event = EVENT_NAMES[delivery.notice.kind]
    tries = counted(delivery.tries + 1, "try").replace("trys", "tries")
    return Event(
        job_id=JobId(delivery.notice.job_id),
        at_ms=now_ms,
        message=f"topic {delivery.topic} was not told of {event}; given up after {tries}: {why}",
        level=Level.WARNING,
        source=SOURCE,
    )
