"""Knows how a message is sent by e-mail: through one SMTP server, by threads that nobody waits for."""

import asyncio
import ipaddress
import smtplib
import ssl
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from threading import Thread
from urllib.parse import unquote, urlsplit

from trackside.domain.errors import Invalid
from trackside.domain.notice import Notice
from trackside.domain.topic import Undeliverable
from trackside.notify.message import Message, cut, line

TIMEOUT_SECONDS = 20.0  # of each step
SUBJECT_LENGTH_MAX = 200
SAID_LENGTH_MAX = 200
DEFAULT_PORTS = {"smtp": 25, "smtps": 465}


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """Where mail is handed over, and by whom."""

    host: str
    port: int
    secure: bool  # TLS from the first byte
    sender: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def mail_server(url: str, *, sender: str, password: str | None) -> MailServer:
    """Return the server that smtp_url means, or raise Invalid."""
    example = "smtp://user@host:587 or smtps://user@host"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise Invalid(f"smtp_url cannot be read; it looks like {example}") from None
    if parts.scheme not in DEFAULT_PORTS or not host or parts.path.strip("/") or parts.query:
        raise Invalid(f"smtp_url looks like {example}")
    if parts.password is not None:
        raise Invalid("smtp_url holds no password: put it into the file that smtp_password_file names")
    if "@" not in sender:
        raise Invalid("smtp_from must be the e-mail address that messages come from")
    if (parts.username is None) != (password is None):
        raise Invalid("smtp_url with a user needs smtp_password_file, and that needs a user")
    user = None if parts.username is None else unquote(parts.username)
    secure = parts.scheme == "smtps"
    port = port or DEFAULT_PORTS[parts.scheme]
    return MailServer(host=host, port=port, secure=secure, sender=sender, user=user, password=password)


class Mailer:
    """Sends messages one after the other."""

    def __init__(self, server: MailServer, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._server = server
        self._timeout_seconds = timeout_seconds
        self._turn = asyncio.Lock()

    async def send(self, to: str, message: Message, notice: Notice) -> None:
        """Hand a message over to the server, or raise Undeliverable."""
        mail = self._mail(to, message, notice)
        async with self._turn:
            done: Future[None] = Future()
            # A daemon: a mail server that hangs does not keep this program from ending.
            Thread(target=self._try, args=(mail, done), name="trackside-mail", daemon=True).start()
            await asyncio.wrap_future(done)

    def _try(self, mail: EmailMessage, done: "Future[None]") -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            self._hand_over(mail)
        except Exception as error:  # whoever waits gets it, whatever it is
            done.set_exception(error)
        else:
            done.set_result(None)

    def _mail(self, to: str, message: Message, notice: Notice) -> EmailMessage:
        mail = EmailMessage()
        mail["Subject"] = cut(message.title, SUBJECT_LENGTH_MAX)
        mail["From"] = self._server.sender
        mail["To"] = to
        mail["Date"] = format_datetime(datetime.fromtimestamp(notice.at_ms / 1000, UTC))
        # The same in every try: a mailbox that gets it twice can show it once.
        mail["Message-ID"] = f"<{notice.id}@{self._server.sender.rpartition('@')[2].strip('> ')}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content("\n".join((*message.lines, "", message.link, "")))
        return mail

    def _hand_over(self, mail: EmailMessage) -> None:
        try:
            with self._connected() as connection:
                connection.send_message(mail)
        except smtplib.SMTPResponseException as error:
            raise Undeliverable(_said(error.smtp_code, error.smtp_error)) from None
        except smtplib.SMTPRecipientsRefused as error:
            code, words = next(iter(error.recipients.values()))
            raise Undeliverable(_said(code, words)) from None
        except ssl.SSLCertVerificationError as error:
            why = f"the mail server's certificate is not trusted: {error.verify_message}"
            raise Undeliverable(why, silent=True) from None
        except smtplib.SMTPServerDisconnected:
            raise Undeliverable("the mail server did not answer, or hung up", silent=True) from None
        except smtplib.SMTPException as error:
            raise Undeliverable(f"the mail server did not take it: {type(error).__name__}") from None
        except OSError as error:
            why = f"the mail server cannot be reached: {error.strerror or type(error).__name__}"
            raise Undeliverable(why, silent=True) from None

    def _connected(self) -> smtplib.SMTP:
        """Return a connection that is as safe as the server allows; a password never goes in the clear."""
        server = self._server
        context = ssl.create_default_context()
        if server.secure:
            made: smtplib.SMTP = smtplib.SMTP_SSL(
                server.host, server.port, timeout=self._timeout_seconds, context=context
            )
        else:
            made = smtplib.SMTP(server.host, server.port, timeout=self._timeout_seconds)
        try:
            made.ehlo()
            if not server.secure and made.has_extn("starttls"):
                made.starttls(context=context)
                made.ehlo()
            self._log_in(made)
        except BaseException:
            made.close()
            raise
        return made

    def _log_in(self, connection: smtplib.SMTP) -> None:
        server = self._server
        if server.user is None or server.password is None:
            return
        if not isinstance(connection.sock, ssl.SSLSocket) and not _loopback(server.host):
            raise Undeliverable("the mail server offers no TLS: the password was not sent")
        connection.login(server.user, server.password)


def _said(code: int, said: bytes | str) -> str:
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return f"the mail server refused with code {code}: {cut(line(words), SAID_LENGTH_MAX)}"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
