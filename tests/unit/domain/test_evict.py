"""Who leaves a node that is to be empty."""

import pytest

from tests.unit.domain.builders import NODE, a_job, after, ended, running
from trackside.domain import rules
from trackside.domain.job import NodeId
from trackside.domain.phase import Phase
from trackside.domain.reason import ReasonCode


def test_its_tasks_drain_and_it_is_queued_again() -> None:
    moved = rules.evict(running(1), NODE, by="ann", at_ms=5_000)
    assert moved is not None
    job, (event,) = moved
    assert job.ending is not None
    assert (job.ending.phase, job.ending.reason.code) == (Phase.QUEUED, ReasonCode.EVICTED)
    assert event.message == job.ending.reason.text == f"ann emptied the node {NODE}"
    over = after(job, ended("worker-0", exit_code=143))
    assert over.phase is Phase.QUEUED
    assert [record.reason.code for record in over.records if record.reason] == [ReasonCode.EVICTED]


@pytest.mark.parametrize("node", [NODE, NodeId("elsewhere")])
def test_who_is_not_there_or_goes_already_is_left_alone(node: NodeId) -> None:
    assert rules.evict(a_job(1), node, by="ann", at_ms=1) is None
    job = running(1)
    told = rules.evict(job, node, by="ann", at_ms=1)
    assert (told is not None) is (node == NODE)
    if told is not None:
        assert rules.evict(told[0], node, by="ann", at_ms=2) is None
