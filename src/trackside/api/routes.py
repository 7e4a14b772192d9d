"""Knows which operation a method and a path mean; knows nothing of what operations do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

PATHS_CACHED = 2048
CACHED_PATH_BYTES_MAX = 256

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Missed:
    """No operation: whose territory it was, and which methods the path knows."""

    dialect: int | None  # its position; None: nobody's
    allow: tuple[str, ...] = ()


class _Node(Generic[T]):
    __slots__ = ("children", "dialect", "leaves", "parameter")

    def __init__(self, dialect: int | None) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.parameter: _Node[T] | None = None
        self.leaves: dict[str, tuple[T, tuple[str, ...]]] = {}  # by method: what, names of its parameters
        self.dialect = dialect


class Routes(Generic[T]):
    """A tree of path segments: at each step a literal segment wins over a parameter."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node(None)
        # Who watches a job asks for the same path again and again.
        self._find_again = lru_cache(maxsize=PATHS_CACHED)(self._find)

    def add(self, method: str, path: str, target: T, *, dialect: int) -> None:
        """Add a route; a path parameter is a whole segment: `/v2/{project_id}/jobs`."""
        node, names = self._root, []
        for segment in path.split("/")[1:]:
            if segment.startswith("{") and segment.endswith("}"):
                names.append(segment[1:-1])
                node.parameter = node.parameter or _Node(dialect)
                node = node.parameter
            else:
                node = node.children.setdefault(segment, _Node(dialect))
        if method in node.leaves:
            raise ValueError(f"two operations answer {method} {path}")
        node.leaves[method] = (target, tuple(names))
        self._find_again.cache_clear()

    def find(self, method: str, raw_path: bytes) -> tuple[T, Mapping[str, str]] | Missed:
        """Return what answers, with the decoded path parameters; HEAD is answered by GET."""
        if len(raw_path) <= CACHED_PATH_BYTES_MAX:
            return self._find_again(method, raw_path)
        return self._find(method, raw_path)

    def _find(self, method: str, raw_path: bytes) -> tuple[T, Mapping[str, str]] | Missed:
        segments = _segments(raw_path)
        if segments is None:
            return Missed(self._territory(raw_path.decode("latin-1").split("/")))
        values: list[str] = []
        leaf = _straight(self._root, segments, method, values)
        if leaf is None:
            values.clear()
            leaf = _leaf(self._root, segments, 1, method, values)
        if leaf is None and method == "HEAD":
            leaf = _leaf(self._root, segments, 1, "GET", values)
        if leaf is None:
            methods: set[str] = set()
            _collect_methods(self._root, segments, 1, methods)
            return Missed(self._territory(segments), _allow(methods))
        target, names = leaf
        return target, MappingProxyType(dict(zip(names, values, strict=True)))

    def _territory(self, segments: Sequence[str]) -> int | None:
        """Return the dialect that owns the longest known beginning of the path."""
        node = self._root
        for segment in segments[1:]:
            child = node.children.get(segment) or (node.parameter if segment else None)
            if child is None:
                break
            node = child
        return node.dialect


def _segments(raw_path: bytes) -> list[str] | None:
    """Split and decode a path; None if a segment cannot name anything: a slash, a NUL, not UTF-8."""
    if b"%" not in raw_path:
        return raw_path.decode("latin-1").split("/")
    try:
        segments = [unquote_to_bytes(part).decode() for part in raw_path.split(b"/")]
    except UnicodeDecodeError:
        return None
    return None if any("/" in segment or "\0" in segment for segment in segments) else segments


def _straight(
    node: _Node[T], segments: Sequence[str], method: str, values: list[str]
) -> tuple[T, tuple[str, ...]] | None:
    """Follow the first choice at every step: enough for nearly every request, and faster."""
    for segment in segments[1:]:
        child = node.children.get(segment)
        if child is None:
            child = node.parameter
            if child is None or not segment:
                return None
            values.append(segment)
        node = child
    return node.leaves.get(method)


def _leaf(
    node: _Node[T], segments: Sequence[str], index: int, method: str, values: list[str]
) -> tuple[T, tuple[str, ...]] | None:
    if index == len(segments):
        return node.leaves.get(method)
    segment = segments[index]
    child = node.children.get(segment)
    if child is not None:
        found = _leaf(child, segments, index + 1, method, values)
        if found is not None:
            return found
    if node.parameter is None or not segment:
        return None
    values.append(segment)
    found = _leaf(node.parameter, segments, index + 1, method, values)
    if found is None:
        values.pop()
    return found


def _collect_methods(node: _Node[T], segments: Sequence[str], index: int, methods: set[str]) -> None:
    if index == len(segments):
        methods.update(node.leaves)
        return
    child = node.children.get(segments[index])
    if child is not None:
        _collect_methods(child, segments, index + 1, methods)
    if node.parameter is not None and segments[index]:
        _collect_methods(node.parameter, segments, index + 1, methods)


def _allow(methods: set[str]) -> tuple[str, ...]:
    if not methods:
        return ()
    return tuple(sorted(methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())))
