"""The docs say what there is, and only what there is."""

import re
from pathlib import Path
from typing import Any

import pytest

from trackside.api.iam import routes as iam
from trackside.api.native import chaos, downloads, notify, policies, pools, stacks
from trackside.api.native import routes as native
from trackside.api.native.agent_link import AgentLink
from trackside.config import Settings, load_settings
from trackside.domain.metric import Metric
from trackside.domain.reason import ReasonCode

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def rows(file: str, heading: str = "") -> list[str]:
    """Return the first cells of the tables of a page (or of one of its sections)."""
    text = (DOCS / file).read_text()
    if heading:
        text = text.split(heading, 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| ([^|]+) \|", text, re.M)
    return [cell.strip() for cell in cells if set(cell) - set("- ")]


def names_in(cells: list[str]) -> set[str]:
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_setting_is_documented_and_nothing_else() -> None:
    documented = names_in([cell for cell in rows("configuration.md") if cell.startswith("`")])
    settings = set(Settings.__struct_fields__)
    directory = {name for name in documented if "." in name or "/" in name}
    assert documented - directory == settings


def test_the_example_configuration_is_valid(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (DOCS / "configuration.md").read_text(), re.S)
    file = tmp_path / "trackside.toml"
    file.write_text(example)
    settings = load_settings(file, data_dir=str(tmp_path))
    assert settings.flavors[0].to_flavor().resources.cards == 4
    assert settings.engines[0].to_runtime().path_prefix == ("/opt/venvs/torch24/bin",)


def test_every_reason_and_metric_is_documented_and_nothing_else() -> None:
    assert names_in(rows("reasons.md")) == set(ReasonCode)
    assert names_in(rows("api.md", "## Metrics")) == set(Metric)


def test_every_native_operation_is_documented_and_nothing_else() -> None:
    link = AgentLink.operations(AgentLink.__new__(AgentLink))
    nobody: Any = None  # the tables are read, nothing is called
    operations = (
        *native.operations(lambda: ()),
        *policies.operations(nobody, nobody),
        *pools.OPERATIONS,
        *notify.OPERATIONS,
        *stacks.OPERATIONS,
        *chaos.operations(nobody),
        *downloads.OPERATIONS,
        *iam.OPERATIONS,
        *link,
    )
    table = dict(re.findall(r"^\| (\w+) \| ([A-Z]+ /\S+) \|$", (DOCS / "api.md").read_text(), re.M))
    assert table == {operation.name: f"{operation.method} {operation.path}" for operation in operations}


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))])
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_rooms_of_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.split("## The rooms", 1)[1].split("\n\n`tests/`", 1)[0]
    rooms = {
        name for cell in re.findall(r"^\| ([^|]+) \|", table, re.M) for name in re.findall(r"`([^`]+)`", cell)
    }
    src = ROOT / "src" / "trackside"
    assert all((src / room.rstrip("/")).exists() for room in rooms)
    packages = {path.name + "/" for path in src.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages <= rooms
