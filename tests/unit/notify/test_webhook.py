"""Posting to real receivers that behave well, badly, or not at all."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.servers.receiver import Receiver, Reply, unused_port
from trackside.domain.reach import reach_of
from trackside.domain.topic import Undeliverable
from trackside.notify import webhook
from trackside.notify.route import Route

pytestmark = pytest.mark.anyio
BODY = '{"a": "ü"}'.encode()
ANYWHERE = Route()
post = partial(webhook.post, route=ANYWHERE)
HEADERS = {"Content-Type": "application/json", "X-Trackside-Event": "JobFailed"}


async def test_a_body_arrives_as_it_was() -> None:
    with Receiver(Reply(body=b"thanks")) as receiver:
        assert await post(receiver.url, BODY, HEADERS) == (200, b"thanks")
        got = receiver.get()
    assert got.body == BODY
    assert got.path == "/hook/very-secret-path?key=very-secret-key"
    assert got.headers["x-trackside-event"] == "JobFailed"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"


async def test_a_name_and_password_of_the_address_become_a_header() -> None:
    with Receiver() as receiver:
        await post(f"http://ana:p%40ss@127.0.0.1:{receiver.port}", b"x", {})
        got = receiver.get()
    assert got.headers["authorization"] == "Basic YW5hOnBAc3M="
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.path == "/"


@pytest.mark.parametrize("status", [204, 302, 404, 429, 500, 503])
async def test_a_status_is_told_and_a_redirect_not_followed(status: int) -> None:
    with Receiver() as other:
        moved = (("Location", other.url),)
        with Receiver(Reply(status=status, headers=moved, body=b"")) as receiver:
            assert await post(receiver.url, BODY, HEADERS) == (status, b"")
        assert other.got.empty()


async def test_nobody_there() -> None:
    with pytest.raises(Undeliverable, match=r"cannot be reached: .*onnect") as caught:
        await post(f"http://127.0.0.1:{unused_port()}/very-secret-path", BODY, HEADERS)
    assert caught.value.silent
    assert "very-secret" not in str(caught.value)


async def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(Undeliverable, match="cannot be reached") as caught:
        await post("http://nobody.invalid/very-secret-path", BODY, HEADERS)
    assert "very-secret" not in str(caught.value)


async def test_one_that_hangs_is_left_in_time() -> None:
    with Receiver(Reply(hang=True)) as receiver:
        with pytest.raises(Undeliverable, match=r"did not answer within 0.2 s") as caught:
            await post(receiver.url, BODY, HEADERS, timeout_seconds=0.2)
        assert caught.value.silent


async def test_one_that_drips_is_left_in_time_too() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        except OSError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Undeliverable, match="did not answer within"):
            await post(f"http://127.0.0.1:{port}/", BODY, {}, timeout_seconds=0.3)


@pytest.mark.parametrize(("raw", "why"), [(b"", "hung up"), (b"SMTP ready\r\n", "not HTTP")])
async def test_one_that_speaks_no_http(raw: bytes, why: str) -> None:
    with Receiver(Reply(raw=raw)) as receiver, pytest.raises(Undeliverable, match=why):
        await post(receiver.url, BODY, HEADERS)


async def test_an_answer_before_the_answer_is_passed_over() -> None:
    raw = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nhi"
    with Receiver(Reply(raw=raw)) as receiver:
        assert await post(receiver.url, BODY, HEADERS) == (201, b"hi")


async def test_an_endless_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "ANSWER_BYTES_MAX", 4096)
    with Receiver(Reply(body=b"x" * 1_000_000)) as receiver:
        status, answer = await post(receiver.url, BODY, HEADERS)
    assert (status, set(answer)) == (200, {ord("x")})
    assert len(answer) <= 4096


@pytest.fixture
async def secured(tmp_path: Path, anyio_backend: str) -> AsyncIterator[tuple[int, Path, list[bytes]]]:
    """Run a receiver with TLS; give its port, its certificate and what it gets."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x")
    names = ("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate)
    subprocess.run([*command, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    got: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(BODY))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], certificate, got


async def test_a_certificate_that_nobody_signed_is_refused(secured: tuple[int, Path, list[bytes]]) -> None:
    port, _, got = secured
    with pytest.raises(Undeliverable, match="certificate is not trusted"):
        await post(f"https://127.0.0.1:{port}/very-secret-path", BODY, HEADERS)
    assert got == []


async def test_a_certificate_that_is_trusted_is_taken(
    secured: tuple[int, Path, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, certificate, got = secured
    monkeypatch.setattr(webhook, "trusted", lambda: ssl.create_default_context(cafile=str(certificate)))
    assert await post(f"https://127.0.0.1:{port}/x", BODY, HEADERS) == (204, b"")
    assert got[0].startswith(b"POST /x HTTP/1.1\r\n")


async def test_nobody_is_told_where_notices_may_not_go() -> None:
    with Receiver() as receiver:
        route = Route(reach_of(["*.example.com", "10.0.0.0/8"]))
        with pytest.raises(Undeliverable, match="notify_hosts") as caught:
            await webhook.post(receiver.url, BODY, HEADERS, route=route)
        assert receiver.got.empty()
    assert caught.value.silent
    assert "very-secret" not in str(caught.value)


async def test_a_name_is_resolved_once_and_its_checked_address_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name server that tells another address the second time wins nothing by it."""
    asked: list[str] = []
    answers = iter(["127.0.0.1", "169.254.169.254"])

    def resolve(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        address = host
        if host == "hooks.example.com":
            asked.append(host)
            address = next(answers)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with Receiver() as receiver:
        url = f"http://hooks.example.com:{receiver.port}/x"
        assert (await post(url, BODY, HEADERS))[0] == 200
        got = receiver.get()
        assert got.headers["host"] == f"hooks.example.com:{receiver.port}"
        with pytest.raises(Undeliverable, match="metadata"):
            await post(url, BODY, HEADERS)
        assert receiver.got.empty()
    assert asked == ["hooks.example.com"] * 2


async def test_the_next_address_is_tried_when_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver:
        places = [("127.0.0.2", receiver.port), ("127.0.0.1", receiver.port)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        real = socket.getaddrinfo

        def resolve(host: str, *rest: object, **more: object) -> object:
            return found if host == "hooks.example.com" else real(host, *rest, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        assert (await post(f"http://hooks.example.com:{receiver.port}/x", BODY, HEADERS))[0] == 200
        receiver.get()
