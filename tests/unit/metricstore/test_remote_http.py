"""Addresses with passwords, connections that break: what the store's HTTP client does with them."""

import base64
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trackside.domain.errors import Invalid, Unavailable
from trackside.metricstore.remote_http import RemoteServer


class Handler(BaseHTTPRequestHandler):
    """Tells what it was sent, and hangs up when asked to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        said = f"{self.path} {self.headers.get('authorization', '-')} {body.decode()}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
        self.close_connection = body == b"last"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_credentials_become_a_header_and_the_path_a_prefix(port: int) -> None:
    remote = RemoteServer(f"http://ann:p%40ss@127.0.0.1:{port}/store/", timeout_seconds=5)
    expected = "Basic " + base64.b64encode(b"ann:p@ss").decode()
    assert remote.post("/api", b"x", {}) == (200, f"/store/api {expected} x".encode())
    assert remote.post_form("/api", [("a", "b c")])[1].endswith(b" a=b+c")
    assert remote.shown == f"http://127.0.0.1:{port}/store"
    remote.close()


def test_a_kept_connection_that_was_closed_is_replaced(port: int) -> None:
    remote = RemoteServer(f"http://127.0.0.1:{port}", timeout_seconds=5)
    for body in (b"first", b"last", b"again"):
        assert remote.post("/", body, {})[0] == 200
    remote.close()


def test_nobody_there_is_unavailable_and_no_secret_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    remote = RemoteServer("http://ann:hidden-word@127.0.0.1:9", timeout_seconds=5)
    with pytest.raises(Unavailable) as caught:
        remote.post("/", b"", {})
    assert "hidden-word" not in str(caught.value) + caplog.text
    assert "http://127.0.0.1:9" in str(caught.value)
    remote.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8428",
        "ftp://host",
        "http://",
        "http://h:port",
        "http://h?a=b",
        "http://h/#x",
        "http://[h",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        RemoteServer(url, timeout_seconds=5)
    assert "metrics_url" in str(caught.value)
