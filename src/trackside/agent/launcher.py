"""Knows how to reach the forker, and how to bring one up when there is none."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import trackside
from trackside.agent import forker, record, tree

BACKLOG = 4096
END_SECONDS_MAX = 2.0
SWEEP_ANSWER_SECONDS_MAX = 2 * forker.SWEEP_SECONDS_MAX

_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from trackside.agent.forker import main; "
    "main(sys.argv[2], int(sys.argv[3]))"
)
_log = logging.getLogger(__name__)


class Launcher:
    """Ask the forker for shims."""

    def __init__(self, agent_dir: Path) -> None:
        self._agent_dir = agent_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    def ask(self, state_dir: Path) -> socket.socket:
        """Ask for the shim of a task; it begins when GO is sent, and closes its end once there is news."""
        connection = self._connected()
        with contextlib.suppress(ConnectionError):  # it died in this moment: its closed end is news too
            connection.send(os.fsencode(state_dir))
        return connection

    def sweep(self) -> int:
        """Have what killed shims left behind killed; return how many processes would not go."""
        with self._connected() as connection:
            connection.settimeout(SWEEP_ANSWER_SECONDS_MAX)
            connection.send(forker.SWEEP)
            return int(connection.recv(64) or b"0")

    def warm_up(self) -> None:
        """Bring a forker up if there is none."""
        self._connected().close()

    def _connected(self) -> socket.socket:
        connection = self._connect()
        if connection is None:
            with self._starting:  # two threads may find it dead at once
                connection = self._connect()
                if connection is None:
                    self._start()
                    connection = self._connect()
        if connection is None:
            raise ConnectionRefusedError("the process that starts tasks does not answer")
        return connection

    def _connect(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        directory_fd = os.open(self._agent_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(_address(directory_fd))
        except (ConnectionRefusedError, FileNotFoundError):
            connection.close()
            return None
        finally:
            os.close(directory_fd)
        return connection

    def _start(self) -> None:
        """Start a forker that inherits a socket which already listens: no need to wait for it."""
        self._end_unreachable()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS_MAX)  # take its exit status
        path = self._agent_dir / forker.SOCKET
        path.unlink(missing_ok=True)
        directory_fd = os.open(self._agent_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
            open(self._agent_dir / "forker.log", "ab") as log,
        ):
            listener.bind(_address(directory_fd))
            os.close(directory_fd)
            listener.listen(BACKLOG)
            root = str(Path(trackside.__file__).parent.parent)
            fd = listener.fileno()
            command = [sys.executable, "-I", "-S", "-c", _BOOT, root, str(self._agent_dir), str(fd)]
            self._process = subprocess.Popen(
                command,
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={},
                start_new_session=True,
            )
        _log.info("started the forker, process %d", self._process.pid)

    def _end_unreachable(self) -> None:
        """End a forker whose socket was taken away: it keeps nothing, and its shims live on."""
        lock = str(self._agent_dir / forker.LOCK)
        deadline = time.monotonic() + END_SECONDS_MAX
        while (pid := record.lock_holder(lock)) is not None and time.monotonic() < deadline:
            tree.send([pid], signal.SIGKILL)
            time.sleep(0.005)


def _address(directory_fd: int) -> str:
    """Name the socket by its directory's descriptor: socket addresses hold only 107 bytes."""
    return f"/proc/self/fd/{directory_fd}/{forker.SOCKET}"
