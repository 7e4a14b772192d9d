"""Knows how busy and how full NVIDIA cards are, through NVML; knows nothing of tasks.

A machine without the driver's library has no readings, and so has a card that does not tell. A card that
fails is passed over: measuring never stops for it.
"""

import logging
from typing import NamedTuple

import pynvml

log = logging.getLogger(__name__)

CARD_BYTES_MAX = 1 << 60  # above any card; NVML says "no value" with a field's largest number


class CardReading(NamedTuple):
    """What one card says; None is what it does not say."""

    busy_percent: float | None
    memory_percent: float | None


class Gpus:
    """Reads the node's NVIDIA cards; the library is loaded at the first reading, once."""

    def __init__(self) -> None:
        self._ready: bool | None = None
        self._complained: set[int] = set()

    def read(self, cards: set[int]) -> dict[int, CardReading]:
        """Return what each of the cards says; a card that says nothing is left out."""
        if not cards or not self._load():
            return {}
        readings = {card: self._read_card(card) for card in sorted(cards)}
        return {card: reading for card, reading in readings.items() if reading is not None}

    def close(self) -> None:
        """Let go of the library."""
        if self._ready:
            self._ready = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                log.warning("NVML did not shut down: %s", error)

    def _load(self) -> bool:
        if self._ready is None:
            try:
                pynvml.nvmlInit()
                self._ready = True
            except pynvml.NVMLError as error:
                log.info("no GPU readings: %s", error)
                self._ready = False
        return self._ready

    def _read_card(self, card: int) -> CardReading | None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(card)
        except pynvml.NVMLError as error:
            self._complain(card, error)
            return None
        busy, memory = self._busy_percent(card, handle), self._memory_percent(card, handle)
        return None if busy is None and memory is None else CardReading(busy, memory)

    def _busy_percent(self, card: int, handle: object) -> float | None:
        try:
            percent = int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except pynvml.NVMLError as error:
            self._complain(card, error)
            return None
        return float(percent) if 0 <= percent <= 100 else None  # no value is the field's largest number

    def _memory_percent(self, card: int, handle: object) -> float | None:
        try:
            used_bytes, total_bytes = _memory_bytes(handle)
        except pynvml.NVMLError as error:
            self._complain(card, error)
            return None
        if not 0 <= used_bytes <= total_bytes <= CARD_BYTES_MAX or total_bytes == 0:
            return None
        return 100.0 * used_bytes / total_bytes

    def _complain(self, card: int, error: Exception) -> None:
        if card not in self._complained:  # once per card, not once per pass
            self._complained.add(card)
            log.warning("GPU %d does not tell all: %s", card, error)


def _memory_bytes(handle: object) -> tuple[int, int]:
    """Return used and total bytes; the newer call leaves out what the driver reserves for itself."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return int(memory.used), int(memory.total)
