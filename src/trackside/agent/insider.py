"""Knows how to reach the process that runs commands inside tasks, and how to bring it up."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import trackside
from trackside.agent.inside import Request

TRIES = 2  # the process may have died since the last request
END_SECONDS_MAX = 2.0

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from trackside.agent.inside import serve; "
    "serve(int(sys.argv[2]))"
)


class Insider:
    """Have commands run inside tasks; used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def begin(self, request: Request, *, seconds_max: float) -> tuple[socket.socket, int]:
        """Have a command run; return the leash, to be closed when it is to end, and its output."""
        ours, theirs = socket.socketpair()
        read_fd, write_fd = os.pipe()
        try:
            self._hand_over(theirs.fileno(), write_fd)
            ours.settimeout(seconds_max)
            ours.sendall(json.dumps(request).encode() + b"\n")
        except BaseException:
            ours.close()
            os.close(read_fd)
            raise
        finally:
            theirs.close()
            os.close(write_fd)
        return ours, read_fd

    def close(self) -> None:
        """Let the process go; what it runs ends with its leashes."""
        with self._lock:
            self._closed = True
            self._end()

    def _hand_over(self, *fds: int) -> None:
        with self._lock:
            if self._closed:  # a reading that was about to begin
                raise OSError(errno.ESHUTDOWN, os.strerror(errno.ESHUTDOWN))
            for left in reversed(range(TRIES)):
                control = self._control = self._control or self._start()
                try:
                    socket.send_fds(control, [b"!"], list(fds))
                except OSError:
                    self._end()
                    if not left:
                        raise
                else:
                    return

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(trackside.__file__).parent.parent)
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, root, str(fd)],
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
        return ours

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS_MAX)
            self._process.kill()
            self._process.wait()
            self._process = None
