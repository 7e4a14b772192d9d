"""Knows which readings of a card are faults, what they are called, and which heal when a process starts anew.

Refuses to know tasks: it is shown the readings of one task's cards, one after the other.
"""

from collections.abc import Mapping

from trackside.domain.evidence import DeviceFault, DeviceKind
from trackside.domain.metric import Metric

# NVIDIA's codes, as its catalogue of XID errors has them. What it does not have is taken not to heal.
XID_TEXTS: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "memory page fault",
    38: "driver firmware error",
    43: "the application made the card stop processing",
    45: "preemptive cleanup, after an earlier error",
    48: "double bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "a page of its memory was retired, or a row remapped",
    64: "a page of its memory could not be retired, nor a row remapped",
    68: "video processor exception",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "the card has fallen off the bus",
    92: "many single bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "its system processor (GSP) does not answer",
    120: "error of its system processor (GSP)",
    140: "unrecovered ECC error",
}
# Of the application's doing, or contained in it: the next process finds a working card.
XIDS_THAT_HEAL = frozenset({13, 31, 43, 45, 94})
# Ascend's codes, as npu-exporter tells them; what is not here is taken not to heal.
NPU_TEXTS: Mapping[int, str] = {
    0x80E01801: "multi-bit ECC error of its memory (HBM)",
    0x80E18402: "multi-bit ECC error of its memory (HBM), and no rows are left to isolate",
    0x80C98009: "AI core error",
    0x80CB8009: "vector core error",
    0x81078603: "its network link is down",
    0x8C1F8608: "its network reported an error",
}
NPU_CODES_THAT_HEAL = frozenset({0x80E01801})
# What Ascend itself says needs nothing done: errors that were corrected, or found by the patrol.
NPU_NO_FAULTS = frozenset(
    {
        *(0x80E21007, 0x80E38003, 0x80F78006, 0x80C98006, 0x80CB8006, 0x81318006, 0x80A18006, 0x80A18005),
        *(0x80E01805, 0x80E01809, 0x80E18400, 0x80E18401, 0x80E00209, 0x80E18006, 0x80DE1803, 0x80DE1805),
    }
)
PER_TASK_MAX = 32


def xid_fault(card: int, xid: int, text: str = "") -> DeviceFault:
    """Return the fault of an XID error."""
    return DeviceFault(
        card=card,
        kind=DeviceKind.GPU,
        code=f"XID {xid}",
        text=XID_TEXTS.get(xid) or text or "an error that NVIDIA's list of XID errors explains",
        heals=xid in XIDS_THAT_HEAL,
    )


class CardFaults:
    """Watches what the cards of one task say while it runs, and keeps what is wrong with them."""

    def __init__(self) -> None:
        self._first: dict[tuple[Metric, int], float] = {}
        self._found: dict[tuple[int, str], DeviceFault] = {}

    @property
    def found(self) -> tuple[DeviceFault, ...]:
        """Return the faults in the order in which they were seen."""
        return tuple(self._found.values())

    def see(self, card: int, values: Mapping[Metric, float]) -> None:
        """Look at a reading."""
        if Metric.GPU_XID in values:
            self._keep(xid_fault(card, int(values[Metric.GPU_XID])))
        self._see_ecc(card, values)
        self._see_npu(card, values)

    def _see_ecc(self, card: int, values: Mapping[Metric, float]) -> None:
        """Compare the count of errors that could not be corrected with what it was at first."""
        count = values.get(Metric.GPU_ECC_ERRORS)
        if count is None:
            return
        first = self._first.setdefault((Metric.GPU_ECC_ERRORS, card), count)
        if count > first:
            words = f"memory errors that could not be corrected, {int(count - first)} since the task began"
            self._keep(DeviceFault(card=card, kind=DeviceKind.GPU, code="ECC", text=words, heals=False))

    def _see_npu(self, card: int, values: Mapping[Metric, float]) -> None:
        code = self._changed(Metric.NPU_ERROR_CODE, card, values)
        if code and int(code) not in NPU_NO_FAULTS:
            number = int(code)
            text = NPU_TEXTS.get(number, "an error that the list of the driver's codes explains")
            heals = number in NPU_CODES_THAT_HEAL
            self._keep(
                DeviceFault(card=card, kind=DeviceKind.NPU, code=f"{number:08X}", text=text, heals=heals)
            )
        healthy = self._changed(Metric.NPU_HEALTHY, card, values)
        if healthy == 0.0 and not any(of == card for of, _ in self._found):
            words = "the driver no longer calls the card healthy"
            self._keep(DeviceFault(card=card, kind=DeviceKind.NPU, code="unhealthy", text=words, heals=False))

    def _changed(self, metric: Metric, card: int, values: Mapping[Metric, float]) -> float | None:
        """Return a value that is not what it was at first."""
        value = values.get(metric)
        if value is None or value == self._first.setdefault((metric, card), value):
            return None
        return value

    def _keep(self, fault: DeviceFault) -> None:
        if len(self._found) < PER_TASK_MAX:
            self._found[fault.card, fault.code] = fault
