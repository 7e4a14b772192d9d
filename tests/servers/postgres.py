"""Starts a real, throw-away PostgreSQL on a loopback port, with a password, as an unprivileged user."""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
from tests.requirements import missing

INSTALL_HINT = "PostgreSQL is not installed: apt-get install postgresql"
START_TRIES_MAX = 5  # a free port may be taken before the server binds it


def find_binaries() -> Path | None:
    """Return the directory with initdb and pg_ctl, the newest version first."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name, reverse=True
    )
    on_path = shutil.which("pg_ctl")
    places = [*versions, *([Path(on_path).resolve().parent] if on_path else [])]
    return next(
        (place for place in places if (place / "initdb").exists() and (place / "pg_ctl").exists()), None
    )


class PostgresServer:
    """One server with its own data directory."""

    def __init__(self) -> None:
        binaries = find_binaries()
        if binaries is None:
            missing(INSTALL_HINT)
        self._binaries = binaries
        self._user = _unprivileged_user()
        self._directory = Path(tempfile.mkdtemp(prefix="trackside-postgres-"))
        self.password = secrets.token_urlsafe(16)
        self.port = 0
        if self._user:
            shutil.chown(self._directory, self._user)
        self._initdb()
        self._start_somewhere()

    def create_database(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self._conninfo(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql+psycopg://postgres:{self.password}@127.0.0.1:{self.port}/{name}"

    def drop_database(self, url: str) -> None:
        """Remove a database, whoever is still connected."""
        name = url.rpartition("/")[2]
        with psycopg.connect(self._conninfo(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def start(self) -> None:
        """Start on the port of before and wait until it answers."""
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories={self._directory}"
        )
        # Losing power is not what these tests are about, and syncing is what would make them slow.
        self._run("pg_ctl", "-D", self._data, "-l", self._log, "-w", "-o", f"{options} -c fsync=off", "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop; `immediate` is a crash: every connection breaks."""
        self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "stop")

    def remove(self) -> None:
        """Stop and leave nothing behind."""
        self.stop()
        shutil.rmtree(self._directory)

    @property
    def _data(self) -> str:
        return str(self._directory / "data")

    @property
    def _log(self) -> str:
        return str(self._directory / "log")

    def _conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres password={self.password} dbname=postgres"

    def _initdb(self) -> None:
        password_file = self._directory / "password"
        password_file.write_text(self.password)
        if self._user:
            shutil.chown(password_file, self._user)
        options = ["-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(password_file)]
        self._run("initdb", "-D", self._data, *options, "-E", "UTF8", "--no-locale", "--no-sync")
        password_file.unlink()

    def _start_somewhere(self) -> None:
        for left in reversed(range(START_TRIES_MAX)):
            self.port = _free_port()
            try:
                self.start()
            except subprocess.CalledProcessError:
                if not left:
                    shutil.rmtree(self._directory)
                    raise
            else:
                return

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        quiet = subprocess.DEVNULL  # a pipe would stay open as long as the server lives
        environment = {**os.environ, "LC_ALL": "C"}
        subprocess.run(
            command,
            check=True,
            stdout=quiet,
            stderr=quiet,
            cwd="/",
            user=self._user,
            group=self._group,
            env=environment,
        )

    @property
    def _group(self) -> int | None:
        return pwd.getpwnam(self._user).pw_gid if self._user else None


def _unprivileged_user() -> str | None:
    """Return whom to run as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
