"""How code, inputs and outputs are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object below a URL: its path relative to it."""

    path: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Holds code, inputs and outputs under obs://bucket/key."""

    def check_url(self, url: str) -> None:
        """Raise Invalid if the URL is not a plain place in the store."""
        ...

    async def exists(self, url: str) -> bool:
        """Say whether there is an object at, or below, the URL."""
        ...

    def list(self, url: str) -> Sequence[ObjectInfo]:
        """Return the objects below a URL."""
        ...

    def download(self, url: str, to: Path) -> int:
        """Copy everything at or below the URL into the directory; return how many objects."""
        ...

    def upload_file(self, from_fd: int, url: str) -> None:
        """Store one file's content at the URL, replacing it whole."""
        ...

    def link(self, url: str, *, seconds: int) -> str:
        """Return an address where the object can be read for a while."""
        ...
