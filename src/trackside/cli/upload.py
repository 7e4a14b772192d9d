"""Knows how a local directory becomes code in the object store; the server does the storing."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from trackside.cli.api import Api
from trackside.cli.errors import Refused
from trackside.domain.wording import counted, size_text

BUCKET = "code"
FILES_MAX = 2000
BYTES_MAX = 256 * 1024 * 1024
SKIPPED_DIRS = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".demo"}
)


def upload_code(api: Api, directory: Path, name: str) -> tuple[str, str]:
    """Upload a directory; return its obs:// address and one sentence about what was sent.

    The address holds a digest of the content: the same code lands in the same place, other code never does.
    """
    files = read_tree(directory)
    digest = hashlib.sha256()
    for path, content in files.items():
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    base = f"{name}/{digest.hexdigest()[:16]}"
    put_tree(api, BUCKET, base, files)
    sent = sum(len(content) for content in files.values())
    return f"obs://{BUCKET}/{base}/", f"{counted(len(files), 'file')}, {size_text(sent)}, from {directory}"


def put_tree(api: Api, bucket: str, base: str, files: dict[str, bytes]) -> None:
    """Store files below a key."""
    for path, content in files.items():
        api.put_object(bucket, f"{base}/{path}" if base else path, content)


def read_tree(directory: Path) -> dict[str, bytes]:
    """Return every file of a directory by its path below it, or say what makes it too much."""
    if not directory.is_dir():
        raise Refused(f"code: {directory} is not a directory")
    files: dict[str, bytes] = {}
    total = 0
    for path in _walk(directory):
        total += path.stat().st_size
        if len(files) >= FILES_MAX or total > BYTES_MAX:
            raise Refused(
                f"code: {directory} holds more than {FILES_MAX:,} files or {size_text(BYTES_MAX)}",
                "point it at the code alone, and give data as inputs",
            )
        try:
            files[path.relative_to(directory).as_posix()] = path.read_bytes()
        except OSError as error:
            raise Refused(f"code: cannot read {path}: {error.strerror}") from error
    if not files:
        raise Refused(f"code: {directory} is empty")
    return files


def _walk(directory: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(directory):
        below[:] = sorted(name for name in below if name not in SKIPPED_DIRS)
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file():  # a link to a file counts as the file; pipes and sockets are no code
                yield path
