"""Knows what dcgm-exporter calls the numbers of NVIDIA cards."""

from trackside.collect.cards import CardReading
from trackside.collect.exporter import Exporter
from trackside.domain.metric import Metric
from trackside.domain.resources import Accelerator

CARD_LABEL = "gpu"
MIB = 1024**2

AS_THEY_ARE = {
    "DCGM_FI_DEV_GPU_UTIL": Metric.GPU_PERCENT,
    "DCGM_FI_DEV_POWER_USAGE": Metric.GPU_POWER_WATTS,
    "DCGM_FI_DEV_GPU_TEMP": Metric.GPU_TEMPERATURE_CELSIUS,
    # A counter: the parser gives its sample the ending that counters have.
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Metric.GPU_ECC_ERRORS,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL_total": Metric.GPU_ECC_ERRORS,
}
USED, FREE, RESERVED = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"
XID = "DCGM_FI_DEV_XID_ERRORS"


def dcgm_exporter(url: str) -> Exporter:
    """Return a source of GPU readings: dcgm-exporter at this URL."""
    return Exporter(url, Accelerator.GPU, CARD_LABEL, DcgmRows())


class DcgmRows:
    """Turn one card's rows into a reading. It remembers each card's last XID: only a new one is news."""

    def __init__(self) -> None:
        self._xids: dict[int, float] = {}

    def __call__(self, card: int, row: dict[str, float]) -> CardReading:
        """Return what the card says."""
        values = {metric: row[name] for name, metric in AS_THEY_ARE.items() if name in row}
        if USED in row:
            values[Metric.GPU_MEMORY_USED_BYTES] = row[USED] * MIB
            total = row[USED] + row[FREE] + row.get(RESERVED, 0.0) if FREE in row else 0.0
            if total > 0:
                values[Metric.GPU_MEMORY_PERCENT] = 100.0 * row[USED] / total
        if XID in row:
            if row[XID] not in (0.0, self._xids.get(card, row[XID])):
                values[Metric.GPU_XID] = row[XID]
            self._xids[card] = row[XID]
        return CardReading(values)
