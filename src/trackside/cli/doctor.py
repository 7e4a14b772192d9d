"""The verb that checks an installation: each finding is ok, warn or fail, with what to do about it."""

import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import typer

from trackside.cli.errors import CliError, ExitCode
from trackside.cli.session import Column, Session, verb
from trackside.cli.settings import data_dir
from trackside.domain.wording import counted, duration_text, size_text

PYTHON_MIN = (3, 11)
FREE_BYTES_LOW = 5 * 1024**3
FREE_BYTES_NONE = 256 * 1024**2
SKEW_SECONDS_WARN = 60
SKEW_SECONDS_FAIL = 900  # the server's window for signatures
SILENT_MS = 60_000
ICONS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✕", "red")}


class Finding(NamedTuple):
    """One checked thing."""

    level: str  # ok, warn or fail
    what: str
    text: str
    todo: str = ""


@verb
def doctor(session: Session) -> None:
    """Check this machine and the server: what works, what does not, what to do."""
    findings = [finding for check in CHECKS for finding in check(session)]
    if session.as_json:
        session.emit({"findings": [finding._asdict() for finding in findings]})
    else:
        _table(session, findings)
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(ExitCode.UNEXPECTED)


def _table(session: Session, findings: list[Finding]) -> None:
    def icon(finding: Finding) -> str:
        return session.paint(*ICONS[finding.level])

    session.table(
        [
            Column("", icon, only="tty"),
            Column("CHECK", lambda finding: finding.what),
            Column("RESULT", lambda finding: finding.level),
            Column(
                "FOUND",
                lambda finding: f"{finding.text} → {finding.todo}" if finding.todo else finding.text,
                lambda finding: finding.text,
            ),
            Column("TO DO", lambda finding: finding.todo, only="pipe"),
        ],
        findings,
    )


def check_python(_session: Session) -> Iterator[Finding]:
    """Check the interpreter."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < PYTHON_MIN:
        yield Finding("fail", "python", version, "use Python 3.11 or newer")
    else:
        yield Finding("ok", "python", version)


def check_data_dir(_session: Session) -> Iterator[Finding]:
    """Check that the data directory is ours alone, and how much fits in it."""
    place = data_dir()
    try:
        mode = stat.S_IMODE(place.stat().st_mode)
    except FileNotFoundError:
        yield Finding("ok", "data directory", f"{place} is not there yet; trackside serve makes it")
    except OSError as error:
        yield Finding(
            "fail", "data directory", f"{place}: {error.strerror}", "check its owner and its parents"
        )
        return
    else:
        if mode & 0o077:
            yield Finding(
                "fail", "data directory", f"{place} is open to others ({mode:04o})", f"chmod 700 {place}"
            )
        elif not os.access(place, os.W_OK | os.X_OK):
            yield Finding("fail", "data directory", f"{place} cannot be written", "run as its owner")
        else:
            yield Finding("ok", "data directory", f"{place}, {mode:04o}")
        yield from _check_credentials(place / "credentials.json")
    yield _free(place)


def _check_credentials(path: Path) -> Iterator[Finding]:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & 0o077:
        yield Finding(
            "fail", "credentials", f"{path} can be read by others ({mode:04o})", f"chmod 600 {path}"
        )
    else:
        yield Finding("ok", "credentials", f"{path}, {mode:04o}")


def _free(place: Path) -> Finding:
    there = next(parent for parent in (place, *place.parents) if parent.exists())
    free = shutil.disk_usage(there).free
    text = f"{size_text(free)} free at {there}"
    if free < FREE_BYTES_NONE:
        return Finding("fail", "disk", text, "make room: logs and metrics can no longer be kept")
    if free < FREE_BYTES_LOW:
        return Finding("warn", "disk", text, "delete old jobs (trackside rm) or make room")
    return Finding("ok", "disk", text)


def check_server(session: Session) -> Iterator[Finding]:
    """Check that the server answers, agrees on the time, knows us, and has agents."""
    try:
        client = session.api.client
        status, content, headers = client.raw("/readyz")
    except CliError as error:
        yield Finding("fail", "server", error.message, error.hint or "")
        return
    if status == HTTPStatus.NOT_FOUND:
        strange = f"{session.api.endpoint} does not answer like a Trackside server of this version"
        yield Finding("fail", "server", strange, "check the address")
        return
    if status >= 400:
        told = content.decode(errors="replace").strip()[:200]
        yield Finding(
            "fail", "server", f"{session.api.endpoint} is not ready ({status}): {told}", "see its log"
        )
    else:
        yield Finding("ok", "server", f"{session.api.endpoint} is ready")
    yield from _check_clock(headers.get("date"))
    yield from _check_agents(session)


def _check_clock(date: str | None) -> Iterator[Finding]:
    if not date:
        yield Finding("warn", "clock", "the server does not tell its time", "compare the clocks by hand")
        return
    skew = abs(time.time() - parsedate_to_datetime(date).timestamp())
    # The Date header counts whole seconds, so less than two tells nothing.
    text = f"{duration_text(int(skew) * 1000) if skew >= 2 else 'less than 2 s'} apart from the server's"
    if skew > SKEW_SECONDS_FAIL:
        yield Finding("fail", "clock", text, "set this machine's clock: signatures are refused after 15 min")
    elif skew > SKEW_SECONDS_WARN:
        yield Finding("warn", "clock", text, "keep both clocks with NTP")
    else:
        yield Finding("ok", "clock", text)


def _check_agents(session: Session) -> Iterator[Finding]:
    try:
        nodes = session.api.nodes()
    except CliError as error:
        yield Finding("fail", "signed in", error.message, error.hint or "")
        return
    yield Finding("ok", "signed in", f"project {session.api.client.settings.project_id}")
    if not nodes:
        yield Finding("fail", "agent", "no machine has reported", "trackside agent status")
    now = session.now_ms()
    for node in nodes:
        silent = now - int(node.get("last_seen_ms") or 0)
        size = f"{node.get('cpu_cores', 0):g} cores, {size_text(node.get('memory_bytes', 0))}"
        if silent > SILENT_MS:
            todo = "is it up? there: trackside agent status"
            yield Finding("fail", "agent", f"{node.get('id')} silent for {duration_text(silent)}", todo)
        else:
            yield Finding(
                "ok", "agent", f"{node.get('id')}: {size}, heard of within {duration_text(SILENT_MS)}"
            )


def check_limits(_session: Session) -> Iterator[Finding]:
    """Check whether this machine can hold tasks to their limits, and as whom they run."""
    from trackside.agent.cgroup import Cgroups, detect

    bases = detect()
    Cgroups(bases).remove_parents()
    if bases.limits_memory:
        yield Finding("ok", "limits", "memory and CPU limits of jobs are enforced (control groups)")
    else:
        yield Finding(
            "warn",
            "limits",
            "no control groups can be made here: jobs are not held to their memory and CPU",
            "run as root, or let systemd delegate a group to this user",
        )
    yield from _check_task_user()


def _check_task_user() -> Iterator[Finding]:
    from trackside.agent.sandbox import DEFAULT_TASK_USER, NoSuchUser, identity

    try:
        who = identity(DEFAULT_TASK_USER)
    except NoSuchUser as error:
        yield Finding("fail", "task user", str(error), "useradd --system NAME, then task_user: NAME")
        return
    if who.uid == 0:
        yield Finding("warn", "task user", "tasks run as root", "set task_user to an unprivileged user")
    else:
        how = "tasks run as" if who.drop else "not root: tasks run as the same user,"
        yield Finding("ok", "task user", f"{how} {who.name} (uid {who.uid})")


def check_optional(_session: Session) -> Iterator[Finding]:
    """Check what is nice to have: PostgreSQL's driver, NVML."""
    import importlib.util

    if importlib.util.find_spec("psycopg") is None:
        yield Finding(
            "ok", "postgresql", "no driver: SQLite only (pip install 'trackside[postgres]' adds it)"
        )
    else:
        yield Finding("ok", "postgresql", "the driver is here: database_url may name a server")
    yield _nvml()


def _nvml() -> Finding:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Finding("ok", "gpu", f"no NVIDIA GPUs here ({error})")
    try:
        return Finding("ok", "gpu", counted(int(pynvml.nvmlDeviceGetCount()), "NVIDIA GPU"))
    finally:
        pynvml.nvmlShutdown()


CHECKS: tuple[Callable[[Session], Iterator[Finding]], ...] = (
    check_python,
    check_data_dir,
    check_server,
    check_limits,
    check_optional,
)
