"""Knows how to ask the kernel for all TCP sockets and their byte counters; knows no tasks.

One netlink dump per address family, parsed by hand: the general library builds objects for some hundred
attributes of every socket, of which three are wanted. The kernel also tells of every socket that it
destroys, with its final counters; what was sent after the last dump is not lost with the socket.
"""

import errno
import socket
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
DUMP_REQUEST = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
NLMSG_ERROR = 2
NLMSG_DONE = 3
INET_DIAG_INFO = 2
INET_DIAG_CGROUP_ID = 21
# Every state with a peer and counters: not LISTEN, SYN_RECV, TIME_WAIT or CLOSE.
STATES = sum(1 << state for state in (1, 2, 4, 5, 8, 9, 11))
ATTRIBUTE_TYPE_MASK = 0x3FFF
CLOSED_GROUPS = 0b101  # destroyed TCP sockets of IPv4 and IPv6
CLOSED_BUFFER_BYTES = 1_048_576  # what is closed beyond that between two passes goes untold
RECEIVE_BYTES = 262_144
DUMP_TIMEOUT_SECONDS = 1.0

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBBI48s")  # family, protocol, extensions, padding, states, socket id
_ATTRIBUTE = struct.Struct("=HH")
_COOKIE_AT = 16 + 44  # header; then the message, its socket id at 4, the cookie at 40 of that
_INODE_AT = 16 + 68
_ATTRIBUTES_AT = 16 + 72
_BYTES = struct.Struct("=QQ")
_BYTES_ACKED_AT = 120  # in struct tcp_info; bytes_received follows


class TcpSocket(NamedTuple):
    """One socket's identity and what it carried. Inode 0: no process holds it (any more, or yet)."""

    cookie: int
    inode: int
    cgroup_id: int | None
    received_bytes: int
    sent_bytes: int  # acknowledged by the peer


class SockDiag:
    """A netlink socket that lists the TCP sockets of our network namespace."""

    def __init__(self) -> None:
        self._netlink = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
        )
        self._netlink.settimeout(DUMP_TIMEOUT_SECONDS)
        self._sequence = 0
        self._destroyed = _listen_for_destroyed()

    def dump(self, wanted: Callable[[int], bool]) -> Iterator[TcpSocket]:
        """List all sockets whose cookie is wanted; raise OSError when the kernel does not answer."""
        for family in (socket.AF_INET, socket.AF_INET6):
            self._sequence += 1
            request = _REQUEST.pack(
                family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, STATES, bytes(48)
            )
            header = _HEADER.pack(
                _HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, DUMP_REQUEST, self._sequence, 0
            )
            self._netlink.send(header + request)
            yield from self._answers(wanted)

    def destroyed(self, wanted: Callable[[int], bool]) -> Iterator[TcpSocket]:
        """List the sockets that were destroyed since the last call, with their final counters."""
        while self._destroyed is not None:
            try:
                data = self._destroyed.recv(RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # that one says: some went untold
                    raise
                continue
            if len(data) >= _ATTRIBUTES_AT and (found := _parse(data, 0, len(data), wanted)) is not None:
                yield found

    def close(self) -> None:
        """Close the netlink sockets."""
        self._netlink.close()
        if self._destroyed is not None:
            self._destroyed.close()
            self._destroyed = None

    def _answers(self, wanted: Callable[[int], bool]) -> Iterator[TcpSocket]:
        while True:
            data = self._netlink.recv(RECEIVE_BYTES)
            at = 0
            while at + _HEADER.size <= len(data):
                length, kind, _, sequence, _ = _HEADER.unpack_from(data, at)
                if length < _HEADER.size:
                    raise OSError("a netlink message shorter than its header")
                if sequence == self._sequence:  # else: left over from a dump that was given up
                    if kind == NLMSG_DONE:
                        return
                    if kind == NLMSG_ERROR:
                        raise OSError(
                            -int.from_bytes(data[at + 16 : at + 20], "little", signed=True), "sock_diag"
                        )
                    found = _parse(data, at, at + length, wanted)
                    if found is not None:
                        yield found
                at += (length + 3) & ~3


def _listen_for_destroyed() -> socket.socket | None:
    """Return a socket on which the kernel tells of destroyed sockets; None where it does not."""
    listener = socket.socket(
        socket.AF_NETLINK,
        socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
        NETLINK_SOCK_DIAG,
    )
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CLOSED_BUFFER_BYTES)
        listener.bind((0, CLOSED_GROUPS))
    except OSError:
        listener.close()
        return None
    return listener


def _parse(data: bytes, at: int, end: int, wanted: Callable[[int], bool]) -> TcpSocket | None:
    cookie = int.from_bytes(data[at + _COOKIE_AT : at + _COOKIE_AT + 8], "little")
    if not wanted(cookie):
        return None
    counters: tuple[int, int] | None = None
    cgroup_id: int | None = None
    attribute = at + _ATTRIBUTES_AT
    while attribute + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, attribute)
        if length < 4:
            break
        kind &= ATTRIBUTE_TYPE_MASK
        if kind == INET_DIAG_INFO and length >= 4 + _BYTES_ACKED_AT + _BYTES.size:
            counters = _BYTES.unpack_from(data, attribute + 4 + _BYTES_ACKED_AT)
        elif kind == INET_DIAG_CGROUP_ID and length >= 12:
            cgroup_id = int.from_bytes(data[attribute + 4 : attribute + 12], "little")
        attribute += (length + 3) & ~3
    if counters is None:
        return None
    inode = int.from_bytes(data[at + _INODE_AT : at + _INODE_AT + 4], "little")
    return TcpSocket(cookie, inode, cgroup_id, received_bytes=counters[1], sent_bytes=counters[0])
