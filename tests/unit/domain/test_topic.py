"""What a topic may be, what of it is shown, and what it follows."""

from dataclasses import replace

import pytest

from tests.unit.notify.making import SECRET, make_notice, make_topic
from trackside.domain.errors import Invalid
from trackside.domain.event import EventKind
from trackside.domain.topic import Format, check_topic, topic_name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("ops", "ops"),
        ("urn:smn:cn-north-4:0123456789abcdef:ops", "ops"),
        (" urn:smn:x: ops ", "ops"),
        ("urn:smn:x:", ""),
    ],
)
def test_a_topic_is_named_by_its_name_or_by_a_urn(given: str, name: str) -> None:
    assert topic_name(given) == name


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://hooks.example.com/services/T0/B0/very-secret", "https://hooks.example.com/…"),
        ("http://ana:very-secret@10.0.0.7:9000/x?key=very-secret", "http://10.0.0.7:9000/…"),
        ("http://[::1]:8080/very-secret", "http://[::1]:8080/…"),
    ],
)
def test_an_address_is_not_shown_in_full(address: str, shown: str) -> None:
    topic = make_topic(address, secret="very-secret")
    check_topic(topic)
    assert topic.shown == shown
    assert "very-secret" not in repr(topic)


def test_a_mailbox_is_shown() -> None:
    assert make_topic("ana@example.com", format=Format.EMAIL).shown == "ana@example.com"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "very-secret",
        "ftp://host/very-secret",
        "https:///very-secret",
        "https://host:port/very-secret",
        "https://[bad/very-secret",
        "https://host/very secret",
        "https://host/very-secret\r\nX: y",
        "https://höst/very-secret",
        "https://host/very-secret#part",
        "https://host/" + "x" * 3000,
    ],
)
def test_an_address_that_is_none_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_topic(make_topic(address))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["ana", "ana@", "@example.com", "a b@example.com", "a@b\nBcc: c@d", "a@b..c"]
)
def test_a_mailbox_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(Invalid, match=r"looks like ana@example.com"):
        check_topic(make_topic(address, format=Format.EMAIL))


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "a:b", "ä", "a" * 256])
def test_a_name_that_no_urn_could_end_in_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="name has letters"):
        check_topic(make_topic(name=name))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(Invalid, match="not signed: a secret is for dingtalk, json, lark"):
        check_topic(make_topic(format=Format.SLACK, secret=SECRET))
    for secret in ("", "a\nb", "x" * 600):
        with pytest.raises(Invalid, match="printable") as caught:
            check_topic(make_topic(secret=secret))
        assert not secret or secret not in str(caught.value)
    with pytest.raises(Invalid, match="at least one"):
        check_topic(make_topic(events=frozenset()))
    with pytest.raises(Invalid, match="follow all"):
        check_topic(make_topic(workspace_id="w1"))


def test_a_topic_follows_what_it_was_told_to() -> None:
    notice = make_notice(EventKind.FAILED, workspace_id="w1")
    assert not make_topic().follows(notice)
    everything = make_topic(follows_all=True)
    assert everything.follows(notice)
    assert not everything.follows(replace(notice, project_id="p2"))
    assert replace(everything, project_id=None).follows(replace(notice, project_id="p2"))
    assert not replace(everything, events=frozenset({EventKind.STARTED})).follows(notice)
    assert replace(everything, workspace_id="w1").follows(notice)
    assert not replace(everything, workspace_id="w2").follows(notice)
