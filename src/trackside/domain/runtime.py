"""Knows what a prepared environment is, in which tasks can run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A prepared environment that an engine id, a name or an image maps to."""

    id: str
    name: str
    version: str
    images: tuple[str, ...] = ()  # patterns of image references it stands for
    path_prefix: tuple[str, ...] = ()  # directories put first on PATH
    environment: tuple[tuple[str, str], ...] = ()
