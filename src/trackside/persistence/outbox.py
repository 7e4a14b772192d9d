"""Knows the operations of the Outbox and of the TopicStore."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import Connection, exists, func, not_, or_, select

from trackside.domain.notice import Notice
from trackside.persistence import schema
from trackside.persistence.codec import check_number, check_text, notice_of_doc
from trackside.persistence.reader import Reader
from trackside.persistence.work import Work
from trackside.persistence.writer import Writer
from trackside.ports import Delivery

_notices = schema.notices.c
_deliveries = schema.deliveries.c
_FRESH = (
    select(_notices.id, _notices.doc)
    .where(not_(exists().where(_deliveries.notice_id == _notices.id)))
    .order_by(_notices.id)
)
_WAITING = (
    select(_notices.id, _notices.doc, _deliveries.topic, _deliveries.tries, _deliveries.due_at_ms)
    .join_from(schema.deliveries, schema.notices)
    .order_by(_notices.id)
)


class SqlTopicStore:
    """Keep topics in a database."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def put(self, name: str, value: Mapping[str, Any]) -> None:
        """Store or replace a topic."""
        doc = msgspec.json.encode(value).decode()
        check_text(name, doc)
        await self._writer.run(lambda work: work.topics.put(name, doc))

    async def topics(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all topics, by name."""

        def read(connection: Connection) -> list[tuple[str, dict[str, Any]]]:
            rows = connection.execute(select(schema.topics).order_by(schema.topics.c.name))
            return [(row.name, msgspec.json.decode(row.doc)) for row in rows]

        return await self._reader.run(read)

    async def delete(self, name: str) -> None:
        """Remove a topic if it is there."""
        await self._writer.run(lambda work: work.topics.put(name, None))


class SqlOutbox:
    """Keep notices and their deliveries in a database."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` in this event loop whenever new notices are durable."""
        loop = asyncio.get_running_loop()

        def noticed() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(wake)

        self._writer.noticed = noticed

    async def fresh(self, *, limit: int) -> list[tuple[int, Notice]]:
        """Return notices that were not addressed yet, oldest first."""
        rows = await self._reader.run(lambda connection: connection.execute(_FRESH.limit(limit)).all())
        return [(row.id, notice_of_doc(row.doc)) for row in rows]

    async def address(self, topics_of: Mapping[int, Collection[str]], *, due_at_ms: int) -> None:
        """Say which topics hear of each notice; one that nobody hears of goes."""
        check_number(due_at_ms)

        def write(work: Work) -> None:
            for notice_id, topics in topics_of.items():
                if not topics:
                    work.notices.put(notice_id, None)
                for topic in topics:
                    work.deliveries.put((notice_id, topic), (0, due_at_ms))

        await self._writer.run(write)

    async def due(
        self, now_ms: int, *, wait_ms_max: int, without: Collection[str], limit: int
    ) -> list[Delivery]:
        """Return what can be sent now, but not to some topics, the oldest notices first."""
        at_ms = _deliveries.due_at_ms
        now = or_(at_ms <= now_ms, at_ms > now_ms + wait_ms_max)
        found = _WAITING.where(now, _deliveries.topic.not_in(without)).limit(limit)
        rows = await self._reader.run(lambda connection: connection.execute(found).all())
        return [
            Delivery(
                notice_id=row.id,
                notice=notice_of_doc(row.doc),
                topic=row.topic,
                tries=row.tries,
                due_at_ms=row.due_at_ms,
            )
            for row in rows
        ]

    async def next_due_ms(self, *, without: Collection[str]) -> int | None:
        """Return when the next delivery is due, but not to some topics; None: nothing waits."""
        first = select(func.min(_deliveries.due_at_ms)).where(_deliveries.topic.not_in(without))
        return await self._reader.run(lambda connection: connection.scalar(first))

    async def failed(self, deliveries: Sequence[Delivery], *, due_at_ms: int) -> None:
        """Count one more try of each, and wait until then with the next."""

        def write(work: Work) -> None:
            for one in deliveries:
                key = one.notice_id, one.topic
                if work.deliveries.get(key) is not None:
                    work.deliveries.put(key, (one.tries + 1, due_at_ms))

        await self._writer.run(write)

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        """Strike deliveries off; a notice goes with its last."""

        def write(work: Work) -> None:
            for one in deliveries:
                work.deliveries.put((one.notice_id, one.topic), None)
            for notice_id in {one.notice_id for one in deliveries}:
                if not any(work.topics_waiting(notice_id)):
                    work.notices.put(notice_id, None)

        await self._writer.run(write)
