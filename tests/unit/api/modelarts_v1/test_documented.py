"""docs/modelarts-v1.md says what the tables say, row for row."""

import re
from pathlib import Path

from trackside.api.huawei_errors import CODE_OF, UNEXPECTED
from trackside.api.modelarts_v1.listing import SORT_OF
from trackside.api.modelarts_v1.metrics import METRIC_OF
from trackside.api.modelarts_v1.phases import STATUS_OF
from trackside.api.modelarts_v1.routes import OPERATIONS

PAGE = (Path(__file__).parents[4] / "docs" / "modelarts-v1.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading, without its head."""
    table = re.split(r"^\|---.*\n", PAGE.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.M)[1]
    lines = table.split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


def plain(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def test_every_operation_has_its_row_and_no_other() -> None:
    known = {one.name: (one.method, plain(one.path), one.action) for one in OPERATIONS}
    told = {}
    for name, request, action, *_ in rows("Operations"):
        method, path = request.split()
        told[name] = (method, plain(path), action)
    assert told == known


def test_every_error_has_its_row_and_no_other() -> None:
    assert {(int(status), code) for status, code, _ in rows("Errors")} == {*CODE_OF.values(), UNEXPECTED}


def test_every_status_has_its_row_and_no_other() -> None:
    assert {int(status) for status, _ in rows("Statuses")} == set(STATUS_OF.values())


def test_every_metric_has_its_row_and_no_other() -> None:
    told = [name for names, _ in rows("Metrics") for name in names.split(", ")]
    assert sorted(told) == sorted(METRIC_OF)


def test_every_order_is_named() -> None:
    assert ", ".join(SORT_OF) in PAGE.replace("\n", " ")
