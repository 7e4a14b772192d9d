"""Starts a throw-away server program on a loopback port and waits until it answers."""

import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.requirements import missing

START_SECONDS = 30.0
START_TRIES_MAX = 5  # a free port may be taken before the server binds it


class ServerProcess:
    """One server with its own directory, killed and removed at the end."""

    def __init__(
        self, program: str, package: str, command: Callable[[Path, int], Sequence[str]], *, ready: str
    ) -> None:
        found = shutil.which(program)
        if found is None:
            missing(f"{program} is not installed: apt-get install {package}")
        self._program = found
        self._command = command
        self._ready = ready
        self.directory = Path(tempfile.mkdtemp(prefix=f"trackside-{program}-"))
        self._process: subprocess.Popen[bytes] | None = None
        for left in reversed(range(START_TRIES_MAX)):
            self.port = _free_port()
            if self.start():
                return
            if not left:
                log = (self.directory / "log").read_text()
                self.remove()
                raise AssertionError(f"{program} did not start:\n{log[-2000:]}")

    @property
    def url(self) -> str:
        """Return where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> bool:
        """Start on the port; say whether it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, *self._command(self.directory, self.port)],
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + self._ready, timeout=5):
                    return True
            except urllib.error.HTTPError as error:
                error.close()
            except OSError:
                pass
            time.sleep(0.02)
        self.kill()
        return False

    def stop(self) -> None:
        """Let it end in order; what it stored stays."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=START_SECONDS)

    def kill(self) -> None:
        """Kill it where it stands; what it stored stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        """Kill it and leave nothing behind."""
        self.kill()
        shutil.rmtree(self.directory)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
