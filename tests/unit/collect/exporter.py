"""A fake exporter on loopback: says what a test writes into it, when the test lets it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeExporter:
    """What the exporter says next."""

    def __init__(self) -> None:
        self.text = b""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked = 0
        self.free = threading.Event()  # clear: it takes requests and does not answer
        self.free.set()
        self.url = ""
        self.port = 0


@contextmanager
def exporter(text: str = "") -> Iterator[FakeExporter]:
    """Serve text over HTTP."""
    fake = FakeExporter()
    fake.text = text.encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.asked += 1
            fake.free.wait(30)
            self.send_response(fake.status)
            for name, value in fake.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(fake.text)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # the reader lost its patience

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    fake.port = server.server_port
    fake.url = f"http://127.0.0.1:{fake.port}/metrics"
    try:
        yield fake
    finally:
        fake.free.set()
        server.shutdown()
        server.server_close()
        thread.join()
