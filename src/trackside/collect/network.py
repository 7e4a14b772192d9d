"""Knows how many bytes a task received and sent; knows no rates.

A process in a network namespace of its own is counted by that namespace's interfaces (loopback left out).
In the host's namespace the task's TCP sockets are counted one by one, loopback included, because workers
on one machine talk through it. A connection that was seen once is counted to its very end; what is not
seen: UDP, RDMA, and connections that open and close between two readings.
"""

import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

from trackside.collect.probe import CgroupDirs
from trackside.collect.processes import ProcessTree
from trackside.collect.procfile import read_once
from trackside.collect.sockdiag import SockDiag, TcpSocket

log = logging.getLogger(__name__)

NAMESPACE_LOOKS = 3  # a process may move after its start; later it hardly ever does
OWNER_LOOKS_MAX = 2  # a socket whose owner was not found so often is none of ours
LINKS_PER_PASS_MAX = 4_096  # descriptors looked at to find owners; the rest waits for the next pass


class Traffic(NamedTuple):
    """Bytes received and sent since the task's start."""

    received_bytes: int
    sent_bytes: int


class NetworkMeter:
    """Counts the bytes of one task."""

    def __init__(self, tree: ProcessTree, cgroup: CgroupDirs | None) -> None:
        self.tree = tree
        self.cgroup_id = _cgroup_id(cgroup)
        self.sockets: dict[int, Traffic] = {}  # by cookie; open, or so lately closed that news may come
        self._missed: set[int] = set()  # those that were not there the last time
        self._closed = Traffic(0, 0)
        self._namespaces: dict[int, Traffic] = {}  # last seen, by inode of the namespace
        self._home: dict[int, int] = {}  # pid to its namespace
        self._looks: dict[int, int] = {}  # by pid

    def read(self) -> Traffic:
        """Return the bytes so far, with what the last pass over the sockets found."""
        self._read_namespaces()
        return _total((self._closed, *self.sockets.values(), *self._namespaces.values()))

    def keep(self, cookies: set[int]) -> None:
        """Fold sockets that are gone for good into one sum: those not there twice in a row."""
        missed = self.sockets.keys() - cookies
        gone = missed & self._missed
        self._closed = _total((self._closed, *(self.sockets.pop(cookie) for cookie in gone)))
        self._missed = missed - gone

    def _read_namespaces(self) -> None:
        self._find_homes()
        pid_in = {namespace: pid for pid, namespace in self._home.items() if namespace != HOST_NAMESPACE}
        for namespace, pid in pid_in.items():
            text = read_once(f"/proc/{pid}/net/dev")
            if text and _namespace(pid) == namespace:
                self._namespaces[namespace] = parse_net_dev(text)

    def _find_homes(self) -> None:
        processes = self.tree.processes
        for pid in self._home.keys() - processes.keys():
            del self._home[pid]
            del self._looks[pid]
        for pid in processes:
            looks = self._looks.get(pid, 0)
            if looks < NAMESPACE_LOOKS and (namespace := _namespace(pid)) is not None:
                self._home[pid] = namespace
                self._looks[pid] = looks + 1


class SocketPass:
    """Reads the sockets of the whole node once and gives each its task."""

    def __init__(self) -> None:
        self._diag: SockDiag | None = None
        self._broken = False
        self._strangers: set[int] = set()
        self._looks: dict[int, int] = {}  # by cookie: how often its owner was looked for

    def forget(self) -> None:
        """Take no socket for a stranger's any longer: a task was added that had sockets before."""
        self._strangers.clear()

    def read(self, meters: Sequence[NetworkMeter]) -> bool:
        """Bring the sockets of all meters up to date; say whether the kernel answered."""
        try:
            self._read(meters)
            self.read_destroyed(meters)
        except OSError as error:
            if not self._broken:
                log.warning("no network readings: %s", error)
            self._broken = True
            return False
        self._broken = False
        return True

    def read_destroyed(self, meters: Sequence[NetworkMeter]) -> None:
        """Give sockets that were destroyed meanwhile their final counters."""
        if self._diag is None:
            return
        by_cookie = {cookie: meter for meter in meters for cookie in meter.sockets}
        try:
            for found in self._diag.destroyed(by_cookie.__contains__):
                by_cookie[found.cookie].sockets[found.cookie] = _traffic(found)
        except OSError as error:
            log.warning("destroyed sockets go untold: %s", error)

    def close(self) -> None:
        """Close the netlink socket."""
        if self._diag is not None:
            self._diag.close()
            self._diag = None

    def _read(self, meters: Sequence[NetworkMeter]) -> None:
        if self._diag is None:
            self._diag = SockDiag()
        by_cookie = {cookie: meter for meter in meters for cookie in meter.sockets}
        by_cgroup: dict[int | None, NetworkMeter] = {meter.cgroup_id: meter for meter in meters}
        by_cgroup.pop(None, None)
        seen: set[int] = set()
        unowned: dict[int, TcpSocket] = {}  # by inode

        def wanted(cookie: int) -> bool:
            seen.add(cookie)
            return cookie not in self._strangers

        for found in self._diag.dump(wanted):
            meter = by_cookie.get(found.cookie) or by_cgroup.get(found.cgroup_id)
            if meter is not None:
                meter.sockets[found.cookie] = _traffic(found)
            elif found.inode:
                unowned[found.inode] = found
        for meter in meters:
            meter.keep(seen)
        self._strangers &= seen
        self._looks = {cookie: looks for cookie, looks in self._looks.items() if cookie in seen}
        # Not every kernel marks sockets with their cgroup, so descriptors have the last word.
        self._find_owners(unowned, meters)

    def _find_owners(self, unowned: dict[int, TcpSocket], meters: Sequence[NetworkMeter]) -> None:
        if not unowned:
            return
        links_left = LINKS_PER_PASS_MAX
        for meter in meters:
            for pid in meter.tree.processes:
                if links_left <= 0 or not unowned:
                    break
                inodes, looked_at = _socket_inodes(pid)
                links_left -= looked_at
                for inode in inodes & unowned.keys():
                    found = unowned.pop(inode)
                    meter.sockets[found.cookie] = _traffic(found)
        if links_left > 0:
            self._count_looks(unowned)

    def _count_looks(self, unowned: dict[int, TcpSocket]) -> None:
        for found in unowned.values():
            looks = self._looks.pop(found.cookie, 0) + 1
            if looks < OWNER_LOOKS_MAX:
                self._looks[found.cookie] = looks
            else:
                self._strangers.add(found.cookie)


def parse_net_dev(text: bytes) -> Traffic:
    """Sum /proc/PID/net/dev over all interfaces but loopback."""
    received = sent = 0
    for line in text.splitlines()[2:]:
        name, _, numbers = line.partition(b":")
        if name.strip() != b"lo":
            fields = numbers.split()
            received += int(fields[0])
            sent += int(fields[8])
    return Traffic(received, sent)


def _traffic(found: TcpSocket) -> Traffic:
    return Traffic(found.received_bytes, found.sent_bytes)


def _total(parts: Sequence[Traffic]) -> Traffic:
    return Traffic(sum(part.received_bytes for part in parts), sum(part.sent_bytes for part in parts))


def _socket_inodes(pid: int) -> tuple[set[int], int]:
    """Return the inodes of the sockets a process holds, and how many descriptors it has."""
    inodes: set[int] = set()
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:  # gone, or not for us
        return inodes, 1
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(int(target[8:-1]))
    return inodes, len(names)


def _namespace(pid: int | str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def _cgroup_id(cgroup: CgroupDirs | None) -> int | None:
    """Return the id by which the kernel marks sockets made in the task's cgroup; only v2 has one."""
    if cgroup is None or cgroup.unified is None:
        return None
    try:
        return cgroup.unified.stat().st_ino
    except OSError:
        return None


HOST_NAMESPACE = _namespace("self")
