"""docs/pools.md says what the tables say, row for row."""

import re
from pathlib import Path

import pytest

from trackside.api.modelarts_v2.pool_words import (
    DESCRIPTION,
    LOCK_SECONDS,
    NODES,
    PHASES_CALLED,
    QUOTA,
    STATUS_OF,
    STATUSES,
    STRATEGY,
)
from trackside.api.modelarts_v2.wire_pools import WorkloadStatuses
from trackside.api.native.pools import OPERATIONS
from trackside.domain.phase import Phase
from trackside.domain.pool import QueuePolicy

PAGE = (Path(__file__).parents[4] / "docs" / "pools.md").read_text()


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_every_phase_has_a_status_and_every_status_a_phase() -> None:
    assert set(STATUS_OF) == set(Phase)
    assert set(STATUS_OF.values()) == set(STATUSES) == set(PHASES_CALLED)
    assert set().union(*PHASES_CALLED.values()) == set(Phase)
    assert sum(len(phases) for phases in PHASES_CALLED.values()) == len(Phase)


def test_all_nine_statuses_are_in_the_answer() -> None:
    assert len(STATUSES) == 9
    assert set(WorkloadStatuses.__struct_encode_fields__) == set(STATUSES)


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_is_documented(status: str) -> None:
    assert re.search(rf"\b{status}\b", section("Statistics"))


def test_every_native_operation_has_its_row_and_no_other() -> None:
    rows = re.findall(r"^\| (\w+) \| ([A-Z]+ /\S+) \| (\S+) \|$", section("Our own API"), re.M)
    assert rows == [(one.name, f"{one.method} {one.path}", one.action) for one in OPERATIONS]


def test_every_annotation_and_policy_is_documented() -> None:
    told = set(re.findall(r"`([^`]+)`", section("Annotations")))
    assert {DESCRIPTION, STRATEGY, LOCK_SECONDS, NODES, f"{QUOTA}project", f"{QUOTA}user"} <= told
    assert set(QueuePolicy) <= told
