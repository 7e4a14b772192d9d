"""A thousand pods of a real cluster through the core: all run, and nothing is ever over-committed."""

from pathlib import Path

import pytest
from benchmarks.replay import read_pods, replay

from tests.requirements import missing
from trackside.domain.pool import QueuePolicy

FILE = "openb_pod_list_default.csv"
DATA = Path(__file__).parents[4] / "shared" / "data" / "gpu-pods"
PODS = 1_000
NODES = 16  # few enough that most must wait


@pytest.mark.parametrize("policy", list(QueuePolicy))
def test_a_real_trace_is_scheduled_without_over_commitment(policy: QueuePolicy) -> None:
    if not (DATA / FILE).exists():
        missing(f"the trace {FILE} of alibaba/clusterdata (cluster-trace-gpu-v2023)")
    pods = read_pods(DATA / FILE, most=PODS)
    done = replay(pods, policy, nodes=NODES, squeeze=100)
    assert len(done.waits_s) == PODS
    assert min(done.waits_s) >= 0
    assert max(done.waits_s) > 0, "the pool was never full: this shows nothing"
    assert 0 < done.card_use <= 1
