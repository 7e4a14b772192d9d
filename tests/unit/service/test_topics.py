"""Who may have topics, who hears of what, and what a job is warned of."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.notify.making import PROJECT, SECRET, make_notice, make_topic
from trackside.api.modelarts_v2.notification import asked_of
from trackside.clock import SystemClock
from trackside.domain.errors import Exhausted, Forbidden, Invalid, NameTaken, NotFound
from trackside.domain.event import EventKind
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import ProjectId
from trackside.domain.notice import Notice
from trackside.domain.topic import Format, Topic, Undeliverable
from trackside.persistence import Stores, open_stores
from trackside.service import topics as topics_module
from trackside.service.topics import Topics

pytestmark = pytest.mark.anyio
ADMIN = Caller(user="ana", project_id=PROJECT, role=UserRole.ADMIN)
USER = Caller(user="bob", project_id=PROJECT, role=UserRole.USER)
STRANGER = Caller(user="eve", project_id=ProjectId("p2"), role=UserRole.ADMIN)


class Sent:
    """Stands for the way out: what it does is tested with real receivers elsewhere."""

    mails = False

    def __init__(self) -> None:
        self.sent: list[tuple[Topic, Notice, bool]] = []
        self.trouble: Undeliverable | None = None
        self.refused: Invalid | None = None

    async def check(self, topic: Topic) -> None:
        """Refuse what is to be refused."""
        del topic
        if self.refused is not None:
            raise self.refused

    async def send(self, topic: Topic, notice: Notice, *, test: bool = False) -> None:
        """Take down what would be sent."""
        if self.trouble is not None:
            raise self.trouble
        self.sent.append((topic, notice, test))


@pytest.fixture
async def stores(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stores]:
    """Open an empty database."""
    opened = open_stores(f"sqlite:///{tmp_path}/state.db")
    await opened.start()
    yield opened
    opened.close()


def topics_of(stores: Stores, sender: Sent | None = None) -> Topics:
    return Topics(store=stores.topics, clock=SystemClock(), sender=sender or Sent(), asked=asked_of)


def naming(urn: str | None, *events: str) -> Mapping[str, Any]:
    """Return what a v2 job that names a topic has declared."""
    return {"modelarts_v2": {"spec": {"notification": {"topic_urn": urn, "events": list(events)}}}}


async def test_topics_stay_over_a_restart(stores: Stores) -> None:
    topics = topics_of(stores)
    made = make_topic(secret=SECRET, events=frozenset({EventKind.FAILED}), follows_all=True, workspace_id="w")
    await topics.put(ADMIN, made)
    await topics.put(ADMIN, make_topic(name="other", project_id=None))
    await topics.put(ADMIN, make_topic(name="gone"))
    await topics.remove(ADMIN, "gone")
    again = topics_of(stores)
    await again.load()
    assert again.list(ADMIN) == [made, make_topic(name="other", project_id=None)]


async def test_a_topic_that_may_not_be_told_is_not_kept(stores: Stores) -> None:
    sender = Sent()
    sender.refused = Invalid("the webhook's address is refused")
    topics = topics_of(stores, sender)
    with pytest.raises(Invalid, match="refused"):
        await topics.put(ADMIN, make_topic())
    assert topics.list(ADMIN) == []


async def test_projects_do_not_see_each_other(stores: Stores) -> None:
    topics = topics_of(stores)
    await topics.put(ADMIN, make_topic())
    await topics.put(ADMIN, make_topic(name="shared", project_id=None))
    assert [topic.name for topic in topics.list(STRANGER)] == ["shared"]
    with pytest.raises(NameTaken, match="another project"):
        await topics.put(STRANGER, make_topic(project_id=STRANGER.project_id))
    with pytest.raises(NotFound):
        await topics.remove(STRANGER, "ops")
    with pytest.raises(NotFound):
        await topics.test(STRANGER, "ops")
    assert topics.recipients(make_notice(project_id="p2", declared=naming("ops"))) == set()
    assert topics.recipients(make_notice(project_id="p2", declared=naming("shared"))) == {"shared"}


async def test_only_admins_change_what_is_of_the_whole_installation(stores: Stores) -> None:
    topics = topics_of(stores)
    with pytest.raises(Forbidden, match="only an admin"):
        await topics.put(USER, make_topic(project_id=None))
    await topics.put(ADMIN, make_topic(project_id=None))
    with pytest.raises(Forbidden):
        await topics.put(USER, make_topic())
    with pytest.raises(Forbidden):
        await topics.remove(USER, "ops")
    await topics.put(USER, make_topic(name="bobs"))  # whose policy lets them


async def test_a_job_names_who_hears(stores: Stores) -> None:
    topics = topics_of(stores)
    await topics.put(ADMIN, make_topic())
    failed = make_notice(EventKind.FAILED)
    for declared, expected in (
        (naming("ops", "JobFailed"), {"ops"}),
        (naming("urn:smn:r:p:ops", "JobStarted", "JobFailed"), {"ops"}),
        (naming("ops"), {"ops"}),  # no events: all
        (naming("ops", "JobStarted"), set()),
        (naming("nobody", "JobFailed"), set()),
        (naming(None), set()),
        ({}, set()),
        ({"modelarts_v2": None}, set()),
        ({"modelarts_v2": {"spec": None}}, set()),
        ({"pai_dlc": {"spec": {"notification": {"topic_urn": "ops"}}}}, set()),
    ):
        assert topics.recipients(replace(failed, declared=declared)) == expected, declared


async def test_who_follows_all_and_is_named_too_hears_once(stores: Stores) -> None:
    topics = topics_of(stores)
    await topics.put(ADMIN, make_topic(follows_all=True, events=frozenset({EventKind.FAILED})))
    await topics.put(ADMIN, make_topic(name="second", follows_all=True, project_id=None))
    assert sorted(topics.recipients(make_notice(declared=naming("ops")))) == ["ops", "second"]
    assert topics.recipients(make_notice(EventKind.STARTED)) == {"second"}


async def test_a_job_is_warned_of_what_will_not_work(stores: Stores) -> None:
    topics = topics_of(stores)
    await topics.put(ADMIN, make_topic())
    assert topics.doubts(ADMIN, {}) == []
    assert topics.doubts(ADMIN, naming("urn:smn:r:p:ops", "JobFailed")) == []
    (unknown,) = topics.doubts(ADMIN, naming("urn:smn:r:p:alarm", "JobFailed"))
    assert "there is no topic 'alarm' here" in unknown
    assert "trackside notify add" in unknown
    (other,) = topics.doubts(STRANGER, naming("ops"))
    assert "no topic 'ops'" in other
    (strange,) = topics.doubts(ADMIN, naming("ops", "JobFailed", "JobExploded"))
    assert "nobody is told of JobExploded" in strange
    assert "JobFailed, JobTerminated" in strange


async def test_a_test_is_sent_as_one_and_trouble_is_an_answer(stores: Stores) -> None:
    sender = Sent()
    topics = topics_of(stores, sender)
    await topics.put(ADMIN, make_topic())
    assert await topics.test(ADMIN, "ops") is None
    [(topic, notice, test)] = sender.sent
    assert (topic.name, test, notice.owner, notice.project_id) == ("ops", True, "ana", PROJECT)
    sender.trouble = Undeliverable("it answered 500")
    assert await topics.test(ADMIN, "ops") == "it answered 500"


async def test_mail_needs_a_mail_server(stores: Stores) -> None:
    sender = Sent()
    topics = topics_of(stores, sender)
    mailbox = make_topic("ana@example.com", format=Format.EMAIL)
    with pytest.raises(Invalid, match="smtp_url"):
        await topics.put(ADMIN, mailbox)
    sender.mails = True
    await topics.put(ADMIN, mailbox)


async def test_there_is_a_limit(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "TOPICS_MAX", 1)
    topics = topics_of(stores)
    await topics.put(ADMIN, make_topic())
    await topics.put(ADMIN, make_topic(secret=SECRET))
    with pytest.raises(Exhausted):
        await topics.put(ADMIN, make_topic(name="second"))
