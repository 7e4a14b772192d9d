"""Knows how a notice reaches one topic: which format, which way, and what counts as having heard."""

import asyncio
import re
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

from trackside.domain.errors import Invalid
from trackside.domain.notice import Notice
from trackside.domain.topic import Format, Topic, Undeliverable
from trackside.notify.formats import post_of, refusal
from trackside.notify.mail import Mailer
from trackside.notify.message import message_of
from trackside.notify.route import NotAllowed, Route
from trackside.notify.webhook import TIMEOUT_SECONDS, host_and_port, post
from trackside.ports import Clock

CHECK_SECONDS_MAX = 2.0  # for finding a host while somebody waits; it is found again when it is told
SECRET_PART_LENGTH_MIN = 6  # a shorter part of an address is no password


class Sender:
    """Sends notices to topics, each once."""

    def __init__(
        self,
        *,
        clock: Clock,
        link: Callable[[str], str],
        mailer: Mailer | None,
        route: Route,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._clock = clock
        self._link = link  # where a job is looked at, by its id
        self._mailer = mailer
        self._route = route
        self._timeout_seconds = timeout_seconds

    @property
    def mails(self) -> bool:
        """Say whether there is a mail server."""
        return self._mailer is not None

    async def check(self, topic: Topic) -> None:
        """Raise Invalid if the topic may not be told where it is; a name that is not known yet may be."""
        if topic.format is Format.EMAIL:
            return  # mail goes through the one server that the settings name
        try:
            async with asyncio.timeout(CHECK_SECONDS_MAX):
                await self._route.addresses(*host_and_port(topic.address))
        except NotAllowed as error:
            raise Invalid(f"the webhook's address is refused: {error}") from None
        except OSError:  # also when finding it takes too long
            return

    async def send(self, topic: Topic, notice: Notice, *, test: bool = False) -> None:
        """Tell a topic, or raise Undeliverable; its text holds no part of an address or secret."""
        try:
            await self._send(topic, notice, test=test)
        except Undeliverable as error:
            raise Undeliverable(scrubbed(error.detail, topic), silent=error.silent) from None

    async def _send(self, topic: Topic, notice: Notice, *, test: bool) -> None:
        link = self._link(notice.job_id)
        if topic.format is Format.EMAIL:
            if self._mailer is None:
                raise Undeliverable("the server has no smtp_url: mail cannot be sent")
            await self._mailer.send(topic.address, message_of(notice, link, test=test), notice)
            return
        made = post_of(topic, notice, link=link, now_ms=self._clock.now_ms(), test=test)
        status, answer = await post(
            made.url, made.body, made.headers, route=self._route, timeout_seconds=self._timeout_seconds
        )
        if 300 <= status < 400:
            raise Undeliverable(f"it answered {status}: redirects are not followed")
        if not 200 <= status < 300:
            raise Undeliverable(f"it answered {status}")
        against = refusal(topic.format, answer)
        if against is not None:
            raise Undeliverable(against)


def scrubbed(text: str, topic: Topic) -> str:
    """Return a text without anything of the topic's address or secret, should a receiver repeat it."""
    for part in sorted(_secret_parts(topic), key=len, reverse=True):
        text = text.replace(part, "…")
    return text


def _secret_parts(topic: Topic) -> set[str]:
    if topic.format is Format.EMAIL:
        return set()
    parts = urlsplit(topic.address)
    found = {topic.address, parts.query, parts.password or "", parts.username or ""}
    found |= set(re.split(r"[/=&?]", f"{parts.path}/{parts.query}"))
    found |= {value for _, value in parse_qsl(parts.query)}
    return {part for part in found if len(part) >= SECRET_PART_LENGTH_MIN} | {topic.secret or ""} - {""}
