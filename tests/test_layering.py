"""The arrows of ARCHITECTURE.md, checked: imports point inward and dialects do not know each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "trackside"
ADAPTERS = (
    "engine",
    "agent",
    "collect",
    "metricstore",
    "persistence",
    "auth",
    "objectstore",
    "logstore",
    "notify",
)
ALLOWED: dict[str, tuple[str, ...]] = {
    "domain": ("domain",),
    "ports": ("domain", "ports"),
    "schedule": ("domain", "schedule"),
    "service": ("domain", "ports", "service"),
    "supervise": ("domain", "ports", "schedule", "supervise"),
    "api": ("domain", "ports", "service", "api"),
    "config": ("domain",),
    **{name: ("domain", "ports", name) for name in ADAPTERS},
}
ALSO = {"agent": ("collect", "objectstore"), "api": ("auth",), "cli": (), "wiring": ()}
DIALECTS = ("modelarts_v1", "modelarts_v2", "pai_dlc", "iam", "native")


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SRC.rglob("*.py")):
        yield path.relative_to(SRC).with_suffix("").as_posix().replace("/", "."), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize(("module", "path"), list(modules()))
def test_imports_point_inward(module: str, path: Path) -> None:
    part = module.split(".")[0]
    if part not in ALLOWED:
        return
    allowed = ALLOWED[part] + ALSO.get(part, ())
    for name in imports(path):
        if name.startswith("trackside."):
            assert name.split(".")[1] in allowed, f"{module} imports {name}"


@pytest.mark.parametrize(
    ("module", "path"), [row for row in modules() if row[0].startswith(("domain", "schedule"))]
)
def test_the_domain_imports_only_the_standard_library_and_reads_no_clock(module: str, path: Path) -> None:
    import sys

    for name in imports(path):
        top = name.split(".")[0]
        assert top == "trackside" or top in sys.stdlib_module_names, f"{module} imports {name}"
        assert top not in ("time", "asyncio", "socket", "subprocess", "threading"), f"{module} imports {name}"


@pytest.mark.parametrize(("module", "path"), [row for row in modules() if row[0].startswith("api.")])
def test_dialects_do_not_know_each_other(module: str, path: Path) -> None:
    mine = module.split(".")[1]
    for name in imports(path):
        parts = name.split(".")
        if mine in DIALECTS and parts[:2] == ["trackside", "api"] and len(parts) > 2 and parts[2] in DIALECTS:
            assert parts[2] == mine, f"{module} imports {name}"
