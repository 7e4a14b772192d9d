"""Knows the topics there are, who may have them and who hears of what; answers from memory.

A topic belongs to a project, or to the whole installation: then an admin made it. Its address and secret go
in and never come out again.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trackside.domain.errors import Exhausted, Forbidden, Invalid, NameTaken, NotFound
from trackside.domain.event import EventKind
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import ProjectId
from trackside.domain.notice import EVENT_NAMES, KIND_OF_NAME, Notice
from trackside.domain.phase import Phase
from trackside.domain.topic import Format, Topic, Undeliverable, check_topic, topic_name
from trackside.ports import Clock, TopicStore

TOPICS_MAX = 1000
TEST_JOB_NAME = "test"
TEST_JOB_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who a job wants to be told, as its creator wrote it; no events: all."""

    topic: str  # a name or a URN
    events: tuple[str, ...] = ()


class TopicSender(Protocol):
    """Tells a topic at once."""

    @property
    def mails(self) -> bool:
        """Say whether there is a mail server."""
        ...

    async def check(self, topic: Topic) -> None:
        """Raise Invalid if the topic may not be told where it is."""
        ...

    async def send(self, topic: Topic, notice: Notice, *, test: bool = False) -> None:
        """Tell a topic, or raise Undeliverable."""
        ...


class Topics:
    """Keep the topics, and say who hears of a notice."""

    def __init__(
        self,
        *,
        store: TopicStore,
        clock: Clock,
        sender: TopicSender,
        asked: Callable[[Mapping[str, Any]], Asked | None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._sender = sender
        self._asked = asked  # reads what a job's creator said, by dialect
        self._topics: dict[str, Topic] = {}
        self._changing = asyncio.Lock()  # memory changes in the order of the database

    async def load(self) -> None:
        """Read what is stored."""
        self._topics = {name: _decode(name, document) for name, document in await self._store.topics()}

    def all(self) -> Mapping[str, Topic]:
        """Return every topic, by name."""
        return self._topics

    def list(self, caller: Caller) -> Sequence[Topic]:
        """Return the topics that jobs of the caller's project can name, by name."""
        topics = sorted(self._topics.values(), key=lambda topic: topic.name)
        return [topic for topic in topics if topic.open_to(caller.project_id)]

    async def put(self, caller: Caller, topic: Topic) -> Topic:
        """Store or replace a topic."""
        check_topic(topic)
        if topic.format is Format.EMAIL and not self._sender.mails:
            raise Invalid("this server cannot send mail: set smtp_url and smtp_from in its configuration")
        await self._sender.check(topic)
        async with self._changing:
            former = self._topics.get(topic.name)
            if former is not None and not former.open_to(caller.project_id):
                raise NameTaken(f"another project has a topic called {topic.name}: choose another name")
            for one in (topic, former):
                _check_owner(caller, one)
            if former is None and len(self._topics) >= TOPICS_MAX:
                raise Exhausted(f"there are {TOPICS_MAX:,} topics already: remove some first")
            await self._store.put(topic.name, _encode(topic))
            self._topics = {**self._topics, topic.name: topic}
        return topic

    async def remove(self, caller: Caller, name: str) -> None:
        """Remove a topic; what it was not told yet it will not be told."""
        async with self._changing:
            _check_owner(caller, self._find(caller, name))
            await self._store.delete(name)
            self._topics = {other: topic for other, topic in self._topics.items() if other != name}

    async def test(self, caller: Caller, name: str) -> str | None:
        """Tell a topic that this is a test, now and once; return why it did not hear, or None."""
        try:
            await self._sender.send(self._find(caller, name), self._test_notice(caller), test=True)
        except Undeliverable as error:
            return error.detail
        return None

    def recipients(self, notice: Notice) -> Collection[str]:
        """Return the names of the topics that are told of a notice."""
        found = {topic.name for topic in self._topics.values() if topic.follows(notice)}
        asked = self._asked(notice.declared)
        if asked is not None and (not asked.events or EVENT_NAMES[notice.kind] in asked.events):
            topic = self._topics.get(topic_name(asked.topic))
            if topic is not None and topic.open_to(notice.project_id):
                found.add(topic.name)
        return found

    def doubts(self, caller: Caller, declared: Mapping[str, Any]) -> Sequence[str]:
        """Return what will not work of the notification a job asks for, in sentences for its events."""
        asked = self._asked(declared)
        if asked is None:
            return []
        name, found = topic_name(asked.topic), []
        topic = self._topics.get(name)
        if topic is None or not topic.open_to(caller.project_id):
            found.append(
                f"nobody is told of this job: there is no topic {name[:256]!r} here; an admin adds it with:"
                " trackside notify add NAME --url URL"
            )
        strange = sorted(set(asked.events) - KIND_OF_NAME.keys())
        if strange:
            shown = ", ".join(event[:64] for event in strange[:8])
            known = ", ".join(KIND_OF_NAME)
            found.append(f"nobody is told of {shown}: no such events; the events are {known}")
        return found

    def _find(self, caller: Caller, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None or not topic.open_to(caller.project_id):
            raise NotFound(
                f"there is no topic called {name[:256]!r}; trackside notify ls shows those there are"
            )
        return topic

    def _test_notice(self, caller: Caller) -> Notice:
        return Notice(
            id=uuid.uuid4().hex,
            kind=EventKind.COMPLETED,
            at_ms=self._clock.now_ms(),
            message="this is a test",
            job_id=TEST_JOB_ID,
            short_id="",
            job_name=TEST_JOB_NAME,
            project_id=caller.project_id,
            workspace_id="0",
            owner=caller.user,
            phase=Phase.SUCCEEDED,
        )


def _check_owner(caller: Caller, topic: Topic | None) -> None:
    """Raise Forbidden if the topic is the installation's and the caller is no admin."""
    if topic is not None and topic.project_id is None and caller.role is not UserRole.ADMIN:
        raise Forbidden(f"The topic {topic.name} is of the whole installation: only an admin changes it.")


def _encode(topic: Topic) -> dict[str, Any]:
    return {
        "project_id": topic.project_id,
        "format": topic.format.value,
        "address": topic.address,
        "secret": topic.secret,
        "events": sorted(topic.events),
        "follows_all": topic.follows_all,
        "workspace_id": topic.workspace_id,
    }


def _decode(name: str, document: Mapping[str, Any]) -> Topic:
    project_id = document["project_id"]
    return Topic(
        name=name,
        project_id=None if project_id is None else ProjectId(project_id),
        format=Format(document["format"]),
        address=document["address"],
        secret=document["secret"],
        events=frozenset(EventKind(kind) for kind in document["events"]),
        follows_all=document["follows_all"],
        workspace_id=document["workspace_id"],
    )
