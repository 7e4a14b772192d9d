"""Knows what a topic is: a receiver of notices, and which of them it wants. Its address is a secret."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from trackside.domain.errors import Invalid, Unavailable
from trackside.domain.event import EventKind
from trackside.domain.job import ProjectId
from trackside.domain.notice import Notice

URL_LENGTH_MAX = 2048
SECRET_LENGTH_MAX = 512
EMAIL_LENGTH_MAX = 254
SCHEMES = ("http", "https")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}\Z")
_EMAIL = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\Z"
)
_URL_CHARACTERS = re.compile(r"[\x21-\x7e]+\Z")


class Undeliverable(Unavailable):
    """A receiver was not told. The text never holds its address or secret."""

    def __init__(self, why: str, *, silent: bool = False) -> None:
        super().__init__(why)
        self.silent = silent  # it did not answer at all: it would not hear the next message either


class Format(StrEnum):
    """In which words a receiver is told."""

    JSON = "json"
    SLACK = "slack"
    DINGTALK = "dingtalk"
    WECOM = "wecom"
    LARK = "lark"
    EMAIL = "email"


# Those whose receivers check a signature; Slack and WeCom have the secret in the address.
SIGNED = frozenset({Format.JSON, Format.DINGTALK, Format.LARK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A receiver of notices: of jobs that name it, and, where it follows all, of the others too."""

    name: str
    project_id: ProjectId | None  # None: of the whole installation
    format: Format
    address: str = field(repr=False)  # a URL, or an e-mail address
    secret: str | None = field(default=None, repr=False)
    events: frozenset[EventKind] = frozenset(EventKind)
    follows_all: bool = False
    workspace_id: str | None = None  # None: of every workspace

    @property
    def shown(self) -> str:
        """Return the address as it may be shown: the path of a webhook is as good as a password."""
        if self.format is Format.EMAIL:
            return self.address
        parts = urlsplit(self.address)
        port = f":{parts.port}" if parts.port else ""
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}{port}/…"

    def open_to(self, project_id: str) -> bool:
        """Say whether jobs of a project may name it."""
        return self.project_id is None or self.project_id == project_id

    def follows(self, notice: Notice) -> bool:
        """Say whether it wants a notice though the job did not name it."""
        return (
            self.follows_all
            and notice.kind in self.events
            and self.open_to(notice.project_id)
            and self.workspace_id in (None, notice.workspace_id)
        )


def topic_name(given: str) -> str:
    """Return the name of the topic that a name or a URN (urn:smn:REGION:PROJECT:NAME) means."""
    return given.rpartition(":")[2].strip()


def check_topic(topic: Topic) -> None:
    """Raise Invalid, without repeating a secret, if the topic could never be told anything."""
    if not _NAME.match(topic.name):
        raise Invalid(
            "a topic's name has letters, digits, - and _ (at most 255) and begins with a letter or digit"
        )
    if not topic.events:
        raise Invalid("a topic wants at least one kind of event")
    if topic.workspace_id is not None and not topic.follows_all:
        raise Invalid("a workspace narrows which jobs a topic follows: let it follow all jobs")
    if topic.secret is not None:
        _check_secret(topic.format, topic.secret)
    if topic.format is Format.EMAIL:
        _check_email(topic.address)
    else:
        _check_url(topic.address)


def _check_secret(used_in: Format, secret: str) -> None:
    if used_in not in SIGNED:
        signed = ", ".join(sorted(SIGNED))
        raise Invalid(f"messages in the format {used_in} are not signed: a secret is for {signed}")
    if not 0 < len(secret) <= SECRET_LENGTH_MAX or not secret.isprintable():
        raise Invalid(f"a secret is 1 to {SECRET_LENGTH_MAX} printable characters")


def _check_email(address: str) -> None:
    if len(address) > EMAIL_LENGTH_MAX or not _EMAIL.match(address) or ".." in address:
        raise Invalid("an e-mail address looks like ana@example.com")


def _check_url(url: str) -> None:
    example = "https://host/path"
    if len(url) > URL_LENGTH_MAX or not _URL_CHARACTERS.match(url):
        raise Invalid(
            f"a webhook's address has at most {URL_LENGTH_MAX:,} plain characters and looks like {example}"
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise Invalid(f"the webhook's address cannot be read; it looks like {example}") from None
    if parts.scheme not in SCHEMES or not host:
        raise Invalid(f"a webhook's address begins with http:// or https:// and looks like {example}")
    if parts.fragment:
        raise Invalid("a webhook's address has no # part")
