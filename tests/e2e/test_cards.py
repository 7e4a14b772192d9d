"""Cards of a node: from a fake exporter or a stand-in for npu-smi to the samples of their tasks."""

import os
from pathlib import Path

import pytest

from tests.e2e.agent_harness import MIB, FakeServer, launch, node, until
from tests.unit.collect.exporter import exporter
from trackside.domain.exchange import TaskKey
from trackside.domain.resources import Accelerator, Resources

pytestmark = pytest.mark.e2e
STUB_DIR = Path(__file__).parents[1] / "stubs" / "npu"
CHIPS = "".join(
    f"""npu_chip_info_utilization{{id="{chip}"}} {10 * (chip + 1)}
npu_chip_info_hbm_used_memory{{id="{chip}"}} 1024
npu_chip_info_hbm_total_memory{{id="{chip}"}} 4096
npu_chip_info_power{{id="{chip}"}} {70 if chip else -1}
npu_chip_info_health_status{{id="{chip}"}} 1
"""
    for chip in range(3)
)
TABLE = """
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B4               | OK            | 88.2        30                0    / 0             |
| 0                         | 0000:C1:00.0  | 17          0    / 0          8192 / 32768         |
+===========================+===============+====================================================+
"""


def with_cards(family: Accelerator, *cards: int) -> dict[str, object]:
    given = Resources(cpu_cores=0.5, memory_bytes=256 * MIB, cards=len(cards), accelerator=family)
    return {"resources": given, "cards": cards}


def card_samples(server: FakeServer, of: TaskKey, prefix: str) -> dict[tuple[str, int | None], float]:
    found = [s for r in list(server.reports) if r.measured for s in r.measured.each()]
    mine = [s for s in found if s.job_id == of.job_id and s.metric.startswith(prefix)]
    return {(s.metric, s.card): s.value for s in mine}


def test_chips_of_an_exporter_are_counted_and_told_of_to_their_tasks(tmp_path: Path) -> None:
    with exporter(CHIPS) as fake, node(tmp_path, "--npu-exporter", fake.url) as (server, _):
        hello = until(lambda: server.hellos[0] if server.hellos else None)
        assert hello["capacity"]["npus"] == 3
        of = server.order(launch("sleep 600", **with_cards(Accelerator.NPU, 0, 2)))
        found = until(lambda: card_samples(server, of, "npu_"))
        assert found == {
            ("npu_percent", 0): 10.0,
            ("npu_percent", 2): 30.0,
            ("npu_percent", None): 20.0,
            ("npu_memory_percent", 0): 25.0,
            ("npu_memory_percent", 2): 25.0,
            ("npu_memory_percent", None): 25.0,
            ("npu_memory_used_bytes", 0): 1024 * MIB,
            ("npu_memory_used_bytes", 2): 1024 * MIB,
            ("npu_memory_used_bytes", None): 2048 * MIB,
            ("npu_power_watts", 2): 70.0,
            ("npu_power_watts", None): 70.0,
            ("npu_healthy", 0): 1.0,
            ("npu_healthy", 2): 1.0,
        }


def test_an_exporter_that_hangs_delays_no_sensor(tmp_path: Path) -> None:
    text = 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 42\n'
    with exporter(text) as fake, node(tmp_path, "--dcgm-exporter", fake.url) as (server, _):
        of = server.order(launch("sleep 600", **with_cards(Accelerator.GPU, 0)))
        until(lambda: card_samples(server, of, "gpu_percent").get(("gpu_percent", 0)) == 42.0)
        fake.free.clear()
        asked = fake.asked
        until(lambda: fake.asked > asked)

        def passes() -> int:
            return len(
                {
                    s.at_ms
                    for r in list(server.reports)
                    if r.measured
                    for s in r.measured.each()
                    if s.metric == "cpu_percent"
                }
            )

        before = passes()
        until(lambda: passes() >= before + 3)
        # A question waits for its answer as long as it may; passes do not, and ask no other meanwhile.
        assert fake.asked <= asked + 2


def test_npu_smi_is_asked_where_no_exporter_is_named(tmp_path: Path) -> None:
    (tmp_path / "table").write_text(TABLE)
    data = tmp_path / "data"
    path = f"{STUB_DIR}:{os.environ['PATH']}"
    with node(data, PATH=path, NPU_SMI_SCRIPT=str(tmp_path / "table")) as (server, _):
        of = server.order(launch("sleep 600", **with_cards(Accelerator.NPU, 0)))
        found = until(lambda: card_samples(server, of, "npu_"))
        assert found["npu_percent", 0] == 17.0
        assert found["npu_power_watts", None] == 88.2
        assert server.hellos[0]["capacity"]["npus"] == 1
