"""Knows how busy, full, hot and healthy Ascend chips are: from npu-exporter, or from npu-smi's table.

npu-exporter numbers chips as the driver does. npu-smi names a chip by its Phy-ID where it prints one, else
by the NPU's number, or by its place in the table where NPUs have several chips.
"""

import logging
import re
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from trackside.collect.cards import CardReading
from trackside.collect.exporter import Exporter
from trackside.domain.metric import Metric
from trackside.domain.resources import Accelerator

log = logging.getLogger(__name__)

CARD_LABEL = "id"
PROGRAM = "npu-smi"
SMI_SECONDS_MAX = 5.0
MIB = 1024**2
HEALTHY = "OK"

AS_THEY_ARE = {
    "npu_chip_info_utilization": Metric.NPU_PERCENT,
    "npu_chip_info_power": Metric.NPU_POWER_WATTS,
    "npu_chip_info_temperature": Metric.NPU_TEMPERATURE_CELSIUS,
    "npu_chip_info_error_code": Metric.NPU_ERROR_CODE,
    "npu_chip_info_health_status": Metric.NPU_HEALTHY,
}
# Used and total, in MiB. A chip has one of the two kinds of memory, and the other with a size of zero.
MEMORIES = (
    ("npu_chip_info_hbm_used_memory", "npu_chip_info_hbm_total_memory"),
    ("npu_chip_info_used_memory", "npu_chip_info_total_memory"),
)


def npu_exporter(url: str) -> Exporter:
    """Return a source of NPU readings: npu-exporter at this URL."""
    return Exporter(url, Accelerator.NPU, CARD_LABEL, lambda _, row: read_row(row))


def read_row(row: Mapping[str, float]) -> CardReading:
    """Return what a chip says in npu-exporter's words."""
    values = {metric: row[name] for name, metric in AS_THEY_ARE.items() if name in row}
    values |= _memory([(row.get(used), row.get(total)) for used, total in MEMORIES])
    return CardReading(values)


class NpuSmi:
    """Reads chips from the output of `npu-smi info`."""

    family = Accelerator.NPU

    def __init__(self, program: str = PROGRAM) -> None:
        self._program = program
        self._away = False

    def read(self, cards: frozenset[int]) -> dict[int, CardReading]:
        """Return what each of the chips says; nothing where the program does not answer."""
        try:
            done = subprocess.run(
                [self._program, "info"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SMI_SECONDS_MAX,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            if not self._away:  # once, not at every pass
                log.warning("no NPU readings: %s", error)
            self._away = True
            return {}
        self._away = False
        found = parse_smi(done.stdout.decode(errors="replace"))
        return {card: found[card] for card in sorted(cards & found.keys())}

    def close(self) -> None:
        """Nothing is held between two readings."""


class _Chip(NamedTuple):
    npu: int
    chip: int
    physical_id: int | None
    reading: CardReading


_NUMBER = r"([\d.]+|-|N/?A)"
_USED_OF = r"(\d+|-|N/?A)\s*/\s*(\d+|-|N/?A)"
# A chip has two rows: "| 0  910B3 | OK | 93.6  36  0 / 0 |"
# and below it "| 0  4 | 0000:C1:00.0 | 0  0 / 0  3161 / 65536 |".
_FIRST = re.compile(rf"\|\s*(\d+)\s+(\S.*?)\s*\|\s*(\S+)\s*\|\s*{_NUMBER}\s+{_NUMBER}\s")
_SECOND = re.compile(
    rf"\|\s*(\d+)(?:\s+(\d+))?\s*\|\s*[\dA-Fa-f]+:[\w:.]+\s*\|\s*{_NUMBER}\s+{_USED_OF}(?:\s+{_USED_OF})?\s*\|"
)


def parse_smi(text: str) -> dict[int, CardReading]:
    """Return what each chip says in the table of `npu-smi info`."""
    chips: list[_Chip] = []
    first: re.Match[str] | None = None
    for line in text.splitlines():
        second = _SECOND.match(line.strip())
        if second is not None and first is not None:
            chips.append(_chip(first, second))
            first = None
        else:
            first = _FIRST.match(line.strip())
    return {_card_of(chip, place, chips): chip.reading for place, chip in enumerate(chips)}


def _card_of(chip: _Chip, place: int, chips: list[_Chip]) -> int:
    if chip.physical_id is not None:
        return chip.physical_id
    return place if any(other.chip > 0 for other in chips) else chip.npu


def _chip(first: re.Match[str], second: re.Match[str]) -> _Chip:
    npu, _, health, power, temperature = first.groups()
    chip, physical_id, busy, memory_used, memory_total, hbm_used, hbm_total = second.groups()
    said = {
        Metric.NPU_PERCENT: _number(busy),
        Metric.NPU_POWER_WATTS: _number(power),
        Metric.NPU_TEMPERATURE_CELSIUS: _number(temperature),
        Metric.NPU_HEALTHY: float(health == HEALTHY),
    }
    values = {metric: value for metric, value in said.items() if value is not None}
    memories = ((hbm_used, hbm_total), (memory_used, memory_total))
    values |= _memory([(_number(used), _number(total)) for used, total in memories])
    return _Chip(int(npu), int(chip), None if physical_id is None else int(physical_id), CardReading(values))


def _memory(memories: list[tuple[float | None, float | None]]) -> dict[Metric, float]:
    """Return used bytes and percent of the first memory that has a size."""
    for used, total in memories:
        if used is not None and total is not None and 0 <= used <= total and total > 0:
            return {
                Metric.NPU_MEMORY_USED_BYTES: used * MIB,
                Metric.NPU_MEMORY_PERCENT: 100.0 * used / total,
            }
    return {}


def _number(text: str | None) -> float | None:
    """Return a cell's number; None for what stands there when there is none."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
