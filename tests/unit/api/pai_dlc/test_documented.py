"""docs/pai-dlc.md says what the tables say, row for row."""

import re
from pathlib import Path

from trackside.api.pai_dlc.errors import CODE_OF, UNEXPECTED
from trackside.api.pai_dlc.measured import CMS_METRICS, METRIC_TYPES
from trackside.api.pai_dlc.phases import CODE_OF_REASON, PLAIN_REASON_OF, STATUSES
from trackside.api.pai_dlc.routes import OPERATIONS
from trackside.api.pai_dlc.search import LOOKED_AT, NUMBER_OF, SORT_KEYS
from trackside.api.pai_dlc.wire_create import JOB_TYPES

PAGE = (Path(__file__).parents[4] / "docs" / "pai-dlc.md").read_text()


def rows(heading: str, table: int = 1) -> list[list[str]]:
    """Return the rows of a table below a heading, without its head."""
    part = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = re.split(r"^\|---.*\n", part, flags=re.M)[table].split("\n\n", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def words(rows_of_table: list[list[str]]) -> set[str]:
    return {word for first, *_ in rows_of_table for word in first.split(", ")}


def test_every_operation_has_its_row_and_no_other() -> None:
    def plain(path: str) -> str:
        return re.sub(r"\{[^}]*\}", "{}", path)

    known = {one.name: (one.method, plain(one.path), one.action) for one in OPERATIONS}
    told = {}
    for name, request, action, _ in rows("Operations"):
        method, path = request.split()
        told[name] = (method, plain(path), action)
    assert told == known


def test_every_error_has_its_row_and_no_other() -> None:
    assert {(int(status), code) for status, code, _ in rows("Errors")} == {*CODE_OF.values(), UNEXPECTED}


def test_every_reason_has_its_row_and_no_other() -> None:
    assert words(rows("Job", 2)) == {*CODE_OF_REASON.values(), *PLAIN_REASON_OF.values()}


def test_every_filter_is_told() -> None:
    (list_jobs,) = (one for one in OPERATIONS if one.name == "ListJobs")
    section = PAGE.split("\n## Lists\n", 1)[1].split("\n## ", 1)[0]
    for name in (*(param.name for param in list_jobs.query), *LOOKED_AT, *NUMBER_OF, *SORT_KEYS):
        assert re.search(rf"\b{name}\b", section), name


def test_every_metric_has_its_row_and_no_other() -> None:
    assert words(rows("Metrics")) == set(METRIC_TYPES)
    assert words(rows("Metrics", 2)) - {"the eight types above"} == set(CMS_METRICS) - set(METRIC_TYPES)


def test_every_status_and_type_is_named() -> None:
    for word in (*STATUSES, *JOB_TYPES):
        assert re.search(rf"\b{word}\b", PAGE), word
