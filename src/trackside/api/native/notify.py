"""Knows the rows of Trackside's own API about notifications: who is told of jobs, and of which turns."""

from typing import Annotated

import msgspec
from msgspec import Meta

from trackside.api.native import PREFIX
from trackside.api.operation import Call, Operation
from trackside.domain.errors import Invalid
from trackside.domain.event import EventKind
from trackside.domain.notice import EVENT_NAMES, KIND_OF_NAME
from trackside.domain.topic import Format, Topic


class TopicBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to store: a webhook's address, or an e-mail address."""

    url: str | None = None
    email: str | None = None
    format: Format = Format.JSON  # of a webhook
    secret: str | None = None  # signs messages; what is stored is never shown again
    events: Annotated[list[str], Meta(max_length=len(EVENT_NAMES))] | None = None  # null: all
    follows_all: bool = False  # told of all jobs, not only of those that name it
    workspace_id: str | None = None  # of all those, only the jobs of this workspace
    all_projects: bool = False  # of the whole installation; admins only


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, without what is secret of it."""

    name: str
    format: Format
    address: str  # of a webhook only scheme://host/…
    signed: bool
    events: list[str]
    follows_all: bool
    workspace_id: str | None
    all_projects: bool


class TopicList(msgspec.Struct, frozen=True, kw_only=True):
    """The topics that jobs of the caller's project can name."""

    topics: list[TopicView]


class TestOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a topic heard a test message."""

    name: str
    delivered: bool
    why: str | None


async def list_topics(call: Call) -> TopicList:
    """List the topics."""
    return TopicList(topics=[_view(topic) for topic in call.services.topics.list(call.caller)])


async def put_topic(call: Call) -> TopicView:
    """Store or replace a topic."""
    body: TopicBody = call.body
    if (body.url is None) == (body.email is None):
        raise Invalid("a topic has a url or an email")
    if body.email is not None and body.format not in (Format.JSON, Format.EMAIL):
        raise Invalid("an e-mail has no format")
    if body.url is not None and body.format is Format.EMAIL:
        raise Invalid("the format email is for an email, not for a url")
    topic = Topic(
        name=call.path["name"],
        project_id=None if body.all_projects else call.caller.project_id,
        format=body.format if body.email is None else Format.EMAIL,
        address=body.url or body.email or "",
        secret=body.secret,
        events=frozenset(EventKind) if body.events is None else frozenset(map(_kind, body.events)),
        follows_all=body.follows_all,
        workspace_id=body.workspace_id,
    )
    return _view(await call.services.topics.put(call.caller, topic))


async def remove_topic(call: Call) -> None:
    """Remove a topic."""
    await call.services.topics.remove(call.caller, call.path["name"])


async def test_topic(call: Call) -> TestOutcome:
    """Send a test message."""
    name = call.path["name"]
    why = await call.services.topics.test(call.caller, name)
    return TestOutcome(name=name, delivered=why is None, why=why)


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="ListTopics",
        method="GET",
        path=f"{PREFIX}/topics",
        action="trackside:topic:list",
        handler=list_topics,
        summary="List who can be told of jobs; addresses of webhooks are not shown in full",
        response=TopicList,
    ),
    Operation(
        name="PutTopic",
        method="PUT",
        path=f"{PREFIX}/topics/{{name}}",
        action="trackside:topic:update",
        handler=put_topic,
        summary="Store or replace a topic: a webhook or an e-mail address, and what it is told",
        body=TopicBody,
        response=TopicView,
    ),
    Operation(
        name="RemoveTopic",
        method="DELETE",
        path=f"{PREFIX}/topics/{{name}}",
        action="trackside:topic:delete",
        handler=remove_topic,
        summary="Remove a topic; what it was not told yet it will not be told",
    ),
    Operation(
        name="TestTopic",
        method="POST",
        path=f"{PREFIX}/topics/{{name}}/test",
        action="trackside:topic:test",
        handler=test_topic,
        summary="Send a test message to a topic and say whether it was heard",
        response=TestOutcome,
    ),
)


def _kind(name: str) -> EventKind:
    kind = KIND_OF_NAME.get(name)
    if kind is None:
        raise Invalid(f"events must be of {', '.join(KIND_OF_NAME)}, not {name[:64]!r}")
    return kind


def _view(topic: Topic) -> TopicView:
    return TopicView(
        name=topic.name,
        format=topic.format,
        address=topic.shown,
        signed=topic.secret is not None,
        events=[name for kind, name in EVENT_NAMES.items() if kind in topic.events],
        follows_all=topic.follows_all,
        workspace_id=topic.workspace_id,
        all_projects=topic.project_id is None,
    )
