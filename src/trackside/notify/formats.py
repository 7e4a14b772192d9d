"""Knows in which words each kind of webhook wants to be told, how it is signed and how it says no.

Slack, DingTalk, WeCom and Lark are told as their documentation of incoming webhooks says; everybody else gets
Trackside's own JSON. What a job says is made harmless: it cannot mention people or bring its own links.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from trackside.domain.notice import EVENT_NAMES, Notice
from trackside.domain.topic import Format, Topic
from trackside.notify.message import Message, cut, cut_bytes, facts_of, message_of

SLACK_SECTION_LENGTH_MAX = 3000
DINGTALK_TEXT_BYTES_MAX = 18_000  # the whole message may have 20,000
WECOM_CONTENT_BYTES_MAX = 4096
LARK_TEXT_BYTES_MAX = 16_000  # the whole message may have 20 KB
TITLE_LENGTH_MAX = 200
CODE_NAMES = ("errcode", "code", "StatusCode")  # one of them says whether a 200 means yes
SAID_LENGTH_MAX = 200
ZERO_WIDTH = "\u200b"  # breaks markup and is not seen

LARK_COLOURS = {"JobFailed": "red", "JobHanged": "orange", "JobPreempted": "orange", "JobCompleted": "green"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """One request that tells a webhook."""

    url: str
    body: bytes
    headers: Mapping[str, str]


def post_of(topic: Topic, notice: Notice, *, link: str, now_ms: int, test: bool = False) -> Post:
    """Return the request that tells a topic of a notice."""
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "X-Trackside-Event": EVENT_NAMES[notice.kind],
        "X-Trackside-Delivery": notice.id,
    }
    if topic.format is Format.JSON:
        body = _encode(facts_of(notice, link, test=test))
        return Post(
            url=topic.address, body=body, headers={**headers, **_json_signature(topic.secret, body, now_ms)}
        )
    message = message_of(notice, link, test=test)
    content = _BODIES[topic.format](message)
    url = topic.address
    if topic.secret is not None and topic.format is Format.DINGTALK:
        url = _dingtalk_url(url, topic.secret, now_ms)
    if topic.secret is not None and topic.format is Format.LARK:
        content |= _lark_signature(topic.secret, now_ms)
    return Post(url=url, body=_encode(content), headers=headers)


def refusal(used: Format, answer: bytes) -> str | None:
    """Return what a receiver has against a message though it answered 200; None: nothing."""
    if used in (Format.JSON, Format.SLACK):
        return None
    try:
        said = json.loads(answer)
    except ValueError:
        return "it answered with something that is not JSON"
    code = next((said[name] for name in CODE_NAMES if name in said), None) if isinstance(said, dict) else None
    if code == 0:
        return None
    words = said.get("errmsg") or said.get("msg") or "" if isinstance(said, dict) else ""
    shown = "".join(character for character in str(words) if character.isprintable())
    return f"it refused with code {str(code)[:32]}" + (f": {cut(shown, SAID_LENGTH_MAX)}" if shown else "")


def _slack(message: Message) -> dict[str, Any]:
    title, *lines = (_slack_text(text) for text in (message.title, *message.lines))
    said = "\n".join((f"*{cut(title, TITLE_LENGTH_MAX)}*", *lines))
    link = f"\n<{message.link}|Open the job>"
    section = cut(said, SLACK_SECTION_LENGTH_MAX - len(link)) + link
    return {
        "text": cut(f"{title}: {lines[0]}", SLACK_SECTION_LENGTH_MAX),
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": section}}],
    }


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _dingtalk(message: Message) -> dict[str, Any]:
    text = _markdown(message, DINGTALK_TEXT_BYTES_MAX)
    return {"msgtype": "markdown", "markdown": {"title": cut(message.title, TITLE_LENGTH_MAX), "text": text}}


def _wecom(message: Message) -> dict[str, Any]:
    return {"msgtype": "markdown", "markdown": {"content": _markdown(message, WECOM_CONTENT_BYTES_MAX)}}


def _markdown(message: Message, bytes_max: int) -> str:
    link = f"\n\n[Open the job]({message.link})"
    lines = "\n\n".join(_harmless(line) for line in message.lines)
    said = f"### {_harmless(cut(message.title, TITLE_LENGTH_MAX))}\n\n{lines}"
    return cut_bytes(said, bytes_max - len(link.encode())) + link


def _harmless(text: str) -> str:
    """Return text that is no markup: no tags and mentions in <>, no links."""
    return text.replace("<", f"<{ZERO_WIDTH}").replace("](", f"]{ZERO_WIDTH}(")


def _lark(message: Message) -> dict[str, Any]:
    said = cut_bytes("\n".join(message.lines), LARK_TEXT_BYTES_MAX)
    event = message.title.partition(":")[0]
    button = {"tag": "button", "text": _plain("Open the job"), "url": message.link, "type": "default"}
    return {
        "msg_type": "interactive",
        "card": {
            "header": {
                "title": _plain(cut(message.title, TITLE_LENGTH_MAX)),
                "template": LARK_COLOURS.get(event, "blue"),
            },
            "elements": [
                {"tag": "div", "text": _plain(said)},
                {"tag": "action", "actions": [button]},
            ],
        },
    }


def _plain(text: str) -> dict[str, str]:
    return {"tag": "plain_text", "content": text}


_BODIES: dict[Format, Callable[[Message], dict[str, Any]]] = {
    Format.SLACK: _slack,
    Format.DINGTALK: _dingtalk,
    Format.WECOM: _wecom,
    Format.LARK: _lark,
}


def _json_signature(secret: str | None, body: bytes, now_ms: int) -> dict[str, str]:
    """Return the headers by which a receiver knows who sent a body, and when."""
    if secret is None:
        return {}
    seconds = str(now_ms // 1000)
    signature = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Trackside-Timestamp": seconds, "X-Trackside-Signature": f"sha256={signature}"}


def _dingtalk_url(url: str, secret: str, now_ms: int) -> str:
    """Return the address with timestamp and signature: milliseconds and the secret, signed by the secret."""
    digest = hmac.new(secret.encode(), f"{now_ms}\n{secret}".encode(), hashlib.sha256).digest()
    joint = "&" if "?" in url else "?"
    return f"{url}{joint}timestamp={now_ms}&sign={quote_plus(base64.b64encode(digest))}"


def _lark_signature(secret: str, now_ms: int) -> dict[str, str]:
    """Return timestamp and signature: nothing, signed by seconds and the secret."""
    seconds = str(now_ms // 1000)
    digest = hmac.new(f"{seconds}\n{secret}".encode(), b"", hashlib.sha256).digest()
    return {"timestamp": seconds, "sign": base64.b64encode(digest).decode()}


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
