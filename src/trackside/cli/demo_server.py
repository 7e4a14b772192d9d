"""Knows how the demo brings a server up as its child, and takes everything down again."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from trackside.cli import settings
from trackside.cli.api import Api
from trackside.cli.client import Client
from trackside.cli.errors import CliError, ExitCode
from trackside.cli.session import Session

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.1
DEFAULT_PORT = 8470
LOG_LINES_SHOWN = 15


class DemoServer:
    """A server of our own: on leaving, its jobs, itself and its agent are gone."""

    def __init__(self, session: Session, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._session = session
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "DemoServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl+C must not leave half of it running.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.stop()

    def start(self, port: int | None) -> None:
        """Start the server and wait until it takes jobs; the session then speaks to it."""
        self._refuse_second()
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        asked = (DEFAULT_PORT if _free(DEFAULT_PORT) else 0) if port is None else port
        command = [sys.executable, "-m", "trackside", "serve", "--port", str(asked)]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("TRACKSIDE_")}
        with self._log.open("wb") as log:
            # A session of its own: Ctrl+C is for us, and we stop the server in order.
            self._process = subprocess.Popen(
                [*command, "--data-dir", str(self.data_dir)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._wait_ready(self._process)
        self._session.talk(f"Started a server at {self._session.api.endpoint} (data in {self.data_dir})")

    def stop(self) -> None:
        """End jobs, server and agent; nothing is left but the data directory."""
        from trackside.agent.control import stop_agent

        if self._process is None:
            return
        with contextlib.suppress(OSError):  # who closed the terminal is not told, but nothing is left either
            self._session.talk("Stopping the jobs, the server and its agent")
        if self._process.poll() is None:
            self._stop_jobs()
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        stop_agent(self.data_dir, with_tasks=True)
        self._process = None

    @property
    def _log(self) -> Path:
        return self.data_dir / "server.log"

    def _refuse_second(self) -> None:
        from trackside.agent.control import agent_pid

        if not self.data_dir.is_dir() or agent_pid(self.data_dir) is None:
            return
        raise CliError(
            f"Trackside already runs on {self.data_dir}",
            code=ExitCode.REFUSED,
            hint=f"choose another --data-dir, or end it: trackside agent stop --data-dir {self.data_dir}",
        )

    def _wait_ready(self, process: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise self._trouble(f"the server ended with code {process.returncode}")
            if self._announced(process.pid):
                # The session's --server and the environment name other servers; the demo has its own.
                api = Api(Client(settings.read(self.data_dir / "credentials.json")))
                with contextlib.suppress(CliError):
                    if api.client.raw("/readyz")[0] < 400:
                        self._session.use(api)
                        return
            time.sleep(POLL_SECONDS)
        raise self._trouble(f"the server was not ready within {START_SECONDS_MAX:.0f} s")

    def _announced(self, pid: int) -> bool:
        try:
            told = json.loads((self.data_dir / "server.json").read_text())
        except (OSError, ValueError):
            return False
        return bool(told.get("pid") == pid)

    def _trouble(self, what: str) -> CliError:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return CliError(
            "\n".join([f"{what}:", *(f"  {line}" for line in lines)]),
            code=ExitCode.UNEXPECTED,
            hint=f"its whole log: {self._log}",
        )

    def _stop_jobs(self) -> None:
        from trackside.cli.words import ACTIVE_PHASES

        with contextlib.suppress(CliError):  # what cannot be asked to stop is killed with the agent
            api = self._session.api
            active = list(api.all_jobs(states=tuple(sorted(ACTIVE_PHASES)), most=1000))
            for job in active:
                api.stop(job.id)
            deadline = time.monotonic() + STOP_SECONDS_MAX
            while active and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                active = [job for job in active if not api.job(job.id).final]


def _free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
