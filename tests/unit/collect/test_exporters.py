"""What exporters of cards say, and what they do not: over HTTP, in their own words."""

import csv
from pathlib import Path

import pytest

from tests.requirements import missing
from tests.unit.collect.exporter import exporter
from trackside.collect.cards import CardReading
from trackside.collect.dcgm import AS_THEY_ARE, FREE, RESERVED, USED, XID, dcgm_exporter
from trackside.collect.exposition import NotText, is_blank, lines
from trackside.collect.fetch import FetchFailed, TooLarge, TooSlow, fetch_url
from trackside.collect.npu import NpuSmi, npu_exporter, parse_smi, read_row
from trackside.domain.metric import Metric

DATA = Path(__file__).parents[4] / "shared" / "data"
NPU_TEXT = DATA / "npu-exporter" / "prometheus_metrics.txt"
DCGM_COUNTERS = DATA / "dcgm-exporter" / "default-counters.csv"
STUB = Path(__file__).parents[2] / "stubs" / "npu" / "npu-smi"
MIB = 1024**2
BLANK = 9223372036854775794

DCGM = """
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1",device="nvidia0",Hostname="n"}} 63
DCGM_FI_DEV_GPU_UTIL{{gpu="1",UUID="GPU-2",device="nvidia1",Hostname="n"}} {blank}
DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",Hostname="n"}} 99
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{gpu="0"}} 70.25
DCGM_FI_DEV_POWER_USAGE{{gpu="1"}} 55.5
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{gpu="0"}} 44
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{{gpu="0"}} 1000
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{{gpu="0"}} 2900
# TYPE DCGM_FI_DEV_FB_RESERVED gauge
DCGM_FI_DEV_FB_RESERVED{{gpu="0"}} 100
# TYPE DCGM_FI_DEV_ECC_DBE_VOL_TOTAL counter
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="0"}} 2
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{{gpu="0"}} {xid}
"""


def test_dcgm_speaks_our_words_and_its_blanks_are_absent() -> None:
    with exporter(DCGM.format(blank=BLANK, xid=0)) as fake:
        found = dcgm_exporter(fake.url).read(frozenset({0, 1, 2}))
    assert found == {
        0: CardReading(
            {
                Metric.GPU_PERCENT: 63.0,
                Metric.GPU_POWER_WATTS: 70.25,
                Metric.GPU_TEMPERATURE_CELSIUS: 44.0,
                Metric.GPU_MEMORY_USED_BYTES: 1000.0 * MIB,
                Metric.GPU_MEMORY_PERCENT: 25.0,
                Metric.GPU_ECC_ERRORS: 2.0,
            }
        ),
        1: CardReading({Metric.GPU_POWER_WATTS: 55.5}),
    }


@pytest.mark.parametrize("blank", [BLANK, BLANK - 2, -1, "N/A", "NA", "-", "NaN", "N/A 1606402000"])
def test_whatever_says_no_value_costs_that_value_and_no_other(blank: object) -> None:
    with exporter(DCGM.format(blank=blank, xid=0)) as fake:
        found = dcgm_exporter(fake.url).read(frozenset({0, 1}))
    assert found[0].values[Metric.GPU_PERCENT] == 63.0
    assert found[1] == CardReading({Metric.GPU_POWER_WATTS: 55.5})


@pytest.mark.parametrize("blank", [BLANK, -1, "N/A"])
def test_a_chip_says_no_value_in_the_same_ways(blank: object) -> None:
    names = ("utilization", "power", "temperature", "error_code", "health_status", "hbm_used_memory")
    text = "".join(f'npu_chip_info_{name}{{id="0"}} {blank} 1606402000\n' for name in names)
    text += 'npu_chip_info_hbm_total_memory{id="0"} 4096\nnpu_chip_info_utilization{id="1"} 5\n'
    with exporter(text) as fake:
        found = npu_exporter(fake.url).read(frozenset({0, 1}))
    assert found == {1: CardReading({Metric.NPU_PERCENT: 5.0})}


def test_only_a_new_xid_is_news() -> None:
    with exporter() as fake:
        source, told = dcgm_exporter(fake.url), []
        for xid in (31, 31, 79, 79, 0, 79):  # the first was there before us
            fake.text = DCGM.format(blank=BLANK, xid=xid).encode()
            told.append(source.read(frozenset({0}))[0].values.get(Metric.GPU_XID))
    assert told == [None, None, 79.0, None, None, 79.0]


def test_the_names_are_those_that_dcgm_exporter_knows() -> None:
    if not DCGM_COUNTERS.exists():
        missing("the counters of dcgm-exporter")
    rows = csv.reader(DCGM_COUNTERS.read_text().splitlines())
    known = {row[0].lstrip("# ").strip() for row in rows if len(row) >= 3}
    ours = {name for name in AS_THEY_ARE if not name.endswith("_total")} | {USED, FREE, RESERVED, XID}
    assert ours <= known


def test_a_real_exposition_of_eight_chips() -> None:
    if not NPU_TEXT.exists():
        missing("the exposition of npu-exporter")
    with exporter(NPU_TEXT.read_text()) as fake:
        found = npu_exporter(fake.url).read(frozenset(range(16)))
    assert sorted(found) == list(range(8))
    for reading in found.values():
        # Its memory has a size of zero, so nothing is known of how full it is.
        assert reading.values == {
            Metric.NPU_PERCENT: 0.0,
            Metric.NPU_POWER_WATTS: 0.0,
            Metric.NPU_TEMPERATURE_CELSIUS: 0.0,
            Metric.NPU_ERROR_CODE: 0.0,
            Metric.NPU_HEALTHY: 1.0,
        }


@pytest.mark.parametrize(
    ("row", "used_mib", "percent"),
    [
        (
            {"hbm_used_memory": 3161, "hbm_total_memory": 65536, "used_memory": 9, "total_memory": 10},
            3161,
            4.8,
        ),
        ({"hbm_used_memory": 0, "hbm_total_memory": 0, "used_memory": 512, "total_memory": 1024}, 512, 50.0),
    ],
    ids=["HBM", "DDR"],
)
def test_a_chip_has_the_memory_that_has_a_size(row: dict[str, float], used_mib: int, percent: float) -> None:
    values = read_row({f"npu_chip_info_{name}": value for name, value in row.items()}).values
    assert values[Metric.NPU_MEMORY_USED_BYTES] == used_mib * MIB
    assert values[Metric.NPU_MEMORY_PERCENT] == pytest.approx(percent, abs=0.1)


HEAD = """+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.1                   Version: 24.1.1                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  {id}              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
"""
TAIL = """+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 2       0                 | 4711          | python3                  | 1024                    |
+===========================+===============+====================================================+
"""
ONE_CHIP = (
    HEAD.format(id="      ")
    + """| 2     910B4               | OK            | 88.2        30                0    / 0             |
| 0                         | 0000:C1:00.0  | 17          0    / 0          8192 / 32768         |
+===========================+===============+====================================================+
| 5     910B4               | Alarm         | NA          31                0    / 0             |
| 0                         | 0000:C2:00.0  | -           0    / 0          29356/ 32768         |
"""
    + TAIL
)
TWO_CHIPS = (
    HEAD.format(id="Phy-ID")
    + """| 0     Ascend910           | OK            | 162.6       34                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 12          0    / 0          3419 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           34                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2874 / 65536         |
"""
    + TAIL
)


def test_the_table_of_npu_smi() -> None:
    found = parse_smi(ONE_CHIP)
    assert found == {
        2: CardReading(
            {
                Metric.NPU_PERCENT: 17.0,
                Metric.NPU_POWER_WATTS: 88.2,
                Metric.NPU_TEMPERATURE_CELSIUS: 30.0,
                Metric.NPU_HEALTHY: 1.0,
                Metric.NPU_MEMORY_USED_BYTES: 8192.0 * MIB,
                Metric.NPU_MEMORY_PERCENT: 25.0,
            }
        ),
        5: CardReading(
            {
                Metric.NPU_TEMPERATURE_CELSIUS: 31.0,
                Metric.NPU_HEALTHY: 0.0,
                Metric.NPU_MEMORY_USED_BYTES: 29356.0 * MIB,
                Metric.NPU_MEMORY_PERCENT: pytest.approx(89.59, abs=0.01),
            }
        ),
    }


@pytest.mark.parametrize("blank", ["N/A", "NA", "-"])
def test_cells_without_a_number_are_absent(blank: str) -> None:
    row = f"| 0  910B4 | OK | {blank}  {blank}  0 / 0 |\n"
    row += f"| 0 | 0000:C1:00.0 | {blank}  0 / 0  {blank} / {blank} |\n"
    assert parse_smi(row) == {0: CardReading({Metric.NPU_HEALTHY: 1.0})}


def test_chips_of_one_npu_go_by_their_physical_id_or_their_place() -> None:
    assert parse_smi(TWO_CHIPS).keys() == {0, 1}
    assert Metric.NPU_POWER_WATTS not in parse_smi(TWO_CHIPS)[1].values
    unnumbered = TWO_CHIPS.replace("| 0     0   ", "| 0         ").replace("| 1     1   ", "| 1         ")
    assert parse_smi(unnumbered).keys() == {0, 1}
    assert parse_smi("no such table") == {}


def test_npu_smi_is_run_and_its_absence_or_failure_is_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table").write_text(ONE_CHIP)
    monkeypatch.setenv("NPU_SMI_SCRIPT", str(tmp_path / "table"))
    assert NpuSmi(str(STUB)).read(frozenset({5, 6})).keys() == {5}
    monkeypatch.setenv("NPU_SMI_SCRIPT", str(tmp_path / "nothing"))
    assert NpuSmi(str(STUB)).read(frozenset({5})) == {}
    assert NpuSmi(str(tmp_path / "no-program")).read(frozenset({5})) == {}


def test_an_exporter_that_is_away_or_talks_nonsense_is_no_reading() -> None:
    with exporter(DCGM.format(blank=BLANK, xid=0)) as fake:
        source, cards = dcgm_exporter(fake.url), frozenset({0})
        assert source.read(cards)
        fake.status = 500
        assert source.read(cards) == {}
        fake.status, fake.text = 200, b"<html>{ \xff"
        assert source.read(cards) == {}
    assert source.read(cards) == {}


@pytest.mark.parametrize("blank", [BLANK, -1, float("nan"), float("inf"), 2147483632, 140737488355328])
def test_blanks(blank: float) -> None:
    assert is_blank(float(blank))
    assert not is_blank(0.0)
    assert not is_blank(2147483631.0)


def test_a_fetch_is_bounded_in_time_and_size_and_goes_nowhere_else() -> None:
    with exporter("x" * 1000) as fake:
        assert fetch_url(fake.url, seconds_max=5, bytes_max=1000) == b"x" * 1000
        with pytest.raises(TooLarge):
            fetch_url(fake.url, seconds_max=5, bytes_max=999)
        fake.status, fake.headers = 302, {"Location": fake.url}
        with pytest.raises(FetchFailed, match="302"):
            fetch_url(fake.url, seconds_max=5, bytes_max=1000)
        assert fake.asked == 3
        fake.free.clear()
        with pytest.raises(TooSlow):
            fetch_url(fake.url, seconds_max=0.05, bytes_max=1000)
    with pytest.raises(FetchFailed):
        fetch_url(fake.url, seconds_max=5, bytes_max=10)


@pytest.mark.parametrize(
    "text", [b"a b c d", b'a{b="c} 1', b"\xff 1", b"# TYPE a gauge\n# TYPE a counter\na x"]
)
def test_what_is_no_prometheus_text_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(NotText):
        list(lines(text))
