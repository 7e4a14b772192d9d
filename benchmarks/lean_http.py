"""The leanest client there can be in Python: requests are bytes that were made before the clock runs.

What a client costs is the same for every store and says nothing about any of them.
"""

import socket
from urllib.parse import urlsplit

ROOM = 1 << 20
END_OF_HEAD = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
TIMEOUT_SECONDS = 120


def post_request(target: str, headers: dict[str, str], body: bytes) -> bytes:
    """Return a POST as it goes over the wire, head and body together."""
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def get_request(target: str, headers: dict[str, str]) -> bytes:
    """Return a GET as it goes over the wire."""
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


class LeanClient:
    """One connection that is kept; answers are taken whole, chunked or not."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(f"//{address}")
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of its answer, as it came."""
        self._socket.sendall(request)
        received = self._socket.recv(ROOM)
        while END_OF_HEAD not in received:
            received += self._more()
        head, _, body = received.partition(END_OF_HEAD)
        assert head[9:10] == b"2", received[:500]
        if head[9:12] == b"204":
            return b""
        at = head.lower().find(b"\r\ncontent-length:")
        if at < 0:
            while not body.endswith(LAST_CHUNK):
                body += self._more()
            return body
        length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        parts, size = [body], len(body)
        while size < length:
            parts.append(self._more())
            size += len(parts[-1])
        return b"".join(parts)

    def close(self) -> None:
        """Let go of the connection."""
        self._socket.close()

    def _more(self) -> bytes:
        data = self._socket.recv(ROOM)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data
