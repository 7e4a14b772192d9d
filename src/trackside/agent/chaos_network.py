"""Knows how to cut one task off from the network, loopback included, and how to let it back.

The kernel is given a program of two instructions, "drop this", for the packets of the task's control group.
It is bound to a descriptor of ours: when the agent ends, however it ends, the kernel takes the program away.
"""

import ctypes
import os
import platform
import struct
import threading

from trackside.agent.chaos import lasting
from trackside.agent.errands import Cannot, Target
from trackside.domain.exchange import Errand

# See bpf(2) and linux/bpf.h.
_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_PROG_LOAD, _LINK_CREATE = 5, 28
_CGROUP_SKB = 8
_INGRESS, _EGRESS = 0, 1
_DROP = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)  # r0 = 0; exit
_LICENSE = b"Apache-2.0"
_ATTR_BYTES = 128

_libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """Cut tasks off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[str, list[int]] = {}  # by errand

    def cut(self, errand: Errand, target: Target) -> str:
        """Drop every packet from and to the task's sockets; connections stay open and fall silent."""
        group = None if target.dirs is None else target.dirs.unified
        if group is None:
            raise Cannot(
                "the task has no control group of version 2 here, by which its packets could be known"
            )
        links: list[int] = []
        try:
            links.extend(_dropping(str(group), direction) for direction in (_EGRESS, _INGRESS))
        except OSError as error:
            _close(links)
            raise Cannot(f"this system lets the agent drop no packets of a task: {error.strerror}") from error
        with self._lock:
            self._links[errand.id] = links
        return f"every packet from and to it is dropped{lasting(errand)}"

    def join(self, errand: Errand, target: Target) -> None:
        """Let the task's packets pass."""
        del target
        with self._lock:
            links = self._links.pop(errand.id, [])
        _close(links)


def _dropping(group: str, direction: int) -> int:
    """Have the packets of a group dropped one way; return what holds it."""
    code, license_name = ctypes.create_string_buffer(_DROP), ctypes.create_string_buffer(_LICENSE)
    load = struct.pack(
        "<IIQQIIQII16sII",
        *(_CGROUP_SKB, len(_DROP) // 8, ctypes.addressof(code), ctypes.addressof(license_name)),
        *(0, 0, 0, 0, 0, b"trackside", 0, direction),
    )
    program = _bpf(_PROG_LOAD, load)
    try:
        group_fd = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _bpf(_LINK_CREATE, struct.pack("<IIII", program, group_fd, direction, 0))
        finally:
            os.close(group_fd)
    finally:
        os.close(program)


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(38, os.strerror(38))
    held = ctypes.create_string_buffer(attributes.ljust(_ATTR_BYTES, b"\0"), _ATTR_BYTES)
    answer: int = _libc.syscall(
        ctypes.c_long(number), ctypes.c_long(command), held, ctypes.c_ulong(_ATTR_BYTES)
    )
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return answer


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
