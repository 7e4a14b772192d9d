"""Every format against what its receiver documents."""

import base64
import hashlib
import hmac
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.notify.making import LINK, NOW_MS, SECRET, make_notice, make_topic
from trackside.domain.event import EventKind
from trackside.domain.notice import EVENT_NAMES, Notice
from trackside.domain.reason import Reason, ReasonCode
from trackside.domain.topic import Format
from trackside.notify.formats import Post, post_of, refusal

CHATS = (Format.SLACK, Format.DINGTALK, Format.WECOM, Format.LARK)


def posted(used: Format, notice: Notice, *, secret: str | None = None, test: bool = False) -> Post:
    return post_of(make_topic(format=used, secret=secret), notice, link=LINK, now_ms=NOW_MS, test=test)


def content(used: Format, notice: Notice, **more: Any) -> Any:
    return json.loads(posted(used, notice, **more).body)


def test_json_says_everything() -> None:
    assert content(Format.JSON, make_notice()) == {
        "id": "n" * 32,
        "event": "JobFailed",
        "time": "2026-11-16T02:14:07Z",
        "time_ms": NOW_MS,
        "test": False,
        "message": "failed: worker-5 ran out of memory",
        "job": {
            "id": "j1",
            "dlc_id": "dlcabc",
            "name": "llama-sft",
            "project_id": "p1",
            "workspace_id": "0",
            "owner": "ana",
            "phase": "failed",
            "attempt": 3,
            "url": LINK,
        },
        "reason": {
            "text": "worker-5 ran out of memory (16.0 of 16 GiB)",
            "code": "out-of-memory",
            "certainty": "certain",
            "hint": "fewer samples per step",
        },
        "culprit": "worker-5",
    }


def test_what_is_not_known_is_null() -> None:
    said = content(Format.JSON, make_notice(reason=None, culprit=None, attempt=None, short_id=""))
    assert (said["reason"], said["culprit"]) == (None, None)
    assert (said["job"]["attempt"], said["job"]["dlc_id"]) == (None, None)


@pytest.mark.parametrize("kind", list(EventKind))
def test_every_turn_has_its_name_in_every_format(kind: EventKind) -> None:
    for used in (Format.JSON, *CHATS):
        post = posted(used, make_notice(kind))
        assert EVENT_NAMES[kind] in post.body.decode()
        assert post.headers["X-Trackside-Event"] == EVENT_NAMES[kind]
        assert post.headers["X-Trackside-Delivery"] == "n" * 32


def test_json_is_signed_over_time_and_body() -> None:
    post = posted(Format.JSON, make_notice(), secret=SECRET)
    seconds = str(NOW_MS // 1000)
    expected = hmac.new(SECRET.encode(), seconds.encode() + b"." + post.body, hashlib.sha256).hexdigest()
    assert post.headers["X-Trackside-Timestamp"] == seconds
    assert post.headers["X-Trackside-Signature"] == f"sha256={expected}"
    assert "X-Trackside-Signature" not in posted(Format.JSON, make_notice()).headers


def test_slack_gets_text_and_a_section() -> None:
    said = content(Format.SLACK, make_notice())
    assert set(said) == {"text", "blocks"}
    assert said["text"].startswith("JobFailed: llama-sft: worker-5 ran out of memory")
    (block,) = said["blocks"]
    assert (block["type"], block["text"]["type"]) == ("section", "mrkdwn")
    assert "*JobFailed: llama-sft*" in block["text"]["text"]
    assert "Try: fewer samples per step" in block["text"]["text"]
    assert f"<{LINK}|Open the job>" in block["text"]["text"]


def test_dingtalk_gets_markdown_and_a_signed_address() -> None:
    post = posted(Format.DINGTALK, make_notice(), secret=SECRET)
    said = json.loads(post.body)
    assert said["msgtype"] == "markdown"
    assert said["markdown"]["title"] == "JobFailed: llama-sft"
    assert said["markdown"]["text"].startswith("### JobFailed: llama-sft\n\nworker-5 ran out of memory")
    assert f"[Open the job]({LINK})" in said["markdown"]["text"]
    query = parse_qs(urlsplit(post.url).query)
    digest = hmac.new(SECRET.encode(), f"{NOW_MS}\n{SECRET}".encode(), hashlib.sha256).digest()
    assert query == {"timestamp": [str(NOW_MS)], "sign": [base64.b64encode(digest).decode()]}


def test_dingtalk_keeps_the_token_of_its_address() -> None:
    topic = make_topic("https://oapi.example.com/robot/send?access_token=t", format=Format.DINGTALK)
    plain = post_of(topic, make_notice(), link=LINK, now_ms=NOW_MS)
    assert plain.url == topic.address
    signed = post_of(
        make_topic(topic.address, format=Format.DINGTALK, secret=SECRET),
        make_notice(),
        link=LINK,
        now_ms=NOW_MS,
    )
    assert signed.url.startswith(f"{topic.address}&timestamp={NOW_MS}&sign=")


def test_wecom_gets_markdown() -> None:
    said = content(Format.WECOM, make_notice())
    assert said["msgtype"] == "markdown"
    assert set(said["markdown"]) == {"content"}
    assert "### JobFailed: llama-sft" in said["markdown"]["content"]


def test_lark_gets_a_card_and_a_signature() -> None:
    said = content(Format.LARK, make_notice(), secret=SECRET)
    seconds = str(NOW_MS // 1000)
    digest = hmac.new(f"{seconds}\n{SECRET}".encode(), b"", hashlib.sha256).digest()
    assert (said["timestamp"], said["sign"]) == (seconds, base64.b64encode(digest).decode())
    assert said["msg_type"] == "interactive"
    assert said["card"]["header"] == {
        "title": {"tag": "plain_text", "content": "JobFailed: llama-sft"},
        "template": "red",
    }
    text, actions = said["card"]["elements"]
    assert (text["tag"], text["text"]["tag"]) == ("div", "plain_text")
    assert "worker-5 ran out of memory" in text["text"]["content"]
    assert actions["actions"][0]["url"] == LINK
    assert "sign" not in content(Format.LARK, make_notice())


def test_a_test_says_that_it_is_one() -> None:
    assert content(Format.JSON, make_notice(), test=True)["test"] is True
    for used in CHATS:
        assert "This is a test" in posted(used, make_notice(), test=True).body.decode()


def test_no_secret_is_in_any_body_or_header() -> None:
    for used in (Format.JSON, Format.DINGTALK, Format.LARK):
        post = posted(used, make_notice(), secret=SECRET)
        assert SECRET not in post.body.decode() + str(post.headers) + post.url


def evil(text: str) -> Notice:
    return make_notice(
        job_name=text, message=text, reason=Reason(text=text, code=ReasonCode.EXIT_CODE, hint=text)
    )


def test_a_job_cannot_mention_people_or_bring_links() -> None:
    notice = evil("<!channel> <@all> [win](https://evil.example.com)\n# big")
    slack = content(Format.SLACK, notice)
    assert "<!" not in slack["text"] + slack["blocks"][0]["text"]["text"]
    for used, key in ((Format.DINGTALK, "text"), (Format.WECOM, "content")):
        said = content(used, notice)["markdown"][key]
        assert "<@" not in said
        assert "](https://evil" not in said
        assert "\n# big" not in said
    assert content(Format.LARK, notice)["card"]["elements"][0]["text"]["tag"] == "plain_text"


@settings(deadline=None)
@given(st.text(max_size=20), st.integers(1, 40_000))
def test_no_message_is_longer_than_its_receiver_takes(text: str, times: int) -> None:
    notice = evil((text * times)[:40_000])
    assert len(content(Format.SLACK, notice)["blocks"][0]["text"]["text"]) <= 3000
    assert len(content(Format.SLACK, notice)["text"]) <= 3000
    assert len(posted(Format.DINGTALK, notice).body.decode().encode()) <= 20_000
    assert len(content(Format.WECOM, notice)["markdown"]["content"].encode()) <= 4096
    assert len(posted(Format.LARK, notice, secret=SECRET).body) <= 20_000
    assert len(posted(Format.JSON, notice).body) <= 64 * 1024
    for used in CHATS:
        assert LINK in posted(used, notice).body.decode()


def test_half_a_surrogate_pair_does_not_stop_a_message() -> None:
    for used in (Format.JSON, *CHATS):
        assert posted(used, make_notice(message="\ud800", reason=None)).body


@pytest.mark.parametrize(
    ("used", "answer", "why"),
    [
        (Format.JSON, b"whatever", None),
        (Format.SLACK, b"ok", None),
        (Format.DINGTALK, b'{"errcode":0,"errmsg":"ok"}', None),
        (Format.DINGTALK, b'{"errcode":310000,"errmsg":"sign not match"}', "code 310000: sign not match"),
        (Format.WECOM, b'{"errcode":45009,"errmsg":"api freq out of limit"}', "code 45009: api freq"),
        (Format.LARK, b'{"code":0,"msg":"success","data":{}}', None),
        (Format.LARK, b'{"StatusCode":0,"StatusMessage":"success"}', None),
        (Format.LARK, b'{"code":19021,"msg":"sign match fail"}', "code 19021: sign match fail"),
        (Format.LARK, b"<html>", "not JSON"),
        (Format.WECOM, b"[]", "code None"),
        (Format.WECOM, b'{"errcode":1,"errmsg":"a\\nb"}', "code 1: ab"),
    ],
)
def test_a_200_is_not_always_a_yes(used: Format, answer: bytes, why: str | None) -> None:
    found = refusal(used, answer)
    assert found is None if why is None else found is not None and why in found
