"""What stands ready for Prometheus and Grafana works on the names that Trackside has."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import prometheus, timeseries
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.requirements import missing
from trackside.api.exposition import SERVER_FAMILIES
from trackside.domain.exposition import metric_name
from trackside.domain.metric import CUSTOM_PREFIX, Metric

ROOT = Path(__file__).parent.parent
DASHBOARD = json.loads((ROOT / "deploy/grafana/trackside.json").read_text())
NAMES = {
    *(metric_name(metric) for metric in Metric),
    *(family.sample_name for family in SERVER_FAMILIES),
    *(f"{f.name}{suffix}" for f in SERVER_FAMILIES if f.kind == "summary" for suffix in ("_count", "_sum")),
}
VARIABLES = {"$job": "x", "$task": ".*", "$__rate_interval": "1m", "$__range": "1h"}


def charts() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in charts() for target in panel["targets"]]


def test_the_dashboard_has_what_grafana_needs() -> None:
    assert DASHBOARD["title"]
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["id"] is None, "Grafana gives the number"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in charts():
        assert panel["title"]
        assert set(panel["gridPos"]) == {"h", "w", "x", "y"}
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["expr"]
            assert target["datasource"]["uid"] == "${datasource}"
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


# What Grafana writes when it exports a dashboard; its model does not have them.
ONLY_IN_FILES = frozenset({"__inputs", "__requires", "definition", "id"})


def lost(ours: Any, theirs: Any, at: str = "") -> list[str]:
    """Return the places of what is in ours and not, or otherwise, in theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        kept = {name: value for name, value in ours.items() if name not in ONLY_IN_FILES or name in theirs}
        return [one for name, value in kept.items() for one in lost(value, theirs.get(name), f"{at}.{name}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [one for number, (our, their) in pairs for one in lost(our, their, f"{at}[{number}]")]
    return [] if ours == theirs else [at]


def test_the_dashboard_is_one_by_grafanas_own_model() -> None:
    """Read into the classes that Grafana publishes and written again, it loses nothing."""
    plugins.register_default_plugins()
    model = Dashboard.from_json(DASHBOARD)
    assert lost(DASHBOARD, json.loads(JSONEncoder().encode(model))) == []
    for panel in model.panels or []:
        if panel.type_val != "row":
            assert isinstance(panel.options, timeseries.Options)
            assert all(isinstance(target, prometheus.Dataquery) for target in panel.targets)
    misspelt = {**DASHBOARD, "refesh": "15s"}
    assert lost(misspelt, json.loads(JSONEncoder().encode(Dashboard.from_json(misspelt)))) == [".refesh"]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_its_variables_are_those_it_uses() -> None:
    defined = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert defined == {"datasource", "job", "task"}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD["panels"])))
    assert used == defined


def test_every_metric_it_asks_for_exists() -> None:
    asked = " ".join(expressions()) + json.dumps(DASHBOARD["templating"])
    found = set(re.findall(r"\btrackside_\w+", asked))
    custom = {name for name in found if name.startswith(metric_name(CUSTOM_PREFIX))}
    assert custom, "a job's own metrics have a panel"
    assert found - custom <= NAMES
    for metric in ("cpu_percent", "memory_percent", "disk_read_bytes_per_second", "gpu_percent"):
        assert metric_name(metric) in found


def promtool(*arguments: str) -> None:
    program = shutil.which("promtool")
    if program is None:
        missing("promtool is not installed: apt-get install prometheus")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_expressions_are_promql(tmp_path: Path) -> None:
    rules = []
    for number, expression in enumerate(expressions()):
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)
        rules.append({"record": f"checked:{number}", "expr": expression})
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", str(file))


EXAMPLES = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/prometheus.md").read_text(), re.S)


@pytest.mark.parametrize("example", EXAMPLES, ids=["scrape", "store"])
def test_the_documented_configurations_are_valid(example: str, tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(example)
    promtool("check", "config", str(file))
