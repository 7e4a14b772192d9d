"""The connection to the server is kept, and taken up again when the server lets go of it."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trackside.agent.ship import Link, Refused, Shipper
from trackside.agent.spool import Spool
from trackside.domain.exchange import Noted, Report, TaskKey
from trackside.domain.job import JobId, NodeId, TaskName

Answer = Callable[[int], bytes]  # from the number of the request on its connection


@contextmanager
def server(tmp_path: Path, answer: Answer, *, requests_per_connection: int) -> Iterator[list[bytes]]:
    """Answer that many requests on each connection and then close it without a word."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    for number in range(requests_per_connection):
                        head = connection.recv(65536)
                        if not head:
                            break
                        seen.append(head)
                        connection.sendall(answer(number))

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        (tmp_path / "server.json").write_text(json.dumps({"endpoint": f"http://127.0.0.1:{port}/base/"}))
        (tmp_path / "token").write_text("secret\n")
        try:
            yield seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _ok(_: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_a_connection_the_server_closed_is_made_anew_at_once(tmp_path: Path) -> None:
    link = Link(tmp_path / "server.json", tmp_path / "token")
    with server(tmp_path, _ok, requests_per_connection=1) as seen:
        assert [link.call("POST", "/reports", b"[]") for _ in range(3)] == [b"{}"] * 3
        link.close()
    assert len(seen) == 3
    assert all(head.startswith(b"POST /base/api/trackside/v1/agent/reports HTTP/1.1") for head in seen)
    assert all(b"Authorization: Bearer secret\r\n" in head for head in seen)


def test_a_kept_connection_is_used_again(tmp_path: Path) -> None:
    numbers: list[int] = []

    def answer(number: int) -> bytes:
        numbers.append(number)
        return _ok(number)

    link = Link(tmp_path / "server.json", tmp_path / "token")
    with server(tmp_path, answer, requests_per_connection=3):
        for _ in range(3):
            link.call("GET", "/orders")
        link.close()
    assert numbers == [0, 1, 2]


def test_a_refusal_is_told_and_the_token_never_is(tmp_path: Path) -> None:
    link = Link(tmp_path / "server.json", tmp_path / "token")
    refusal = b"HTTP/1.1 401 No\r\nContent-Length: 4\r\n\r\nnope"
    with (
        server(tmp_path, lambda _: refusal, requests_per_connection=1),
        pytest.raises(Refused, match="401: nope") as caught,
    ):
        link.call("GET", "/orders")
    assert caught.value.status == 401
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"endpoint": "http://127.0.0.1:port"}'])
def test_a_bad_server_file_is_no_more_than_an_absent_server(tmp_path: Path, content: str) -> None:
    (tmp_path / "server.json").write_text(content)
    (tmp_path / "token").write_text("secret")
    with pytest.raises(OSError, match="endpoint"):
        Link(tmp_path / "server.json", tmp_path / "token").call("GET", "/orders")


def test_an_absent_server_file_is_an_absent_server(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"server\.json"):
        Link(tmp_path / "server.json", tmp_path / "token").call("GET", "/orders")


def test_a_report_the_server_refuses_is_logged_and_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = b'{"through": 2, "refused": [{"seq": 1, "why": "nobody knows it here"}], "more": true}'
    answered = threading.Event()

    def answer(_: int) -> bytes:
        answered.set()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content

    spool = Spool(tmp_path / "spool")
    noted = Noted(key=TaskKey(JobId("j"), 1, TaskName("w")), at_ms=1, message="hi")
    spool.append(Report(seq=0, noted=noted), Report(seq=0, noted=noted))
    link = Link(tmp_path / "server.json", tmp_path / "token")
    shipper = Shipper(link, spool, NodeId("n"), lambda _: None)
    with server(tmp_path, answer, requests_per_connection=10):
        shipper.start()
        assert answered.wait(10)
        until_empty(spool)
        shipper.stop()
        spool.close()
        link.close()
    assert "did not take report 1: nobody knows it here" in caplog.text


def until_empty(spool: Spool) -> None:
    """Wait until everything was acknowledged."""
    deadline = time.monotonic() + 10
    while spool.wait(0) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
