"""docs/modelarts-v2.md says what the tables say, row for row."""

import re
from pathlib import Path

from trackside.api.huawei_errors import CODE_OF, UNEXPECTED
from trackside.api.modelarts_v2.phases import PHASE_OF
from trackside.api.modelarts_v2.routes import OPERATIONS
from trackside.api.modelarts_v2.search import FILTERS
from trackside.api.modelarts_v2.wire_request import SORT_KEYS

PAGE = (Path(__file__).parents[4] / "docs" / "modelarts-v2.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("|---")
]


def test_every_operation_has_its_row_and_no_other() -> None:
    known = {one.name: (one.method, str(one.status), one.action) for one in OPERATIONS}
    told = {
        row[0]: (row[1].split()[0], row[2], row[3]) for row in ROWS if len(row) == 5 and row[0] != "operation"
    }
    assert told == known


def test_every_error_has_its_row_and_no_other() -> None:
    told = {(int(row[0]), row[1]) for row in ROWS if re.fullmatch(r"\d{3}", row[0])}
    assert told == {*CODE_OF.values(), UNEXPECTED}


def test_every_filter_has_its_row() -> None:
    told = {
        key: set(row[1].split(", "))
        for row in ROWS
        for key in row[0].split(", ")
        if len(row) == 3 and key in FILTERS and row[1] != "error_code"
    }
    assert told == {key: set(operators) for key, operators in FILTERS.items()}


def test_every_order_and_phase_is_named() -> None:
    assert ", ".join(SORT_KEYS) in PAGE.replace("\n", " ")
    for phase, secondary in PHASE_OF.values():
        assert phase in PAGE
        assert secondary in PAGE
