"""Knows what a data directory must hold before a server can start, and makes it on the first start."""

import json
import os
import secrets
import uuid
from pathlib import Path
from typing import Any

from trackside.auth.tokens import digest, new_access_key, new_secret_key, new_token
from trackside.domain.errors import Invalid
from trackside.domain.identity import User, UserRole
from trackside.domain.job import ProjectId
from trackside.ports import IdentityStore
from trackside.service.users import NewUser

FIRST_PROJECT = "default"
FIRST_USER = "admin"
CREDENTIALS = "credentials.json"
SERVER_FILE = "server.json"
_DIRECTORIES = ("agent", "agent/tasks", "agent/spool", "logs", "work", "obs")


def prepare(data_dir: Path) -> None:
    """Make the data directory and its parts, for nobody else's eyes."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if data_dir.stat().st_uid != os.geteuid():
        raise Invalid(f"{data_dir} belongs to another user: choose another --data-dir")
    data_dir.chmod(0o700)
    for name in _DIRECTORIES:
        (data_dir / name).mkdir(mode=0o700, exist_ok=True)


def kept_secret(path: Path) -> str:
    """Return the secret kept in a file, made on first use."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """Replace a file whole, readable by its owner alone."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)


def make_user(name: str, project_id: ProjectId, role: UserRole) -> NewUser:
    """Return a user with fresh keys."""
    token = new_token()
    user = User(
        name=name,
        project_id=project_id,
        role=role,
        access_key=new_access_key(),
        secret_key=new_secret_key(),
        token_digest=digest(token),
    )
    return NewUser(user=user, token=token)


async def first_identities(store: IdentityStore, data_dir: Path) -> None:
    """Make one project and one admin if there is nobody yet, and leave their keys in credentials.json."""
    if await store.users():
        return
    project_id = ProjectId(uuid.uuid4().hex)
    made = make_user(FIRST_USER, project_id, UserRole.ADMIN)
    # The file comes first: an admin whose keys nobody knows would be of no use.
    _write_credentials(
        data_dir,
        project_id=project_id,
        access_key=made.user.access_key,
        secret_key=made.user.secret_key,
        token=made.token,
    )
    await store.put_project(project_id, FIRST_PROJECT)
    await store.put_user(made.user)


def announce(data_dir: Path, endpoint: str) -> None:
    """Tell agents and local clients where the server listens now."""
    write_private(data_dir / SERVER_FILE, json.dumps({"endpoint": endpoint, "pid": os.getpid()}))
    _write_credentials(data_dir, endpoint=endpoint)


def _write_credentials(data_dir: Path, **fields: Any) -> None:
    path = data_dir / CREDENTIALS
    known = json.loads(path.read_text()) if path.exists() else {}
    write_private(path, json.dumps(known | fields, indent=2) + "\n")
