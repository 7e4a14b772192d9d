"""Mail through a real SMTP server on loopback."""

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from tests.servers.receiver import unused_port
from tests.unit.notify.making import LINK, make_notice
from trackside.domain.errors import Invalid
from trackside.domain.topic import Undeliverable
from trackside.notify import mail
from trackside.notify.mail import Mailer, MailServer, mail_server
from trackside.notify.message import message_of

pytestmark = pytest.mark.anyio
PASSWORD = "hush-hush"
SENDER = "trackside@example.com"


class Mailbox:
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[EmailMessage] = []
        self.envelopes: list[Envelope] = []
        self.refusal: str | None = None

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        """Take a message."""
        if self.refusal:
            return self.refusal
        self.envelopes.append(envelope)
        assert isinstance(envelope.content, bytes)
        self.got.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Envelope, address: str, rcpt_options: list[str]
    ) -> str:
        """Take a recipient, unless nobody has that name."""
        if address.startswith("nobody@"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"


@pytest.fixture
def mailbox() -> Mailbox:
    """Give an empty mailbox."""
    return Mailbox()


@pytest.fixture
def plain(mailbox: Mailbox) -> Iterator[Controller]:
    """Run a server without TLS."""
    controller = Controller(mailbox, hostname="127.0.0.1", port=unused_port())
    controller.start()
    yield controller
    controller.stop()


def server_at(port: int, **more: Any) -> MailServer:
    return MailServer(host="127.0.0.1", port=port, secure=False, sender=SENDER, **more)


async def send(server: MailServer, to: str = "ana@example.com", **more: Any) -> None:
    notice = make_notice()
    await Mailer(server, **more).send(to, message_of(notice, LINK), notice)


async def test_a_message_arrives(plain: Controller, mailbox: Mailbox) -> None:
    await send(server_at(plain.port))
    (got,) = mailbox.got
    assert got["Subject"] == "JobFailed: llama-sft"
    assert (got["From"], got["To"]) == (SENDER, "ana@example.com")
    assert got["Message-ID"] == f"<{'n' * 32}@example.com>"
    assert got["Auto-Submitted"] == "auto-generated"
    assert got["Date"].datetime.isoformat() == "2026-11-16T02:14:07+00:00"
    text = got.get_content()
    for part in ("worker-5 ran out of memory (16.0 of 16 GiB) (out-of-memory)", "Try: fewer samples", LINK):
        assert part in text
    assert mailbox.envelopes[0].rcpt_tos == ["ana@example.com"]


async def test_a_name_of_several_lines_writes_no_header(plain: Controller, mailbox: Mailbox) -> None:
    notice = make_notice(job_name="x\r\nBcc: eve@example.com", owner="ünä")
    await Mailer(server_at(plain.port)).send("ana@example.com", message_of(notice, LINK), notice)
    (got,) = mailbox.got
    assert got["Bcc"] is None
    assert got["Subject"] == "JobFailed: x Bcc: eve@example.com"
    assert "ünä" in got.get_content()
    assert mailbox.envelopes[0].rcpt_tos == ["ana@example.com"]


async def test_what_the_server_refuses_is_told(plain: Controller, mailbox: Mailbox) -> None:
    with pytest.raises(Undeliverable, match="refused with code 550: no such mailbox") as caught:
        await send(server_at(plain.port), "nobody@example.com")
    assert not caught.value.silent
    mailbox.refusal = "452 the disk is full"
    with pytest.raises(Undeliverable, match="refused with code 452: the disk is full"):
        await send(server_at(plain.port))


async def test_a_server_that_is_away() -> None:
    with pytest.raises(Undeliverable, match="mail server cannot be reached") as caught:
        await send(server_at(unused_port()))
    assert caught.value.silent


async def test_a_server_that_hangs() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        with pytest.raises(Undeliverable, match="did not answer, or hung up"):
            await send(server_at(server.sockets[0].getsockname()[1]), timeout_seconds=0.2)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that signs itself."""
    directory = tmp_path_factory.mktemp("tls")
    made = directory / "cert.pem", directory / "key.pem"
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x")
    names = ("-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run([*command, *names, "-out", made[0], "-keyout", made[1]], check=True, capture_output=True)
    return made


@pytest.fixture
def secured(mailbox: Mailbox, certificate: tuple[Path, Path]) -> Iterator[Controller]:
    """Run a server that wants STARTTLS and a password."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    def check(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        right = isinstance(data, LoginPassword) and (data.login, data.password) == (b"ana", PASSWORD.encode())
        return AuthResult(success=right, handled=right)

    controller = Controller(
        mailbox,
        hostname="127.0.0.1",
        port=unused_port(),
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=check,
    )
    controller.start()
    yield controller
    controller.stop()


def trusting(monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]) -> None:
    """Let this machine trust the server's certificate."""
    make = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda: make(cafile=str(certificate[0])))


async def test_starttls_and_a_password(
    secured: Controller,
    mailbox: Mailbox,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trusting(monkeypatch, certificate)
    await send(server_at(secured.port, user="ana", password=PASSWORD))
    assert len(mailbox.got) == 1
    with pytest.raises(Undeliverable, match="refused with code 535") as caught:
        await send(server_at(secured.port, user="ana", password="wrong-wrong"))
    assert "wrong-wrong" not in str(caught.value)


async def test_a_certificate_that_nobody_signed_is_refused(secured: Controller, mailbox: Mailbox) -> None:
    with pytest.raises(Undeliverable, match="certificate is not trusted"):
        await send(server_at(secured.port, user="ana", password=PASSWORD))
    assert mailbox.got == []


async def test_a_password_does_not_go_in_the_clear(
    plain: Controller, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "_loopback", lambda host: False)  # as if it were another machine
    with pytest.raises(Undeliverable, match="offers no TLS: the password was not sent"):
        await send(server_at(plain.port, user="ana", password=PASSWORD))


def test_addresses_of_mail_servers() -> None:
    made = mail_server("smtp://ana%40x@mail.example.com:587", sender=SENDER, password=PASSWORD)
    assert (made.host, made.port, made.secure, made.user) == ("mail.example.com", 587, False, "ana@x")
    assert PASSWORD not in repr(made)
    made = mail_server("smtps://mail.example.com", sender=SENDER, password=None)
    assert (made.port, made.secure, made.user) == (465, True, None)
    assert mail_server("smtp://localhost/", sender=SENDER, password=None).port == 25


@pytest.mark.parametrize(
    ("url", "sender", "password"),
    [
        ("http://mail.example.com", SENDER, None),
        ("smtp://", SENDER, None),
        ("smtp://host:port", SENDER, None),
        ("smtp://host/path", SENDER, None),
        (f"smtp://ana:{PASSWORD}@host", SENDER, None),
        ("smtp://ana@host", SENDER, None),
        ("smtp://host", SENDER, PASSWORD),
        ("smtp://host", "nobody", None),
    ],
)
def test_settings_that_cannot_work_are_refused(url: str, sender: str, password: str | None) -> None:
    with pytest.raises(Invalid) as caught:
        mail_server(url, sender=sender, password=password)
    assert PASSWORD not in str(caught.value)
