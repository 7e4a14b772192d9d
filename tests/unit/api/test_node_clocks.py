"""Exits on different nodes, told by one clock."""

from tests.unit.domain.builders import ended
from trackside.api.native.node_clocks import HELD_MS, WINDOW_MS, NodeClocks
from trackside.domain.exchange import Report
from trackside.domain.job import NodeId

A, B = NodeId("a"), NodeId("b")


def moment(clocks: NodeClocks, node: NodeId, boot_ms: int, now_ms: int) -> int:
    found = clocks.related(node, ended("worker-0", 1, ended_boot_ms=boot_ms), now_ms)
    assert found.ended is not None
    assert found.ended.ended_boot_ms is not None
    return found.ended.ended_boot_ms


def test_the_smallest_lag_is_the_nearest_to_the_truth() -> None:
    clocks = NodeClocks()
    clocks.see(A, 1_000, 501_040)  # 500 000 apart, and 40 under way
    clocks.see(A, 2_000, 502_003)
    clocks.see(A, 3_000, 503_900)
    assert moment(clocks, A, 2_500, 504_000) == 502_503


def test_two_nodes_whose_clocks_differ_by_days_are_put_in_order() -> None:
    clocks = NodeClocks()
    clocks.see(A, 9_000_000, 100_001)
    clocks.see(B, 50, 100_002)
    assert moment(clocks, A, 9_000_007, 100_100) < moment(clocks, B, 58, 100_100)


def test_a_better_relation_changes_no_order_within_a_job() -> None:
    clocks = NodeClocks()
    clocks.see(A, 1_000, 1_050)
    first = moment(clocks, A, 1_010, 1_060)
    clocks.see(A, 1_070, 1_071)
    assert moment(clocks, A, 1_015, 1_080) == first + 5
    later = 1_080 + HELD_MS + 1
    assert moment(clocks, A, later, later + 3) == later + 1, "another attempt takes the better one"


def test_old_relations_are_dropped_for_clocks_drift() -> None:
    clocks = NodeClocks()
    clocks.see(A, 0, 10)
    at = WINDOW_MS
    clocks.see(A, at, at + 30)
    assert moment(clocks, A, at, at + 40) == at + 10
    at = 2 * WINDOW_MS
    clocks.see(A, at, at + 30)
    assert moment(clocks, A, at, at + 40) == at + 30
    at = 9 * WINDOW_MS
    clocks.see(A, at, at + 50)
    assert moment(clocks, A, at, at + 60) == at + 50


def test_a_node_that_was_started_anew_is_related_anew() -> None:
    clocks = NodeClocks()
    clocks.see(A, 8_000_000, 8_000_005)
    assert moment(clocks, A, 8_000_001, 8_000_006) == 8_000_006
    clocks.see(A, 40, 8_300_000)
    assert moment(clocks, A, 30, 8_300_001) == 8_299_990


def test_what_cannot_be_related_stays_as_it_is() -> None:
    clocks = NodeClocks()
    assert moment(clocks, A, 7, 100) == 7
    clocks.see(A, 50, 100)
    plain = Report(seq=1)
    assert clocks.related(A, plain, 100) is plain
    unknown = ended("worker-0", 1)
    assert clocks.related(A, unknown, 100) is unknown
